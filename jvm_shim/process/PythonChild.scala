package org.apache.spark.ckpt

import java.util.concurrent.{CompletableFuture, ConcurrentSkipListMap, ExecutionException, TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/**
 * How long a Python process may take, in milliseconds: for its first answer; to answer a ping, `pings` of which are sent `pingMs` apart
 * before it counts as hung. Between two replacements lie pauses that double from `pauseMs` to `longestPauseMs`. Where none has served for
 * `giveUpMs`, questions are answered with an error, until one does; one that has lived for `provenMs` counts as sound again.
 */
final case class ChildPatience(
    greetingMs: Long, pingMs: Long, pings: Int, pauseMs: Long, longestPauseMs: Long, giveUpMs: Long, provenMs: Long)

/**
 * A Python process that serves this JVM over its stdin and stdout, started anew when it dies or hangs.
 *
 * @param module the Python module that is run
 * @param greeting the first request, sent to every new process; with `replaces` to all but the first that serves. Where it names its
 *                 `jar`, a package of another version does not serve
 * @param onMessage one-way lines of the child; runs on the reading thread and must not block
 * @param onServing what a process that begins to serve has to be told before anything unanswered is sent to it
 */
final class PythonChild(
    module: String,
    python: String,
    greeting: ObjectNode,
    onMessage: JsonNode => Unit,
    onServing: PythonChild.Teller => Unit,
    patience: ChildPatience = PythonChild.Patience) extends Logging {

  import PythonChild._

  private class Waiting(val line: String) {
    val answer = new CompletableFuture[JsonNode]()
    var asked = 0
  }

  /** A process that has not served yet. */
  private class Greeted(val process: PythonProcess) {
    val hello = new CompletableFuture[JsonNode]()
  }

  private val ids = new AtomicLong(Ping)
  private val waiting = new ConcurrentSkipListMap[Long, Waiting]()
  private val pipe = new Object // guards what follows: who holds it decides what the child hears next. Nothing is waited for under it.
  private var greeted: Option[Greeted] = None
  private var serving: Option[PythonProcess] = None
  private var closing = false
  @volatile private var down: Option[CheckpointFailure] = None
  private val first = new CompletableFuture[JsonNode]()
  private var hasServed = false
  // Of the supervising thread. Since when no process has proved itself, System.nanoTime, and whether one that served has died after others.
  private var unprovenSince = Option.empty[Long]
  private var diedServing = false
  private var pause = 0L
  private var killed = 0

  /** Start the process and greet it; its answer, or the failure that keeps it from serving. */
  def start(): JsonNode = {
    supervise(persistent = false)
    try first.get()
    catch { case e: ExecutionException => throw e.getCause }
  }

  /** The same without waiting. Where it cannot serve, `failure` tells, and it is tried again. */
  def begin(): Unit = supervise(persistent = true)

  /**
   * Ask and wait: for an answer, for as long as the child lives and answers pings. A question survives the child's death, and is put again
   * to its replacement; not to the one after a sixth that died over it.
   */
  def request(message: ObjectNode): JsonNode = {
    val id = ids.incrementAndGet()
    val entry = new Waiting(Json.line(message.put("id", id)))
    if (isTooLong(entry.line)) throw tooLong(message, entry.line)
    pipe.synchronized {
      down.foreach(throw _)
      waiting.put(id, entry)
      serving.foreach(put(_, entry))
    }
    try entry.answer.get()
    catch { case e: ExecutionException => throw e.getCause }
    finally waiting.remove(id)
  }

  /** Why the child does not serve at the moment, nor has for long, nor ever will again once it is closed. */
  def failure: Option[CheckpointFailure] = down

  /**
   * Say something one-way. Lost if the child dies: `onServing` says again what matters. What is not `urgent` may wait for company;
   * whatever is urgent, or asked, takes it along.
   */
  def tell(message: ObjectNode, urgent: Boolean = true): Unit = {
    val line = Json.line(message)
    // Nobody waits for it: what it would have said does not come, as if the child had died before.
    if (isTooLong(line)) logError(tooLong(message, line).getMessage)
    else pipe.synchronized(serving.foreach(_.say(line, urgent)))
  }

  /** The same with a line of another process of this package, which has kept to the limit. */
  def relay(line: String): Unit = pipe.synchronized(serving.foreach(_.say(line)))

  private def isTooLong(line: String): Boolean = line.length > Json.MaxLine

  private def tooLong(message: ObjectNode, line: String) = new CheckpointFailure(CheckpointFailure.Internal,
    s"${message.str("type")} is a message of ${line.length} characters, more than the ${Json.MaxLine} that fit the pipe to $module; please report it")

  /** End of the conversation: the child finishes what is in hand, then exits; killed when that takes longer than `graceMs`. */
  def close(graceMs: Long): Unit = {
    val living = pipe.synchronized {
      closing = true
      pipe.notifyAll()
      serving.orElse(greeted.map(_.process))
    }
    living.foreach { p =>
      p.finish()
      if (!p.awaitEnd(graceMs)) p.kill("its application has ended")
    }
    giveUp(closedWithApplication)
  }

  // --- one process after the other

  private def supervise(persistent: Boolean): Unit = {
    val supervisor = new Thread(() => keepServing(persistent), s"$module-watch")
    supervisor.setDaemon(true)
    supervisor.start()
  }

  // Also after an Error, which a want of memory or of threads is: without this thread nobody would be asked or answered any more.
  private def keepServing(persistent: Boolean): Unit = {
    while (!isClosing) {
      try serveOnce(persistent)
      catch { case e: Throwable => logError(s"the process of $module could not be supervised; another is started", e) }
      pipe.synchronized(if (!closing && pause > 0) pipe.wait(pause))
    }
    // Closed between two launches: nobody is to wait for the first that serves.
    first.completeExceptionally(closedWithApplication)
  }

  private def serveOnce(persistent: Boolean): Unit =
    try serve(launch())
    catch {
      case e: KilledBeforeServing if !first.isDone && e.times < MaxKilled => failed(e.getMessage)
      case e: Throwable if !first.isDone => // who waits for the first is told at once; what comes later is no matter of configuration
        val failure = e match {
          case known: CheckpointFailure => known
          case other => new CheckpointFailure(CheckpointFailure.Internal, s"$python -m $module could not be started: $other", other)
        }
        if (persistent) giveUp(failure) else close(0L)
        first.completeExceptionally(failure)
        failed(failure.getMessage)
      case e: CheckpointFailure => failed(e.getMessage)
      case e: Throwable => failed(e.toString)
    }

  private def closedWithApplication = new CheckpointFailure(CheckpointFailure.Internal, s"$module was closed with its application")

  private def isClosing: Boolean = pipe.synchronized(closing)

  /** A process that has answered its greeting. */
  private def launch(): PythonProcess = {
    val process = new PythonProcess(module, python, heard)
    val candidate = new Greeted(process)
    val wanted = pipe.synchronized {
      if (!closing) greeted = Some(candidate)
      !closing
    }
    if (!wanted) process.kill("its application has ended")
    process.say(Json.line(greeting.deepCopy().put("id", Hello).put("replaces", hasServed)))
    try {
      val answer = await(candidate)
      if (greeting.has("jar")) Versions.check(answer, python)
      pipe.synchronized {
        val said = mutable.ArrayBuffer.empty[String]
        onServing(message => said += Json.line(message))
        process.sayFirst(said)
        waiting.values().asScala.foreach(put(process, _))
        serving = Some(process)
        if (!diedServing && !closing) down = None
      }
      hasServed = true
      first.complete(answer)
      process
    } catch {
      case e: Throwable =>
        process.kill(e.toString)
        throw e
    } finally pipe.synchronized { greeted = None }
  }

  private def await(candidate: Greeted): JsonNode = {
    try {
      CompletableFuture.anyOf(candidate.hello, candidate.process.ended).get(patience.greetingMs, TimeUnit.MILLISECONDS)
      if (candidate.hello.isDone) candidate.hello.get() else throw unfit(candidate.process.end)
    } catch {
      case e: ExecutionException => throw e.getCause
      case _: TimeoutException =>
        throw new CheckpointFailure(CheckpointFailure.Internal, s"$python -m $module did not answer within ${patience.greetingMs} ms of its start")
    }
  }

  private def unfit(end: ProcessEnd): CheckpointFailure = {
    val at = end.trace.indexOf("No module named")
    if (end.bySignal) {
      killed += 1
      new KilledBeforeServing(s"$python -m $module ${end.how} before it could serve: it was killed, $killed times now; look for what ends " +
        "processes there, the system for want of memory for example", killed)
    } else new CheckpointFailure(CheckpointFailure.Config,
      if (at >= 0) {
        s"the Python $python lacks spark-ckpt or what it needs (${end.trace.substring(at).stripSuffix(")")}); install spark-ckpt with its dependencies " +
          "for it, or set spark.ckpt.python to an interpreter that has them"
      } else s"$python -m $module ${end.how} before it could serve${end.why}; check spark.ckpt.python")
  }

  /** Returns when the process has ended, by itself or because it hangs. */
  private def serve(process: PythonProcess): Unit = {
    try watch(process)
    catch {
      case e: Throwable =>
        process.kill(e.toString)
        throw e
    } finally pipe.synchronized { serving = None }
    if (!isClosing) {
      diedServing ||= unprovenSince.nonEmpty
      failed(s"$module ${process.end.how}${process.end.why}")
    }
  }

  private def watch(process: PythonProcess): Unit = {
    val since = System.nanoTime()
    var unanswered = 0
    while (unanswered < patience.pings && !process.awaitEnd(patience.pingMs)) {
      // Turns of this loop are counted, not the clock: a machine that was suspended has not been silent.
      if (process.responded) {
        unanswered = 0
        process.responded = false
        process.say(PingLine)
      } else unanswered += 1
      if (unprovenSince.nonEmpty && elapsedMs(since) >= patience.provenMs) proven()
    }
    if (unanswered >= patience.pings) {
      process.kill(s"it had not answered a ping for ${unanswered * patience.pingMs} ms")
      process.awaitEnd(patience.pingMs) // what it said last is heard before another is told what matters
    }
  }

  private def proven(): Unit = {
    unprovenSince = None
    diedServing = false
    pause = 0L
    pipe.synchronized(if (!closing) down = None)
  }

  // One that dies before it serves counts like any other death: what this Python could do once, it cannot do for want of memory, say.
  private def failed(death: String): Unit = {
    val since = unprovenSince.getOrElse(System.nanoTime())
    pause = if (unprovenSince.isEmpty) 0L else math.min(math.max(patience.pauseMs, 2 * pause), patience.longestPauseMs)
    unprovenSince = Some(since)
    if (!isClosing) logWarning(s"$death; starting another${if (pause > 0) s" in $pause ms" else ""}")
    val over = waiting.values().asScala.filter(_.asked >= MaxAsked)
    if (over.nonEmpty) {
      val failure = new CheckpointFailure(CheckpointFailure.Internal, s"$MaxAsked processes of $python -m $module have died over one question; the last time: $death")
      over.foreach(_.answer.completeExceptionally(failure))
    }
    if (!isClosing && elapsedMs(since) >= patience.giveUpMs) {
      giveUp(new CheckpointFailure(CheckpointFailure.Internal,
        s"$python -m $module has not served for ${elapsedMs(since) / 1000} s, and is tried again every ${patience.longestPauseMs} ms; the last time: $death"))
    }
  }

  private def giveUp(failure: CheckpointFailure): Unit = {
    pipe.synchronized { down = Some(failure) }
    waiting.values().asScala.foreach(_.answer.completeExceptionally(failure))
  }

  // --- what it says

  // Under the pipe: (1) a question is registered; (2) a process begins to serve and is asked all that is registered; it is asked once.
  private def put(process: PythonProcess, entry: Waiting): Unit = {
    entry.asked += 1
    process.say(entry.line)
  }

  private def heard(process: PythonProcess, line: String): Unit = {
    val node =
      try Json.parse(line)
      catch {
        case e: Exception =>
          unreadable(process, line, e)
          return
      }
    Option(node.get("re")) match {
      case Some(id) =>
        try answered(process, id.asLong(), node)
        catch { case e: Exception => unreadable(process, line, e) }
      case None if node.optStr("type").contains("log") => relay(node)
      case None =>
        try onMessage(node)
        catch { case e: Exception => logWarning(s"a message of $module could not be handled", e) }
    }
  }

  private def answered(process: PythonProcess, id: Long, node: JsonNode): Unit =
    if (id == Ping) process.responded = true
    else answerTo(process, id).foreach { answer =>
      if (node.get("ok").asBoolean()) answer.complete(node)
      else {
        val error = node.get("error")
        val unread = Unread(error.optStr("object"), Option(error.get("checkpoint")).map(c => (c.long("run"), c.long("epoch"))))
        answer.completeExceptionally(new CheckpointFailure(error.str("kind"), error.str("message"), unread = unread))
      }
    }

  private def answerTo(process: PythonProcess, id: Long): Option[CompletableFuture[JsonNode]] =
    if (id == Hello) pipe.synchronized(greeted).filter(_.process eq process).map(_.hello) else Option(waiting.get(id)).map(_.answer)

  // Whoever waits for it would wait for ever.
  private def unreadable(process: PythonProcess, line: String, error: Exception): Unit = {
    logWarning(s"$module said something that cannot be read: ${line.take(200)}")
    Re.findFirstMatchIn(line.take(100)).flatMap(m => answerTo(process, m.group(1).toLong)).foreach(_.completeExceptionally(
      new CheckpointFailure(CheckpointFailure.Internal, s"an answer of $module of ${line.length} characters cannot be read: ${error.getMessage}", error)))
  }

  private def relay(node: JsonNode): Unit = node.str("level") match {
    case "ERROR" => logError(node.str("message"))
    case "WARN" => logWarning(node.str("message"))
    case _ => logInfo(node.str("message"))
  }
}

object PythonChild {
  type Teller = ObjectNode => Unit

  val Patience: ChildPatience = ChildPatience(
    greetingMs = 60000L, pingMs = 10000L, pings = 6, pauseMs = 500L, longestPauseMs = 30000L, giveUpMs = 120000L, provenMs = 10000L)

  private val Hello = 0L
  private val Ping = 1L
  private val PingLine = Json.line(Json.obj("type" -> "ping", "id" -> Ping))
  private val Re = "^\\s*\\{\"re\":\\s*(\\d+)".r
  /** How many processes may die while they owe the same answer. */
  private val MaxAsked = 6

  /** How often the first process may be killed before it serves. */
  private val MaxKilled = 3

  /** A process was killed before it could serve, so many times now. */
  private final class KilledBeforeServing(message: String, val times: Int) extends CheckpointFailure(CheckpointFailure.Config, message)

  private def elapsedMs(since: Long): Long = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - since)
}
