package org.apache.spark.sql.ckpt

import scala.util.Try

import org.apache.spark.ckpt.{CheckpointFailure, CheckpointPlugin, DriverSide}
import org.apache.spark.sql.ckpt.SparkStreaming.{AsyncProgressTrackingMicroBatchExecution, MicroBatchExecution, MicroBatchExecutionContext, StreamExecution, TriggerExecutor}
import org.apache.spark.sql.execution.streaming.continuous.ContinuousExecution
import org.apache.spark.sql.internal.SQLConf

/** The queries that cannot have checkpoints, and the settings that a session changed after the plugin had made them. */
object Refusals {
  private val FileManager = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key
  private val Lists = Set("spark.sql.streaming.streamingQueryListeners") // static: no session can change them

  /** The query as one that is run epoch by epoch; throws what keeps it from being one. */
  def microBatches(query: StreamExecution): MicroBatchExecution = query match {
    case _: AsyncProgressTrackingMicroBatchExecution =>
      refuse("asynchronous progress tracking writes an epoch's offsets after it has run; remove the option asyncProgressTrackingEnabled")
    case _: ContinuousExecution =>
      refuse("the continuous trigger has no micro-batches to checkpoint; use a processing time trigger or AvailableNow")
    case batches: MicroBatchExecution =>
      DriverSide.settings.keys.filter(k => k.startsWith("spark.sql.streaming.") && !Lists(k)).foreach(k => contradiction(query, k).foreach(throw _))
      RealTime.giveProvider(query)
      batches
    case other => refuse(s"a query of kind ${other.getClass.getSimpleName} is not known")
  }

  /** With another file manager nothing of the query is seen; all that can be done then is to make its first trigger fail. */
  def unseen(query: StreamExecution): Boolean = {
    val contradicting = contradiction(query, FileManager)
    (query, contradicting) match {
      case (batches: MicroBatchExecution, Some(failure)) =>
        Try(QuerySession.of(query).withActive(batches.logicalPlan)) // this sets the trigger executor
        batches.triggerExecutor = new TriggerExecutor {
          override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = ()
          override def execute(runBatch: MicroBatchExecutionContext => Boolean): Unit = throw failure
        }
      case _ =>
    }
    contradicting.isDefined
  }

  private def contradiction(query: StreamExecution, key: String): Option[CheckpointFailure] = {
    val needed = DriverSide.settings.getOrElse(key, "")
    // what holds: Spark's own default again, where the session has unset it
    val found = Try(QuerySession.of(query).sessionState.conf.getConfString(key)).getOrElse("(unset)")
    // A query that is begun inside of foreachBatch has the session of the outer one, which has our provider already.
    if (needed.isEmpty || found.trim.equalsIgnoreCase(needed) || (key == RealTime.Provider && found == RealTime.Ours)) None
    else Some(new CheckpointFailure(CheckpointFailure.Config,
      s"$key=$found in this session contradicts spark.plugins=${classOf[CheckpointPlugin].getName}, which has set it to $needed; leave $key alone"))
  }

  private def refuse(why: String): Nothing = throw new CheckpointFailure(CheckpointFailure.Config, s"spark-ckpt cannot run this query: $why")
}
