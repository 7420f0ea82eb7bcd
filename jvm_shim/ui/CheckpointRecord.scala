package org.apache.spark.ckpt.ui

import org.apache.spark.ckpt._

/** Flink's `CheckpointStatsStatus`. */
object Status extends Enumeration {
  val InProgress: Value = Value("IN_PROGRESS")
  val Completed: Value = Value("COMPLETED")
  val Failed: Value = Value("FAILED")
}

/** One partition's snapshot. All durations in milliseconds, but `syncUs`. */
final case class SubtaskRecord(
    partition: Int, executor: String, startDelayMs: Long, alignmentMs: Long, syncUs: Long, asyncMs: Long, newBytes: Long, fullBytes: Long,
    endToEndMs: Long)

/** One stateful operator's share of a checkpoint. */
final case class OperatorRecord(
    id: Long, name: String, partitions: Int, newBytes: Long, fullBytes: Long, syncMsMax: Double, asyncMsMax: Double, startDelayMsMax: Double,
    latencyMs: Long, ackedMs: Long, executors: Array[String], packed: PackedRows, distributions: Array[Array[Long]]) {

  /** Slowest first; of very many partitions, the slowest only. */
  def subtasks: Seq[SubtaskRecord] = packed.rows.collect {
    case Array(partition, executor, start, alignment, sync, async, fresh, full) =>
      SubtaskRecord(
        partition.toInt, executors.lift(executor.toInt).getOrElse("?"), start, alignment, sync, async, fresh, full, latencyMs - alignment + async)
  }

  def isSummarised: Boolean = packed.size < partitions

  /** start delay, alignment, sync (µs), async, new bytes, full bytes: over all partitions. */
  def column(index: Int): Distribution =
    distributions.lift(index).map(Distribution.fromRow).getOrElse(Distribution.of(packed.rows.map(_(index + 2))))

  def withoutPartitions: OperatorRecord = copy(packed = PackedRows.Empty)
}

/**
 * What is shown of one checkpoint. Durations count from its trigger. Of one in progress `acked` are the snapshots that are durable so far, and
 * `required` as many as the newest completed one had; `epochEnded` is whether all tasks have made theirs. `late`: its epoch had ended
 * before it became a checkpoint.
 */
final case class CheckpointRecord(
    root: String, run: Long, epoch: Long, status: Status.Value, triggeredMs: Long, acked: Int = 0, required: Int = 0, durationMs: Long = 0,
    newBytes: Long = 0, fullBytes: Long = 0, metadataBytes: Long = 0, planMs: Long = 0, finaliseMs: Long = 0, sinkMs: Long = 0,
    path: String = "", savepoint: String = "", reason: String = "", message: String = "", lag: DurabilityLag = DurabilityLag(),
    late: Boolean = false, epochEnded: Boolean = true, operators: Seq[OperatorRecord] = Nil) {

  def key: (Long, Long) = (run, epoch)

  /** How it is named in an address: epochs may come again in a later run. */
  def id: String = s"$run-$epoch"

  def isSavepoint: Boolean = savepoint.nonEmpty

  /** Given up without a fault: a newer one was faster, or the query stopped. Flink counts these as failed too. */
  def isGivenUp: Boolean = status == Status.Failed && (reason == CheckpointFeed.Subsumed || reason == CheckpointFeed.Stopped)

  /** When the last snapshot was durable; None: none is. What a late checkpoint's partitions tell leaves out how long it was not wanted. */
  def latestAckMs: Option[Long] =
    if (late && status == Status.Completed) Some(triggeredMs + durationMs - finaliseMs)
    else operators.map(_.ackedMs).maxOption.map(triggeredMs + planMs + _)

  def byteCount: Int = operators.map(_.packed.byteCount).sum

  def withoutPartitions: CheckpointRecord = copy(operators = operators.map(_.withoutPartitions))
}

final case class RestoredRecord(
    run: Long, epoch: Long, triggeredMs: Long, restoredMs: Long, path: String, from: String, fromSavepoint: Boolean, fullBytes: Long) {
  /** The path that a person knows. */
  def origin: String = if (from.nonEmpty) from else path
}

/** Of one epoch: from its barrier's trigger to its operators' commits (id -> ms) and to the end of its sink. */
final case class LatencyRecord(run: Long, epoch: Long, timeMs: Long, sinkMs: Long, operators: Map[Long, Long]) {
  /** Counted from so long after the trigger. */
  def after(ms: Long): LatencyRecord =
    copy(sinkMs = math.max(0L, sinkMs - ms), operators = operators.map { case (id, latency) => id -> math.max(0L, latency - ms) })
}

/** How long rows waited between two batches in real time: from the end of this epoch's until the next one took rows. */
final case class StandstillRecord(epoch: Long, timeMs: Long, ms: Long)

/** Of one epoch: how far its newest event, and the watermark, were behind the clock; None where the query has no event time. */
final case class EventTimeRecord(epoch: Long, timeMs: Long, newestEventMs: Option[Long], watermarkMs: Option[Long])

/** How far durable state was behind when this epoch had ended. */
final case class LagRecord(epoch: Long, timeMs: Long, lag: DurabilityLag)

object CheckpointRecord {
  def triggered(e: CheckpointTriggered): CheckpointRecord = CheckpointRecord(e.root, e.run, e.epoch, Status.InProgress, e.timeMs, late = e.late)

  def completed(e: CheckpointCompleted): CheckpointRecord = CheckpointRecord(
    e.root, e.run, e.epoch, Status.Completed, e.timeMs, e.acked, e.required, e.durationMs, e.newBytes, e.fullBytes, e.metadataBytes, e.planMs,
    e.finaliseMs, e.sinkMs, text(e.path), lag = lag(e.lag), late = e.late, operators = operators(e.operators, e.executors))

  def aborted(e: CheckpointAborted): CheckpointRecord = CheckpointRecord(
    e.root, e.run, e.epoch, Status.Failed, e.timeMs, e.acked, e.required, e.durationMs, e.newBytes, reason = text(e.reason),
    message = text(e.message), lag = lag(e.lag), late = e.late, operators = operators(e.operators, e.executors))

  def restored(e: CheckpointRestored): RestoredRecord =
    RestoredRecord(e.run, e.epoch, e.timeMs, e.restoredMs, text(e.path), text(e.from), e.fromSavepoint, e.fullBytes)

  /** Of a checkpoint that is not kept here any more. */
  def savepoint(e: CheckpointSavepoint): CheckpointRecord =
    CheckpointRecord(e.root, e.run, e.epoch, Status.Completed, e.timeMs, fullBytes = e.fullBytes)

  // What an event log of another release leaves out is null here.
  private def text(value: String): String = Option(value).getOrElse("")

  private def lag(value: DurabilityLag): DurabilityLag = Option(value).getOrElse(DurabilityLag())

  private def operators(of: Array[CheckpointOperator], executors: Array[String]): Seq[OperatorRecord] =
    Option(of).toSeq.flatten.map(o => OperatorRecord(
      o.id, Option(o.name).getOrElse(s"operator ${o.id}").intern(), o.partitions, o.newBytes, o.fullBytes, o.syncMsMax, o.asyncMsMax, o.startDelayMsMax,
      o.commitMsMax.round, o.ackedMsMax.round, Option(executors).getOrElse(Array.empty[String]).map(_.intern()), PackedRows(o.subtasks),
      Option(o.distributions).getOrElse(Array.empty)))
}
