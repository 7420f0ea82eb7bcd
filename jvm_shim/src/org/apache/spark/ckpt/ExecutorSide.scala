package org.apache.spark.ckpt

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, Executors, ScheduledExecutorService, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkConf
import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.NioFileManager
import org.apache.spark.util.Utils

/** This executor's spool and its agent. */
object ExecutorSide extends Logging {
  private val PollMs = 500L
  private val QuietMs = 10L
  private val FarewellMs = 30000L
  private val Damage = Set("MISSING", "DAMAGED")

  @volatile private var context: PluginContext = _
  @volatile private var agent: PythonChild = _
  @volatile private var refused: Option[CheckpointFailure] = None
  @volatile private var spool: File = _
  private var clock: ScheduledExecutorService = _
  private val running = new AtomicInteger()
  // unique id -> the commit line: taken, not yet known to be durable or declined
  private val held = new ConcurrentHashMap[String, ObjectNode]()
  private val barriers = new ConcurrentHashMap[String, Barrier]()

  def start(plugin: PluginContext, python: String): Unit = synchronized {
    context = plugin
    val conf = plugin.conf()
    spool = makeSpool(conf)
    clock = Executors.newSingleThreadScheduledExecutor { body =>
      val t = new Thread(body, "checkpoint-agent-clock")
      t.setDaemon(true)
      t
    }
    refused = None
    running.set(0)
    val child = new PythonChild(
      "spark_ckpt.agent", python,
      Json.obj("type" -> "hello", "conf" -> CheckpointPlugin.options(conf), "executor" -> plugin.executorID(), "spool" -> spool.getPath),
      heard, tell => held.values().asScala.foreach(tell))
    agent = child
    clock.execute { () =>
      try child.start()
      catch {
        case e: CheckpointFailure =>
          logError(s"the checkpoint agent of executor ${plugin.executorID()} does not serve: ${e.getMessage}")
          refused = Some(e)
      }
    }
    clock.scheduleWithFixedDelay(() => report(), PollMs, PollMs, TimeUnit.MILLISECONDS)
  }

  def stop(): Unit = synchronized {
    if (agent != null) {
      clock.shutdownNow()
      agent.close(FarewellMs)
      held.clear()
      barriers.clear()
      agent = null
      context = null
      // Not left to the JVM's end: a Python process may go on with another session in this very JVM.
      try Utils.deleteRecursively(spool)
      catch { case e: java.io.IOException => logWarning(s"the spool $spool could not be removed: ${e.getMessage}") }
    }
  }

  /** Is this path in the spool of this executor? */
  def inSpool(path: String): Boolean = {
    val s = spool
    s != null && path.startsWith(s.getPath + File.separator)
  }

  /** The folder that stands in for a store's folder in the checkpointLocation; it belongs to one run. */
  def folder(barrier: Barrier, operator: Long, partition: Int, store: String): File = {
    val dir = new File(streamFolder(barrier.stream, barrier.run), s"$operator/$partition/$store")
    if (!dir.isDirectory) {
      onDisk(Files.createDirectories(dir.toPath))
      // The run before the last one can have no live store in this executor any more; the last one may still be shutting down.
      val runs = Option(streamFolder(barrier.stream, barrier.run).getParentFile.listFiles()).toSeq.flatten
      runs.filter(_.getName < f"run-${barrier.run - 1}%08d").foreach(NioFileManager.deleteTree)
    }
    dir
  }

  /** What writes to the spool; a full disk is told as what it is. */
  def onDisk[T](write: => T): T =
    try write
    catch {
      case e: IOException =>
        throw new CheckpointFailure("STORAGE",
          s"the state cannot be written to the spool $spool (${e.getMessage}); free some space there, or set spark.ckpt.spool.dir to a local disk that has it", e)
    }

  /**
   * The barrier that the running task belongs to. A job that the user starts from a thread of his own (inside foreachBatch) carries no
   * property: the driver is asked then. None: this checkpointLocation has no stream, so the store is Spark's own affair.
   */
  def barrier(root: String): Option[Barrier] =
    Barrier.ofTask(root).orElse {
      val plugin = context
      if (plugin == null) None
      else Option(plugin.ask(Json.line(Json.obj("type" -> "barrier", "root" -> root))).asInstanceOf[String]).map(Barrier(_))
    }.map { b => barriers.put(root, b); b }

