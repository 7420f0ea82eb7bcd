package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
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
  /** Executors report every half second: an epoch that ended so long ago has all its commits. */
  private val ReportedMs = 2000L

  /** Of one epoch: when its barrier was sent, and from there (ms) its sink's end and its operators' last commits. */
  private final class Epoch(val timeMs: Long, val checkpoint: Boolean) {
    var sinkMs = -1L
    var told = false
    val operators = mutable.Map.empty[Long, Long]

    def latency(number: Long): EpochLatency =
      EpochLatency(number, timeMs, sinkMs, operators.toArray.sorted.map { case (id, ms) => Array(id, ms) })
  }

  /** What the driver knows of one stream's current run. Guarded by itself. */
  private final class Stream {
    var counts = CheckpointCounts()
    var names: Map[Long, String] = Map.empty
    var namesOf: () => Map[Long, String] = () => Map.empty
    val epochs = mutable.LinkedHashMap.empty[Long, Epoch]
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
        stream.epochs.clear()
      }
      sc.listenerBus.post(CheckpointRunStarted(barrier.root, barrier.run, barrier.epoch, System.currentTimeMillis(), queryId, runId, name, options))
    }

  /** The epoch's barrier has been made; its tasks may start. */
  def barrier(barrier: Barrier): Unit = guarded("a barrier") {
    val stream = streamOf(barrier.root)
    stream.synchronized {
      stream.epochs.remove(barrier.epoch)
      stream.epochs.put(barrier.epoch, new Epoch(barrier.timeMs, barrier.checkpoint))
      while (stream.epochs.size > EpochsKept) stream.epochs.remove(stream.epochs.head._1)
    }
  }

  /** Tasks and sink of the epoch are done. */
  def sunk(root: String, epoch: Long): Unit = guarded("an epoch's end") {
    val stream = streamOf(root)
    stream.synchronized {
      stream.epochs.get(epoch).foreach(e => e.sinkMs = math.max(0L, System.currentTimeMillis() - e.timeMs))
    }
  }

  /** What an executor's `CommitLatencies` has gathered. */
  def committed(rows: JsonNode): Unit = guarded("latencies of an executor") {
    Option(rows).toSeq.flatMap(_.elements().asScala).foreach { row =>
      val stream = streamOf(row.str("root"))
      stream.synchronized(stream.epochs.get(row.long("epoch")).foreach { e =>
        e.operators.updateWith(row.long("op"))(before => Some(math.max(before.getOrElse(0L), row.long("ms"))))
      })
    }
  }

  def announced(sc: SparkContext, node: JsonNode): Unit = guarded("an announcement of the coordinator") {
    val stream = streamOf(node.str("root"))
    StorageCounters.take(node.str("root"), node)
    val event = stream.synchronized {
      count(stream, node.str("event"))
      val epoch = node.long("epoch")
      if (stream.names.isEmpty && node.has("operators")) stream.names = stream.namesOf()
      val mine = stream.epochs.get(epoch)
      mine.foreach(_.told = true)
      val others = if (node.str("event") == "COMPLETED") untold(stream) else Array.empty[EpochLatency]
      CheckpointEvents.parse(node, new CheckpointEvents.Known(
        stream.counts, stream.names, mine.map(_.sinkMs).getOrElse(0L), others, System.currentTimeMillis()))
    }
    event.foreach { e =>
      log(e)
      sc.listenerBus.post(e)
    }
  }

  /** Epochs that no checkpoint tells of: they go into the next event, so that the event log has them too. */
  private def untold(stream: Stream): Array[EpochLatency] = {
    val before = System.currentTimeMillis() - ReportedMs
    val found = stream.epochs.filter { case (_, e) => !e.checkpoint && !e.told && e.sinkMs >= 0 && e.timeMs + e.sinkMs < before }
    found.values.foreach(_.told = true)
    found.map { case (number, e) => e.latency(number) }.toArray
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
    case e: CheckpointSavepoint => logInfo(s"a savepoint of checkpoint ${e.epoch} of run ${e.run} is stored at ${e.path}")
    case _ =>
  }

  private def streamOf(root: String): Stream = streams.computeIfAbsent(root, _ => new Stream)

  private def guarded(what: String)(body: => Unit): Unit =
    try body
    catch { case e: Exception => logWarning(s"$what could not be told to listeners", e) }
}
