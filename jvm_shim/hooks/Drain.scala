package org.apache.spark.sql.ckpt

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, MicroBatchExecutionContext}

/**
 * The last epoch of a query that is stopped for good (Flink: stop --drain): no new rows, the watermark at the end of time, so that every
 * window closes and every event-time timer fires. Whatever comes after it is late.
 */
class Drain(query: MicroBatchExecution) extends Logging {

  /** Runs in the query thread, in the place of Spark's own look for new data. */
  def construct(ctx: MicroBatchExecutionContext): Unit = {
    val ends = query.logicalPlan.exists(_.isInstanceOf[EventTimeWatermark])
    val watermarks = QueryHook.watermarkTracker(query)
    // One event of a year beyond 9999 puts it further: it never goes back.
    val end = if (ends) math.max(watermarks.currentWatermark, Drain.EndOfTimeMs) else watermarks.currentWatermark
    val mark = if (ends) Map(Drain.Mark -> "true") else Map.empty[String, String]
    val now = query.triggerClock.getTimeMillis()
    ctx.endOffsets = ctx.startOffsets
    ctx.offsetSeqMetadata = OffsetEntries.at(ctx.offsetSeqMetadata, end, now, mark)
    watermarks.setWatermark(end)
    QueryHook.forgetWatermarks(query)
    if (!query.offsetLog.add(ctx.batchId, OffsetEntries.entry(ctx.endOffsets, OffsetEntries.sources(query), ctx.offsetSeqMetadata))) {
      throw new IllegalStateException(s"epoch ${ctx.batchId} is in the offset log already; is a second query writing to ${query.resolvedCheckpointRoot}?")
    }
    ctx.isCurrentBatchConstructed = true
    logInfo(s"epoch ${ctx.batchId} drains the query")
  }
}

object Drain {
  /** The last millisecond of the year 9999, Spark's last timestamp: its milliseconds fit into microseconds, and an interval may be added. */
  val EndOfTimeMs = 253402300799999L

  /** Among the settings in a drain's offsets: events may bring the watermark to any place, that one too. Spark reads there only names that it knows. */
  private val Mark = "spark.ckpt.drained"

  /** Was this epoch, the newest one, a drain, of a query with a watermark? */
  def wasAt(query: MicroBatchExecution, epoch: Long): Boolean =
    QueryHook.watermarkTracker(query).currentWatermark >= EndOfTimeMs &&
      query.offsetLog.get(epoch).flatMap(OffsetEntries.metadata(_)).exists(_.conf.contains(Mark))
}