  /** The barrier last seen for a stream by any task of this executor. */
  def lastBarrier(root: String): Option[Barrier] = Option(barriers.get(root))

  /** A store has been committed to the spool: from here on it is the agent's to make it durable. Does not wait. */
  def committed(uid: String, commit: ObjectNode): Unit = {
    serving()
    held.put(uid, commit)
    agent.tell(commit)
  }

  /** Have the files of a version brought into the spool; waits for them. */
  def fetch(request: ObjectNode): JsonNode = {
    serving()
    try agent.request(request)
    catch {
      // The driver has to know before the task's failure reaches it: the run must not be restarted from the same checkpoint.
      case e: CheckpointFailure if Damage(e.kind) =>
        context.ask(Json.line(Json.obj("type" -> "damaged", "root" -> request.str("root"), "object" -> None, "message" -> e.getMessage)))
        throw e
    }
  }

  def taskStarted(): Unit = running.incrementAndGet()

  // Nothing runs here for a moment: no more snapshots are to be expected before those that wait are wanted.
  def taskEnded(): Unit = if (running.decrementAndGet() <= 0 && !held.isEmpty) {
    try clock.schedule((() => if (running.get() <= 0 && agent != null) agent.tell(Json.obj("type" -> "flush"))): Runnable, QuietMs, TimeUnit.MILLISECONDS)
    catch { case _: java.util.concurrent.RejectedExecutionException => } // shutting down
  }

  private def serving(): Unit = {
    if (agent == null) throw new CheckpointFailure(CheckpointFailure.Internal, "this executor is shutting down")
    refused.orElse(agent.failure).foreach(throw _)
  }

  private def streamFolder(stream: String, run: Long): File =
    new File(spool, f"${UUID.nameUUIDFromBytes(stream.getBytes(UTF_8))}/run-$run%08d")

  private def makeSpool(conf: SparkConf): File = conf.getOption("spark.ckpt.spool.dir") match {
    case Some(dir) =>
      try Utils.createTempDir(dir, "spark-ckpt")
      catch {
        case e: IOException =>
          throw new CheckpointFailure(CheckpointFailure.Config,
            s"no folder can be made in spark.ckpt.spool.dir=$dir; give a local folder that exists or can be made, is writable and has free space", e)
      }
    case None => Utils.createTempDir(Utils.getLocalDir(conf), "spark-ckpt")
  }

  private def heard(message: JsonNode): Unit =
    if (message.optStr("type").contains("acks")) {
      message.get("acks").elements().asScala.foreach(ack => held.remove(ack.str("uid")))
      val plugin = context
      if (plugin != null) plugin.send(Json.line(message))
    }

  // Nobody will ever make durable what is held: the driver must not wait for it.
  private def decline(plugin: PluginContext, why: CheckpointFailure): Unit = held.asScala.toSeq.foreach { case (uid, commit) =>
    val names = Seq("run", "epoch", "op", "part", "store", "uid").map(name => name -> commit.get(name))
    val row = Json.obj(names :+ ("executor" -> plugin.executorID()) :+ ("decline" -> why.getMessage): _*)
    plugin.send(Json.line(Json.obj("type" -> "acks", "root" -> commit.str("root"), "acks" -> Seq(row))))
    held.remove(uid)
  }

  // The driver has to know what a live executor still holds, to tell a slow snapshot from a lost one.
  private def report(): Unit =
    try {
      val plugin = context
      if (plugin != null) agent.failure.foreach(decline(plugin, _))
      if (plugin != null && !held.isEmpty) {
        plugin.send(Json.line(Json.obj("type" -> "holding", "executor" -> plugin.executorID(), "held" -> held.keySet().asScala.toSeq)))
      }
    } catch {
      case e: Exception => logDebug("the driver could not be told what is held", e) // an exception would end the schedule
    }
}
