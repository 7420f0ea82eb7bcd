package org.apache.spark.ckpt

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.annotation.JsonIgnoreProperties
import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.scheduler.SparkListenerEvent

/**
 * What any `SparkListener` gets in `onOtherEvent`. Times are milliseconds since 1970, sizes bytes, durations milliseconds.
 * What a checkpoint comes to (completed or aborted) is one event in the event log and tells everything by itself, so that a log of
 * which the beginning was compacted still shows what is left.
 */
sealed trait CheckpointEvent extends SparkListenerEvent {
  def root: String
  def run: Long
  def epoch: Long
  /** When the checkpoint was triggered, or the run began. */
  def timeMs: Long
}

/** How many checkpoints of a stream this application has seen, this event's included. */
case class CheckpointCounts(triggered: Long = 0, completed: Long = 0, failed: Long = 0, restored: Long = 0)

/** How far durable state is behind the newest finished epoch. Nothing, where every epoch is a checkpoint. */
case class DurabilityLag(epochs: Long = 0, ms: Long = 0, bytes: Long = 0)

/**
 * One stateful operator's share of a checkpoint.
 *
 * @param commitMsMax from the barrier's trigger to the commit of the operator's last partition: the operator's latency
 * @param ackedMsMax from the barrier's trigger until its last snapshot was durable
 * @param subtasks a row for each partition, slowest first: partition, index of its executor, start delay, alignment, synchronous part in
 *                 microseconds, asynchronous part, new bytes, full bytes. Above 1,000 partitions the slowest only
 * @param distributions then, of those six numbers over all partitions: minimum, average, maximum, p50, p90, p95, p99, p99.9
 */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointOperator(
    id: Long, name: String, partitions: Int, snapshots: Int, newBytes: Long, fullBytes: Long, syncMsMax: Double, asyncMsMax: Double,
    startDelayMsMax: Double, commitMsMax: Double, ackedMsMax: Double, subtasks: Array[Array[Long]], distributions: Array[Array[Long]])

/** Latencies of one epoch, from its barrier's trigger: of each operator (id -> its last partition's commit), and of the sink. */
@JsonIgnoreProperties(ignoreUnknown = true)
case class EpochLatency(epoch: Long, timeMs: Long, sinkMs: Long, operators: Array[Array[Long]])

/**
 * A run has begun: which query it is, whether its checkpoints complete in the background, and the options that hold. `batchMs`: how long a
 * batch of a run in real time takes rows; 0 of all others.
 */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointRunStarted(
    root: String, run: Long, epoch: Long, timeMs: Long, queryId: String, runId: String, name: String, background: Boolean,
    options: Map[String, String], batchMs: Long)
  extends CheckpointEvent

/**
 * A checkpoint has begun: the epoch's plan is durable and its tasks are about to run (Flink: triggered), or, `late`, the epoch had ended
 * before it became a checkpoint. Not in the event log.
 */
case class CheckpointTriggered(root: String, run: Long, epoch: Long, timeMs: Long, late: Boolean, counts: CheckpointCounts)
  extends CheckpointEvent {
  override protected[spark] def logEvent: Boolean = false
}

/**
 * All snapshots are acknowledged and `_metadata` is stored below `path`.
 *
 * @param sinkMs from the barrier's trigger until the sink was done
 * @param latencies of the epochs since the last such event that were no checkpoints themselves
 */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointCompleted(
    root: String, run: Long, epoch: Long, timeMs: Long, path: String, acked: Int, required: Int, newBytes: Long, fullBytes: Long,
    metadataBytes: Long, durationMs: Long, planMs: Long, finaliseMs: Long, sinkMs: Long, syncMsMax: Double, asyncMsMax: Double,
    lag: DurabilityLag, late: Boolean, counts: CheckpointCounts, executors: Array[String], operators: Array[CheckpointOperator],
    latencies: Array[EpochLatency]) extends CheckpointEvent

/** The checkpoint will never complete; `reason` is one of the protocol's abort reasons. */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointAborted(
    root: String, run: Long, epoch: Long, timeMs: Long, reason: String, message: String, acked: Int, required: Int, newBytes: Long,
    durationMs: Long, lag: DurabilityLag, late: Boolean, counts: CheckpointCounts, executors: Array[String],
    operators: Array[CheckpointOperator]) extends CheckpointEvent

