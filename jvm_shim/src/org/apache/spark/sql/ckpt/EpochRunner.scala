package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.CheckpointFailure
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext, MultiBatchExecutor, TriggerExecutor}

/**
 * Runs an epoch again, in place, whose snapshots died with their executor before they were durable: the state ids are set back to those
 * of the epoch before, and the same batch with the same offsets goes through the query once more.
 */
trait RerunLostEpochs extends TriggerExecutor with Logging {
  protected def query: MicroBatchExecution
  protected def inner: TriggerExecutor

  override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = inner.setNextBatch(ctx)

  override def execute(runBatch: MicroBatchExecutionContext => Boolean): Unit = inner.execute(ctx => attempt(ctx, runBatch, 1))

  private def attempt(ctx: MicroBatchExecutionContext, runBatch: MicroBatchExecutionContext => Boolean, number: Int): Boolean = {
    val ids = QueryHook.stateIds(query)
    val before = ids.toMap
    try runBatch(ctx)
    catch {
      case e: Throwable if number < RerunLostEpochs.Attempts && RerunLostEpochs.isLost(e) =>
        logWarning(s"epoch ${ctx.batchId} is run again: ${e.getMessage}")
        ids.clear()
        ids ++= before
        attempt(ctx, runBatch, number + 1)
    }
  }
}

object RerunLostEpochs {
  private val Attempts = 4

  /** AvailableNow is recognised by its executor's class (`isInstanceOf[MultiBatchExecutor]`): the wrapper must be one too. */
  def apply(of: MicroBatchExecution, wrapped: TriggerExecutor): TriggerExecutor = wrapped match {
    case _: MultiBatchExecutor => new MultiBatchExecutor with RerunLostEpochs {
      override protected def query: MicroBatchExecution = of
      override protected def inner: TriggerExecutor = wrapped
      override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = wrapped.setNextBatch(ctx)
      override def execute(runBatch: MicroBatchExecutionContext => Boolean): Unit = super[RerunLostEpochs].execute(runBatch)
    }
    case _ => new RerunLostEpochs {
      override protected def query: MicroBatchExecution = of
      override protected def inner: TriggerExecutor = wrapped
    }
  }

  private def isLost(e: Throwable): Boolean =
    Iterator.iterate(e)(_.getCause).takeWhile(_ != null).exists {
      case f: CheckpointFailure => f.kind == CheckpointFailure.Lost
      case _ => false
    }
}
