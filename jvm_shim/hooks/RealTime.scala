package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.{DriverSide, DriverStream}
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, MicroBatchExecutionContext, StreamExecution}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.streaming.ProcessingTimeTrigger
import org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.Trigger

/**
 * A query with a real-time trigger. Its batches run as they are, and tell what they have read when they end. What was planned as micro-batches
 * runs again as such first, in a run of its own: for so long the query has another trigger.
 */
class RealTime(query: MicroBatchExecution, stream: DriverStream) {
  private val trigger: Trigger = query.trigger
  val isAsked: Boolean = RealTime.isTrigger(trigger)

  /** How long a batch of the run that has begun takes rows; 0: it is not in real time. */
  def batchMs: Long = trigger match {
    case of: Product if isAsked && stream.realTime => of.productElement(0).asInstanceOf[Long]
    case _ => 0L
  }

  /** The query is about to make its plan, for the run that has just begun. */
  def prepare(): Unit = if (isAsked) {
    val conf = QuerySession.of(query).conf
    // Spark does so itself where it sees the trigger when the query starts.
    if (!conf.contains(SQLConf.SORT_BEFORE_REPARTITION.key)) conf.set(SQLConf.SORT_BEFORE_REPARTITION.key, "false")
    QueryHook.setTrigger(query, if (stream.realTime) trigger else ProcessingTimeTrigger(0))
  }

  /** All that was planned has run: what follows is a run in real time. */
  def isDue(ctx: MicroBatchExecutionContext): Boolean = isAsked && !stream.realTime && !ctx.isCurrentBatchConstructed

  /** A batch is about to begin: its tasks get their barrier. Where a source begins lies below `sources/` then, and is told with it. */
  def begin(ctx: MicroBatchExecutionContext): Unit = if (stream.realTime && !ctx.isCurrentBatchConstructed) {
    QueryHook.sources(query).foreach {
      case source: MicroBatchStream if !ctx.startOffsets.contains(source) => source.initialOffset()
      case _ =>
    }
    DriverSide.setBarrier(stream.begin(ctx.batchId))
  }
}

object RealTime {
  val Provider: String = SQLConf.STATE_STORE_PROVIDER_CLASS.key
  val Ours: String = classOf[BarrierStateStoreProvider].getName

  // By name, since Spark 4.0 does not have the class.
  def isTrigger(trigger: Trigger): Boolean = trigger.getClass.getSimpleName == "RealTimeTrigger"

  /**
   * The query's own session gets our provider once Spark has accepted the query: the real-time trigger demands that the session which starts
   * it names Spark's own.
   */
  def giveProvider(query: StreamExecution): Unit =
    QuerySession.of(query).conf.set(Provider, Ours)
}