/**
 * A run has begun from a completed checkpoint, the one at `path`, which was triggered at `timeMs`. Where it is the copy of a savepoint, or of
 * another stream's checkpoint: `from` which.
 */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointRestored(
    root: String, run: Long, epoch: Long, timeMs: Long, restoredMs: Long, path: String, from: String, fromSavepoint: Boolean, fullBytes: Long,
    counts: CheckpointCounts)
  extends CheckpointEvent

/** A self-contained copy of a completed checkpoint, which somebody asked for, is stored at `path`. */
@JsonIgnoreProperties(ignoreUnknown = true)
case class CheckpointSavepoint(root: String, run: Long, epoch: Long, timeMs: Long, path: String, fullBytes: Long) extends CheckpointEvent

/** Reads what the coordinator announces (docs/pipes.md). What only the driver knows is given beside it. */
object CheckpointEvents {
  final class Known(
      val counts: CheckpointCounts, val names: Map[Long, String], val sinkMs: Long, val late: Boolean, val latencies: Array[EpochLatency],
      val nowMs: Long)

  def parse(node: JsonNode, known: Known): Option[CheckpointEvent] = {
    val root = node.str("root")
    val (run, epoch) = (node.long("run"), node.long("epoch"))
    val timeMs = node.long("time_ms")
    def number(name: String): Long = node.optLong(name).getOrElse(0L)
    def millis(name: String): Double = Option(node.get(name)).map(_.asDouble()).getOrElse(0.0)
    def text(name: String): String = node.optStr(name).getOrElse("")
    def lag = DurabilityLag(number("lag_epochs"), number("lag_ms"), number("lag_bytes"))
    node.str("event") match {
      case "TRIGGERED" => Some(CheckpointTriggered(root, run, epoch, timeMs, known.late, known.counts))
      case "COMPLETED" => Some(CheckpointCompleted(
        root, run, epoch, timeMs, text("path"), number("acked").toInt, number("required").toInt, number("new_bytes"), number("full_bytes"),
        number("metadata_bytes"), number("duration_ms"), number("plan_ms"), number("finalise_ms"), known.sinkMs, millis("sync_ms_max"),
        millis("async_ms_max"), lag, known.late, known.counts, executors(node), operators(node, known.names), known.latencies))
      case "ABORTED" => Some(CheckpointAborted(
        root, run, epoch, timeMs, text("reason"), text("message"), number("acked").toInt, number("required").toInt, number("new_bytes"),
        number("duration_ms"), lag, known.late, known.counts, executors(node), operators(node, known.names)))
      case "RESTORED" =>
        Some(CheckpointRestored(root, run, epoch, timeMs, known.nowMs, text("path"), text("from"),
          Option(node.get("from_savepoint")).exists(_.asBoolean()), number("full_bytes"), known.counts))
      case "SAVEPOINT" => Some(CheckpointSavepoint(root, run, epoch, timeMs, text("savepoint"), number("full_bytes")))
      case _ => None
    }
  }

  private def executors(node: JsonNode): Array[String] = elements(node.get("executors")).map(_.asText()).toArray

  private def operators(node: JsonNode, names: Map[Long, String]): Array[CheckpointOperator] =
    Option(node.get("operators")).toSeq.flatMap(_.properties().asScala).map { entry =>
      val (id, numbers) = (entry.getKey, entry.getValue)
      def number(name: String): Double = Option(numbers.get(name)).map(_.asDouble()).getOrElse(0.0)
      CheckpointOperator(
        id.toLong, names.getOrElse(id.toLong, s"operator $id"), number("partitions").toInt, number("snapshots").toInt, number("new_bytes").toLong,
        number("full_bytes").toLong, number("sync_ms_max"), number("async_ms_max"), number("start_delay_ms_max"), number("commit_ms_max"),
        number("acked_ms_max"), rows(node.get("subtasks"), id), rows(node.get("distributions"), id))
    }.sortBy(_.id).toArray

  private def rows(of: JsonNode, operator: String): Array[Array[Long]] =
    Option(of).flatMap(o => Option(o.get(operator))).toSeq.flatMap(elements).map(row => elements(row).map(_.asLong()).toArray).toArray

  private def elements(node: JsonNode): Seq[JsonNode] = Option(node).toSeq.flatMap(_.elements().asScala)
}
