package org.apache.spark.ckpt

import java.io.{BufferedWriter, IOException, OutputStreamWriter}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletableFuture, TimeoutException, TimeUnit}

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * One Python process, from its start to its end. What is said to it is written by a thread of its own: nobody who says something waits
 * until it is read, and nobody who ends the process either.
 *
 * @param heard its lines, on the reading thread
 */
final class PythonProcess(module: String, python: String, heard: (PythonProcess, String) => Unit) extends Logging {
  import PythonProcess._

  private val process = launch()
  private val lines = mutable.ArrayDeque.empty[String]
  private var chars = 0L
  private var most = MaxChars
  private var urgent = false
  private var finishing = false
  /** With its exit status, once it has gone. */
  val ended = new CompletableFuture[Integer]()
  @volatile private var lastTrace = ""
  @volatile private var killedFor = ""
  /** Has it answered what it was asked last by the watchdog? */
  @volatile var responded = true

  private val errors = thread(s"$module-stderr")(read(new Lines(process.getErrorStream, MaxTrace, cut = true)) { line =>
    logWarning(s"$module: $line")
    if (line.trim.nonEmpty) lastTrace = line.trim
  })
  thread(s"$module-stdout") {
    // Of a line that is too long only the beginning is kept: enough to tell whose answer it was.
    read(new Lines(process.getInputStream, Json.MaxLine, cut = false))(heard(this, _))
    val status = process.waitFor()
    errors.join(TraceMs)
    ended.complete(status)
  }
  thread(s"$module-stdin")(write())

  /** What is not urgent may wait for company, which costs both processes fewer awakenings; whatever is urgent takes it along. */
  def say(line: String, now: Boolean = true): Unit = lines.synchronized {
    // One that reads so slowly would be behind for ever; its replacement is told only what still matters.
    if (chars > most) kill(s"it had not read ${chars >> 20} MiB of what it was told")
    else if (!finishing) {
      lines += line
      chars += line.length
      urgent ||= now
      lines.notifyAll()
    }
  }

  /** What it has to hear before all else, however much that is. */
  def sayFirst(all: Iterable[String]): Unit = lines.synchronized {
    lines ++= all
    val more = all.iterator.map(_.length.toLong).sum
    chars += more
    most += more
    urgent = true
    lines.notifyAll()
  }

  /** Of all that is said from now on nothing counts: after what was said before comes the end of its stdin. */
  def finish(): Unit = lines.synchronized {
    finishing = true
    urgent = true
    lines.notifyAll()
  }

  def kill(why: String): Unit = {
    if (killedFor.isEmpty) killedFor = why
    process.destroyForcibly()
  }

  /** False: it still lives after so many milliseconds. */
  def awaitEnd(ms: Long): Boolean =
    try {
      ended.get(ms, TimeUnit.MILLISECONDS)
      true
    } catch { case _: TimeoutException => false }

  /** How it ended, and what it said last on stderr. One that was killed may not be quite dead. */
  def end: ProcessEnd = ProcessEnd(Option(ended.getNow(null)).map(_.intValue), killedFor, lastTrace)

  private def launch(): Process = {
    val builder = new ProcessBuilder(python, "-m", module)
    builder.environment().put("PYTHONSAFEPATH", "1") // no module is taken from the folder that the application happens to run in
    builder.environment().putIfAbsent("MALLOC_ARENA_MAX", "2") // each of its many threads would keep a heap of its own
    try builder.start()
    catch {
      case e: IOException =>
        throw new CheckpointFailure(CheckpointFailure.Config,
          s"the Python interpreter '$python' cannot be started (${e.getMessage}); set spark.ckpt.python to one that has the package spark-ckpt", e)
    }
  }

  private def read(lines: Lines)(each: String => Unit): Unit =
    try Iterator.continually(lines.next()).takeWhile(_.nonEmpty).flatten.foreach(handled(_)(each))
    catch { case _: IOException => } // the same as end of file

  private def handled(line: String)(each: String => Unit): Unit =
    try each(line)
    catch { case NonFatal(e) => logWarning(s"a line of $module could not be handled: ${line.take(200)}", e) }

  private def write(): Unit = {
    val writer = new BufferedWriter(new OutputStreamWriter(process.getOutputStream, UTF_8))
    try {
      var taken = take()
      while (taken.nonEmpty) {
        taken.foreach { line =>
          writer.write(line)
          writer.write('\n')
        }
        writer.flush()
        lines.synchronized(chars -= taken.iterator.map(_.length.toLong).sum)
        taken = take()
      }
      writer.close()
    } catch {
      case _: IOException => finish() // it is dead or dying, which its reader notices
    }
  }

  /** All that waits; nothing: nothing more will come. */
  private def take(): Seq[String] = lines.synchronized {
    while (lines.isEmpty && !finishing && !ended.isDone) lines.wait(LookMs)
    if (lines.nonEmpty && !urgent) lines.wait(LingerMs)
    urgent = finishing
    lines.removeAll()
  }

  private def thread(name: String)(body: => Unit): Thread = {
    val t = new Thread(() => body, name)
    t.setDaemon(true)
    try t.start()
    catch {
      case e: Throwable => // no thread is to be had: nobody would know this process, and it would take the place of one for ever
        process.destroyForcibly()
        throw e
    }
    t
  }
}

/** `killed`: why this JVM has ended it, or empty. */
final case class ProcessEnd(status: Option[Int], killed: String, trace: String) {
  def how: String = if (killed.nonEmpty) s"was ended: $killed" else s"ended with status ${status.mkString}"
  /** Somebody else ended it: that says nothing about whether it fits. */
  def bySignal: Boolean = killed.isEmpty && status.exists(_ > 128)
  def why: String = if (trace.isEmpty) "" else s": $trace"
}

object PythonProcess {
  private val LingerMs = 50L
  private val LookMs = 1000L
  private val TraceMs = 1000L
  /** Bytes of a line on stderr. */
  private val MaxTrace = 1 << 16
  /** What waits to be read by a process: more than any one epoch says, which is 140 MB with 100,000 partitions of eight files each. */
  private val MaxChars = 256L << 20
}
