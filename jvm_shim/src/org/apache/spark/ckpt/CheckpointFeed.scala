package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkContext
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/**
 * Makes Spark events of what the coordinator announces, with what only the driver knows, and the log's line of each. Everything that shows
 * checkpoints lives off these events. Nothing here may fail a query or make it wait: each entry catches what goes wrong in it.
 */
object CheckpointFeed extends Logging {
  private val EpochsKept = 1000

  /** What the driver knows of one stream's current run. Guarded by itself. */
  private final class Stream {
    var counts = CheckpointCounts()
    var names: Map[Long, String] = Map.empty
    var namesOf: () => Map[Long, String] = () => Map.empty
    /** epoch -> when its barrier was sent; epoch -> how long its sink took from there. */
    val triggeredMs = new Recent
    val sinkMs = new Recent
  }

  private final class Recent extends java.util.LinkedHashMap[Long, Long] {
    override def removeEldestEntry(eldest: java.util.Map.Entry[Long, Long]): Boolean = size() > EpochsKept
  }

  private val streams = new ConcurrentHashMap[String, Stream]()
  @volatile private var options = Map.empty[String, String]

  /** A new application: `hello` was answered. */
  def begin(answer: JsonNode): Unit = {
    streams.clear()
    StorageCounters.clear()
    options = Option(answer.get("options")).toSeq.flatMap(_.properties().asScala).map(e => e.getKey -> e.getValue.asText()).toMap
  }

  /** A run begins. `namesOf` tells the operators' names (id -> name) once the query has executed an epoch. */
  def started(
      sc: SparkContext, barrier: Barrier, queryId: String, runId: String, name: String, namesOf: () => Map[Long, String]): Unit =
    guarded("a run's begin") {
      val stream = streamOf(barrier.root)
      stream.synchronized {
        stream.names = Map.empty
        stream.namesOf = namesOf
        stream.triggeredMs.clear()
        stream.sinkMs.clear()
      }
      sc.listenerBus.post(CheckpointRunStarted(barrier.root, barrier.run, barrier.epoch, System.currentTimeMillis(), queryId, runId, name, options))
    }

  /** The epoch's barrier has been made; its tasks may start. */
  def barrier(barrier: Barrier): Unit = guarded("a barrier") {
    val stream = streamOf(barrier.root)
    stream.synchronized(stream.triggeredMs.put(barrier.epoch, barrier.timeMs))
  }

  /** Tasks and sink of the epoch are done. */
  def sunk(root: String, epoch: Long): Unit = guarded("an epoch's end") {
    val stream = streamOf(root)
    stream.synchronized {
      Option(stream.triggeredMs.get(epoch)).foreach(from => stream.sinkMs.put(epoch, math.max(0L, System.currentTimeMillis() - from)))
    }
  }

  def announced(sc: SparkContext, node: JsonNode): Unit = guarded("an announcement of the coordinator") {
    val stream = streamOf(node.str("root"))
    StorageCounters.take(node.str("root"), node)
    val event = stream.synchronized {
      count(stream, node.str("event"))
      val epoch = node.long("epoch")
      if (stream.names.isEmpty && node.has("operators")) stream.names = stream.namesOf()
      CheckpointEvents.parse(node, new CheckpointEvents.Known(
        stream.counts, stream.names, Option(stream.sinkMs.get(epoch)).getOrElse(0L), Array.empty, System.currentTimeMillis()))
    }
    event.foreach { e =>
      log(e)
      sc.listenerBus.post(e)
    }
  }

  private def count(stream: Stream, event: String): Unit = stream.counts = event match {
    case "TRIGGERED" => stream.counts.copy(triggered = stream.counts.triggered + 1)
    case "COMPLETED" => stream.counts.copy(completed = stream.counts.completed + 1)
    case "ABORTED" => stream.counts.copy(failed = stream.counts.failed + 1)
    case "RESTORED" => stream.counts.copy(restored = stream.counts.restored + 1)
    case _ => stream.counts
  }

  private def log(event: CheckpointEvent): Unit = event match {
    case e: CheckpointCompleted =>
      val behind = if (e.lag.epochs > 0) s", ${e.lag.epochs} epochs behind" else ""
      logInfo(s"checkpoint ${e.epoch} of run ${e.run} completed: acks ${e.acked}/${e.required}, ${e.newBytes} new bytes of ${e.fullBytes}, " +
        s"${e.durationMs} ms$behind, ${e.path}")
    case e: CheckpointAborted =>
      logWarning(s"checkpoint ${e.epoch} of run ${e.run} of ${e.root} was aborted (${e.reason}) after acks ${e.acked}/${e.required}: ${e.message}")
    case e: CheckpointRestored => logInfo(s"${e.root} goes on from checkpoint ${e.epoch} of run ${e.run}, ${e.path}")
    case _ =>
  }

  private def streamOf(root: String): Stream = streams.computeIfAbsent(root, _ => new Stream)

  private def guarded(what: String)(body: => Unit): Unit =
    try body
    catch { case e: Exception => logWarning(s"$what could not be told to listeners", e) }
}
