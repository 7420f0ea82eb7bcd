package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.{CheckpointFailure, DriverStream, StopRequest}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, MicroBatchExecutionContext, MultiBatchExecutor, ProcessingTimeExecutor, SingleBatchExecutor, TriggerExecutor}

/**
 * Stands between a query and its trigger. Epochs that were planned before are constructed from the log, a person's request to stop is
 * met between two epochs, and a query whose state died with an executor before it was durable goes back, in place:
 *  - in the every-epoch mode one epoch at most is concerned: the state ids are set back to those of the epoch before, and the same batch
 *    with the same offsets goes through the query once more;
 *  - in the interval mode the query begins a new run from its last completed checkpoint, as after a restart.
 *
 * It is no MultiBatchExecutor even where it stands before one: the query would terminate itself at the end of the data (its
 * `executeOneBatch` asks for that class), but the last epoch's checkpoint is still to be completed.
 */
class EpochRunner(query: MicroBatchExecution, stream: DriverStream, beginning: RunBeginning, first: PlannedEpochs)
  extends TriggerExecutor with Logging {

  import EpochRunner._

  private var inner = query.triggerExecutor
  private var planned = first
  private var next: MicroBatchExecutionContext = _
  private var runBatch: RunBatch = _
  private var goingBack = false
  private var stopped = false
  private var attempts = 0
  private var warnedOfDrain = false
  private var ranEpoch = false
  private var switching = false
  private var origin = stream.origin
  // The next batch may be on its way, between its barrier and its job, and lasts for minutes.
  stream.interrupt = () =>
    if (stream.realTime) query.sparkSession.sparkContext.cancelJobGroupAndFutureJobs(query.runId.toString, "the query is to end")

  override def setNextBatch(ctx: MicroBatchExecutionContext): Unit = {
    next = ctx
    planned.construct(ctx)
    inner.setNextBatch(ctx)
  }

  override def execute(runner: RunBatch): Unit = {
    runBatch = runner
    // Called from goBack, by way of the query itself, which has read its logs again: the loop below goes on with what it gave.
    if (!goingBack) {
      while (!toTheEnd()) goBack()
    }
  }

  /** False: the query begins another run before it goes on, since state was lost, or since what follows is in real time. */
  private def toTheEnd(): Boolean =
    try {
      switching = false
      inner.execute(step)
      if (switching && query.isActive) {
        // Who asks for the end while the last checkpoint is awaited is answered with it, and by the time of that answer the query has to end.
        stopped = stream.finish(stopping = false).nonEmpty
        stream.ended = stopped
        if (!stopped) return false
      }
      // Trigger.Once runs one epoch; those that were planned before it must not wait for as many starts.
      while (isOnce && !stream.ended && query.isActive && (planned.contains(next.batchId) || stream.stopRequest.nonEmpty)) inner.execute(step)
      if (isOnce && query.isActive) stream.ended = true
      if (stream.ended && stream.background && !stopped) stream.finish(stopping = false)
      if (stream.ended) stream.hooks.settle()
      true
    } catch {
      case e: Throwable if stream.background && lost(e).nonEmpty && mayGoBack() =>
        logWarning(s"the query goes back to its last completed checkpoint: ${lost(e).mkString}")
        false
    }

  private def step(ctx: MicroBatchExecutionContext): Boolean = {
    stream.failure.foreach(throw _)
    stream.hooks.check()
    val between = !ctx.isCurrentBatchConstructed
    stopped = between && stream.stopRequest.exists(stop(ctx, _))
    switching = !stopped && beginning.realTime.isDue(ctx)
    if (switching) return false
    val over = !stopped && between && Drain.wasAt(query, ctx.batchId - 1)
    // The drain itself may have run again in this start, and is to become a checkpoint: the query ends, and the next start says why.
    if (over && endsByItself && !ranEpoch) throw new CheckpointFailure(CheckpointFailure.Unusable, DrainedAndEnds)
    // With nothing left to do the query would go on to look for data: AvailableNow ends here.
    lazy val more = if (over) drained() else attempt(ctx, 1)
    stream.ended = stopped || (over && endsByItself) ||
      (more && inner.isInstanceOf[MultiBatchExecutor] && !ctx.isCurrentBatchConstructed && stream.stopRequest.isEmpty)
    !stream.ended && more
  }

  private def attempt(ctx: MicroBatchExecutionContext, number: Int): Boolean = {
    val ids = QueryHook.stateIds(query)
    val before = ids.toMap
    try {
      beginning.realTime.begin(ctx)
      val more = runBatch(ctx)
      ranEpoch ||= ctx.isCurrentBatchConstructed
      more
    } catch {
      case e: Throwable if !stream.background && number < Attempts && lost(e).nonEmpty =>
        logWarning(s"epoch ${ctx.batchId} is run again: ${lost(e).mkString}")
        ids.clear()
        ids ++= before
        attempt(ctx, number + 1)
      case e: Exception => throw stream.failure.filter(_ => stream.realTime).orElse(KafkaTrouble.explained(e, query, ctx)).getOrElse(e)
    }
  }

  /** True: the savepoint is stored, and the query ends. */
  private def stop(ctx: MicroBatchExecutionContext, request: StopRequest): Boolean = {
    val drained = request.drain && ctx.batchId > 0
    if (drained) {
      stream.draining = true
      try new Drain(query).construct(ctx) finally stream.draining = false
      attempt(ctx, 1)
    }
    val met = stream.metWith(request)
    try {
      val savepoint = stream.finish(stopping = true, drained = request.drain)
      logInfo(s"the query was asked to stop: its state is in the savepoint ${savepoint.mkString}")
      true
    } catch {
      case e: CheckpointFailure if drained && e.kind != CheckpointFailure.Lost =>
        val way =
          if (Drain.wasAt(query, ctx.batchId)) "and cannot go on, since all that came would be late; start it again and ask for its stop once more"
          else "and its savepoint could not be made; it has no watermark, so start it again and it goes on, or ask for its stop once more"
        throw new CheckpointFailure(e.kind, s"the query has been drained $way: ${e.getMessage}", e)
      case e: CheckpointFailure if e.kind != CheckpointFailure.Lost =>
        logWarning(s"the query was asked to stop: ${e.getMessage}")
        stream.refuse(met)
        false
    }
  }

  /** Drained before this start, or before it went back: nothing is read, since all of it would be late. */
  private def drained(): Boolean = {
    if (!warnedOfDrain) logWarning(DrainedAndWaits)
    warnedOfDrain = true
    QueryHook.nothingNew(query)
    inner match {
      // It waits by itself, and warns of every step that takes as long as its interval.
      case timed: ProcessingTimeExecutor if timed.processingTimeTrigger.intervalMs > 0 =>
      case _ => Thread.sleep(DrainedMs)
    }
    query.isActive
  }

  private def mayGoBack(): Boolean = {
    if (stream.origin != origin) attempts = 0
    origin = stream.origin
    attempts += 1
    attempts < Attempts
  }

  private def goBack(): Unit = {
    planned = beginning()
    QueryHook.forgetProgress(query)
    QueryHook.makePlan(query)
    inner = query.triggerExecutor
    query.triggerExecutor = this
    goingBack = true
    try QueryHook.runActivatedStream(query) finally goingBack = false
  }

  private def lost(e: Throwable): Option[String] = CheckpointFailure.ofKind(CheckpointFailure.Lost, e)

  /** Such a query waits for nobody. */
  private def endsByItself: Boolean = isOnce || inner.isInstanceOf[MultiBatchExecutor]

  private def isOnce: Boolean = inner.isInstanceOf[SingleBatchExecutor]
}

object EpochRunner {
  private type RunBatch = MicroBatchExecutionContext => Boolean

  /** How often in a row, without a new checkpoint in between. */
  private val Attempts = 4

  /** How long a drained query waits before it looks again whether it is to stop. */
  private val DrainedMs = 100L
  private val Drained = "the query was drained: its watermark is at the end of time, and all that it would read now is late. It reads nothing: "
  private val Before = "or go on from a checkpoint before the drain, with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD"
  private val DrainedAndWaits = s"${Drained}ask for its stop once more (spark-ckpt savepoint --stop), $Before"
  private val DrainedAndEnds = s"${Drained}start it with a processingTime trigger and ask for its stop once more (spark-ckpt savepoint --stop), $Before"
}
