package org.apache.spark.ckpt

import java.io.{BufferedReader, BufferedWriter, InputStreamReader, IOException, OutputStreamWriter}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletableFuture, ConcurrentLinkedQueue, ConcurrentSkipListMap, ExecutionException, Semaphore, TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/**
 * A Python process that serves this JVM over its stdin and stdout, started anew when it dies.
 *
 * @param module the Python module that is run
 * @param greeting the first request, sent to every new process
 * @param onMessage one-way lines of the child; runs on the reading thread and must not block
 * @param onReplaced what a replacement has to be told before anything unanswered is sent to it again
 */
final class PythonChild(
    module: String,
    python: String,
    greeting: ObjectNode,
    onMessage: JsonNode => Unit,
    onReplaced: PythonChild.Teller => Unit) extends Logging {

  import PythonChild._

  /** `sentTo` is guarded by the pipe: no child hears a question twice. */
  private class Waiting(val request: ObjectNode) {
    val answer = new CompletableFuture[JsonNode]()
    var sentTo: Process = _
  }

  private val ids = new AtomicLong()
  private val waiting = new ConcurrentSkipListMap[Long, Waiting]()
  private val pipe = new Object // guards process and writer: who holds it decides what the child hears next
  // What is told, in order: a task does not wait until the child has read it. A question is asked after all that was told before it.
  private val toTell = new ConcurrentLinkedQueue[ObjectNode]()
  private val told = new Semaphore(0)
  private val hurry = new Semaphore(0)
  private var process: Process = _
  private var writer: BufferedWriter = _
  private val deaths = mutable.Queue.empty[Long]
  @volatile private var closing = false
  @volatile private var broken: Option[CheckpointFailure] = None
  @volatile private var lastTrace = ""

  /** Start the process and greet it; its answer, or the failure that keeps it from serving. */
  def start(): JsonNode = {
    val answer = pipe.synchronized(launch())
    thread(s"$module-stdin")(while (!closing) {
      told.acquire()
      hurry.tryAcquire(LingerMs, TimeUnit.MILLISECONDS)
      told.drainPermits()
      hurry.drainPermits()
      sayAll()
    })
    answer
  }

  /** Ask and wait. An answer survives the child's death: the question is put again to its replacement. */
  def request(message: ObjectNode): JsonNode = {
    val id = ids.incrementAndGet()
    val entry = new Waiting(message.put("id", id))
    waiting.put(id, entry)
    try {
      broken.foreach(throw _)
      put(entry)
      entry.answer.get()
    } catch {
      case e: ExecutionException => throw e.getCause
    } finally {
      waiting.remove(id)
    }
  }

  /** Why the child does not serve any more, nor will any replacement. */
  def failure: Option[CheckpointFailure] = broken

  /**
   * Say something one-way. Lost if the child dies: `onReplaced` says again what matters. What is not `urgent` may wait for company, which
   * costs both processes fewer awakenings; whatever is urgent, or asked, takes it along.
   */
  def tell(message: ObjectNode, urgent: Boolean = true): Unit = if (broken.isEmpty) {
    toTell.add(message)
    if (urgent) hurry.release()
    told.release()
  }

  /** End of the conversation: the child finishes what is in hand, then exits; killed when that takes longer than `graceMs`. */
  def close(graceMs: Long): Unit = {
    closing = true
    val (p, w) = pipe.synchronized((process, writer))
    if (p != null) {
      sayAll()
      told.release()
      try w.close() catch { case _: IOException => }
      if (!p.waitFor(graceMs, TimeUnit.MILLISECONDS)) p.destroyForcibly()
    }
    fail(new CheckpointFailure(CheckpointFailure.Internal, s"$module was closed with its application"))
  }

  // (1) A question is registered; (2) the child dies and its replacement is asked all that is registered, this question too; (3) the
  // asking thread gets the pipe: it must not ask again.
  private def put(entry: Waiting): Unit = pipe.synchronized {
    if (entry.sentTo ne process) {
      entry.sentTo = process
      sayAll()
      write(entry.request)
    }
  }

  private def sayAll(): Unit = pipe.synchronized {
    if (!toTell.isEmpty) write(Iterator.continually(toTell.poll()).takeWhile(_ != null))
  }

  private def write(message: JsonNode): Unit = write(Iterator(message))

  private def write(messages: Iterator[JsonNode]): Unit = pipe.synchronized {
    try {
      messages.foreach { message =>
        writer.write(Json.line(message))
        writer.write('\n')
      }
      writer.flush()
    } catch {
      case _: IOException => // the child is dead or dying; its reader notices and starts another, which is told again
    }
  }

  private def launch(): JsonNode = {
    val builder = new ProcessBuilder(python, "-m", module)
    builder.environment().put("PYTHONSAFEPATH", "1") // no module is taken from the folder that the application happens to run in
    builder.environment().putIfAbsent("MALLOC_ARENA_MAX", "2") // each of its many threads would keep a heap of its own
    val child =
      try builder.start()
      catch {
        case e: IOException =>
          throw new CheckpointFailure(CheckpointFailure.Config,
            s"the Python interpreter '$python' cannot be started (${e.getMessage}); set spark.ckpt.python to one that has the package spark-ckpt", e)
      }
    lastTrace = ""
    process = child
    writer = new BufferedWriter(new OutputStreamWriter(child.getOutputStream, UTF_8))
    val errors = thread(s"$module-stderr")(readErrors(child))
    val hello = new Waiting(greeting.deepCopy().put("id", 0L))
    thread(s"$module-stdout")(read(child, errors, hello))
    waiting.put(0L, hello)
    try {
      hello.sentTo = child
      write(hello.request)
      hello.answer.orTimeout(GreetingMs, TimeUnit.MILLISECONDS).get()
    } catch {
      case e: ExecutionException =>
        child.destroyForcibly()
        throw (e.getCause match {
          case _: TimeoutException =>
            new CheckpointFailure(CheckpointFailure.Internal, s"$python -m $module did not answer within ${GreetingMs / 1000} s of its start")
          case other => other
        })
    } finally {
      waiting.remove(0L)
    }
  }

  private def read(child: Process, errors: Thread, hello: Waiting): Unit = {
    val reader = new BufferedReader(new InputStreamReader(child.getInputStream, UTF_8))
    try {
      var line = reader.readLine()
      while (line != null) {
        handle(line)
        line = reader.readLine()
      }
    } catch {
      case _: IOException => // the same as end of file
    }
    val status = child.waitFor()
    errors.join(1000)
    if (!closing) ended(status, hello)
  }

  private def handle(line: String): Unit = {
    val node =
      try Json.parse(line)
      catch { case _: Exception => logWarning(s"$module said something that is not JSON: ${line.take(200)}"); return }
    Option(node.get("re")) match {
      case Some(id) =>
        Option(waiting.get(id.asLong())).foreach { entry =>
          if (node.get("ok").asBoolean()) entry.answer.complete(node)
          else {
            val error = node.get("error")
            val unread = Unread(error.optStr("object"), Option(error.get("checkpoint")).map(c => (c.long("run"), c.long("epoch"))))
            entry.answer.completeExceptionally(new CheckpointFailure(error.str("kind"), error.str("message"), unread = unread))
          }
        }
      case None if node.optStr("type").contains("log") => relay(node)
      case None =>
        try onMessage(node)
        catch { case e: Exception => logWarning(s"a message of $module could not be handled", e) }
    }
  }

  private def relay(node: JsonNode): Unit = node.str("level") match {
    case "ERROR" => logError(node.str("message"))
    case "WARN" => logWarning(node.str("message"))
    case _ => logInfo(node.str("message"))
  }

  private def readErrors(child: Process): Unit = {
    val reader = new BufferedReader(new InputStreamReader(child.getErrorStream, UTF_8))
    try {
      var line = reader.readLine()
      while (line != null) {
        logWarning(s"$module: $line")
        if (line.trim.nonEmpty) lastTrace = line.trim
        line = reader.readLine()
      }
    } catch { case _: IOException => }
  }

  // Runs on the dead child's reading thread. One that has not served is the affair of the thread that has started it.
  private def ended(status: Int, hello: Waiting): Unit = {
    val why = if (lastTrace.isEmpty) "" else s": $lastTrace"
    if (!hello.answer.isDone) {
      val message =
        if (lastTrace.contains("No module named")) {
          s"the Python $python lacks spark-ckpt or what it needs (${missing(lastTrace)}); install spark-ckpt with its dependencies for it, " +
            "or set spark.ckpt.python to an interpreter that has them"
        } else s"$python -m $module ended with status $status before it could serve$why; check spark.ckpt.python"
      hello.answer.completeExceptionally(new CheckpointFailure(CheckpointFailure.Config, message))
    } else if (!hello.answer.isCompletedExceptionally) replace(s"$module ended with status $status$why")
  }

  /**
   * Another child takes over. One that dies before it serves counts like any other death: what this Python could do once, it cannot do for
   * want of memory, say, and not because of its configuration.
   */
  @tailrec private def replace(death: String): Unit = {
    logWarning(s"$death; starting another")
    val now = System.nanoTime()
    deaths.enqueue(now)
    while (deaths.head < now - TimeUnit.MINUTES.toNanos(1)) deaths.dequeue()
    if (deaths.size > MaxDeathsPerMinute) {
      fail(new CheckpointFailure(CheckpointFailure.Internal, s"$python -m $module died ${deaths.size} times within a minute; the last time: $death"))
    } else {
      val again =
        try {
          takeOver()
          None
        } catch { case e: CheckpointFailure => Some(e.getMessage) }
      if (again.nonEmpty && !closing) replace(again.get)
    }
  }

  // While it holds the pipe nothing is said to the new child but what is said here.
  private def takeOver(): Unit = pipe.synchronized {
    if (!closing) {
      toTell.clear()
      launch()
      onReplaced(write)
      waiting.values().asScala.foreach(put)
    }
  }

  private def fail(failure: CheckpointFailure): Unit = {
    broken = Some(failure)
    waiting.values().asScala.foreach(_.answer.completeExceptionally(failure))
  }

  private def thread(name: String)(body: => Unit): Thread = {
    val t = new Thread(() => body, name)
    t.setDaemon(true)
    t.start()
    t
  }
}

object PythonChild {
  type Teller = ObjectNode => Unit

  private def missing(trace: String): String = trace.substring(trace.indexOf("No module named")).stripSuffix(")")

  private val GreetingMs = 60000L
  private val LingerMs = 50L
  private val MaxDeathsPerMinute = 5
}
