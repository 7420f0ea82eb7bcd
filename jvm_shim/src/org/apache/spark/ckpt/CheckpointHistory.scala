package org.apache.spark.ckpt

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}

/** What the tab shows of one checkpoint. */
final case class CheckpointRecord(
    root: String, run: Long, epoch: Long, status: String, triggeredMs: Long, completed: Option[CheckpointCompleted], note: String)

/** The newest checkpoints of all streams, kept from Spark's own events. Memory is bounded; a fault here never reaches the query. */
class CheckpointHistory extends SparkListener with Logging {
  import CheckpointHistory._

  private val records = mutable.LinkedHashMap.empty[(String, Long, Long), CheckpointRecord]
  private val totals = mutable.Map.empty[(String, String), Long].withDefaultValue(0L)

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case e: CheckpointEvent =>
      try keep(e)
      catch { case error: Exception => logWarning("a checkpoint event could not be kept for the Checkpoints tab", error) }
    case _ =>
  }

  /** Newest first. */
  def newest: Seq[CheckpointRecord] = synchronized(records.values.toSeq.reverse)

  /** How many checkpoints of a stream have reached a status. */
  def count(root: String, status: String): Long = synchronized(totals((root, status)))

  private def keep(event: CheckpointEvent): Unit = synchronized {
    val key = (event.root, event.run, event.epoch)
    val triggered = records.get(key).map(_.triggeredMs).getOrElse(event.timeMs)
    val record = event match {
      case e: CheckpointTriggered => CheckpointRecord(e.root, e.run, e.epoch, InProgress, e.timeMs, None, "")
      case e: CheckpointCompleted => CheckpointRecord(e.root, e.run, e.epoch, Completed, triggered, Some(e), e.path)
      case e: CheckpointAborted => CheckpointRecord(e.root, e.run, e.epoch, Failed, triggered, None, s"${e.reason}: ${e.message}")
      case e: CheckpointRestored => CheckpointRecord(e.root, e.run, e.epoch, Restored, e.timeMs, None, e.path)
    }
    val place = if (record.status == Restored) (s"${event.root}#restore", event.run, event.epoch) else key
    records.remove(place)
    records.put(place, record)
    totals((event.root, record.status)) += 1
    while (records.size > Kept) records.remove(records.head._1)
  }
}

object CheckpointHistory {
  val InProgress = "IN PROGRESS"
  val Completed = "COMPLETED"
  val Failed = "FAILED"
  val Restored = "RESTORED"

  private val Kept = 1000
}
