package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.CheckpointFailure
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext, MultiBatchExecutor, TriggerExecutor}

/**
 * Stands between a query and its trigger. Recorded epochs are constructed from the log. An epoch whose snapshots died with their executor
 * before they were durable runs again in place: the state ids are set back to those of the epoch before, and the same batch with the same
 * offsets goes through the query once more.
 */
trait EpochRunner extends TriggerExecutor with Logging {
  protected def query: MicroBatchExecution
  protected def inner: TriggerExecutor
  protected def recorded: RecordedEpochs

  override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = {
    recorded.construct(ctx)
    inner.setNextBatch(ctx)
  }

  override def execute(runBatch: MicroBatchExecutionContext => Boolean): Unit = inner.execute(ctx => attempt(ctx, runBatch, 1))

  private def attempt(ctx: MicroBatchExecutionContext, runBatch: MicroBatchExecutionContext => Boolean, number: Int): Boolean = {
    val ids = QueryHook.stateIds(query)
    val before = ids.toMap
    try runBatch(ctx)
    catch {
      case e: Throwable if number < EpochRunner.Attempts && EpochRunner.isLost(e) =>
        logWarning(s"epoch ${ctx.batchId} is run again: ${e.getMessage}")
        ids.clear()
        ids ++= before
        attempt(ctx, runBatch, number + 1)
    }
  }
}

object EpochRunner {
  private val Attempts = 4

  /** AvailableNow is recognised by its executor's class (`isInstanceOf[MultiBatchExecutor]`): the wrapper must be one too. */
  def apply(of: MicroBatchExecution, wrapped: TriggerExecutor, epochs: RecordedEpochs): TriggerExecutor = wrapped match {
    case _: MultiBatchExecutor => new MultiBatchExecutor with EpochRunner {
      override protected def query: MicroBatchExecution = of
      override protected def inner: TriggerExecutor = wrapped
      override protected def recorded: RecordedEpochs = epochs
      override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = super[EpochRunner].setNextBatch(ctx)
      override def execute(runBatch: MicroBatchExecutionContext => Boolean): Unit = super[EpochRunner].execute(runBatch)
    }
    case _ => new EpochRunner {
      override protected def query: MicroBatchExecution = of
      override protected def inner: TriggerExecutor = wrapped
      override protected def recorded: RecordedEpochs = epochs
    }
  }

  private def isLost(e: Throwable): Boolean =
    Iterator.iterate(e)(_.getCause).takeWhile(_ != null).exists {
      case f: CheckpointFailure => f.kind == CheckpointFailure.Lost
      case _ => false
    }
}
