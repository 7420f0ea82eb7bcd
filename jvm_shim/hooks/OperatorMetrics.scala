package org.apache.spark.sql.ckpt

import scala.jdk.CollectionConverters._

import org.apache.spark.ckpt.{Contained, SealAnswer}
import org.apache.spark.sql.ckpt.SparkStreaming.{StateStoreWriter, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreCustomSizeMetric, StateStoreCustomSumMetric, StateStoreCustomTimingMetric}

/**
 * What the newest checkpoint cost, per stateful operator, and how far behind durable state is, in the query's progress beside RocksDB's
 * own custom metrics. Known to the coordinator only, so it is set on the driver, before the epoch's progress is reported.
 */
object OperatorMetrics extends Contained {
  private val Id = StateStoreCustomSumMetric("checkpointId", "checkpoint: epoch of the newest completed one")
  private val Snapshots = StateStoreCustomSumMetric("checkpointSnapshots", "checkpoint: snapshots acknowledged")
  private val NewBytes = StateStoreCustomSizeMetric("checkpointNewBytes", "checkpoint: bytes stored for this epoch")
  private val FullBytes = StateStoreCustomSizeMetric("checkpointFullBytes", "checkpoint: bytes it takes to load the state")
  private val Sync = StateStoreCustomTimingMetric("checkpointSyncMsMax", "checkpoint: longest synchronous part")
  private val Async = StateStoreCustomTimingMetric("checkpointAsyncMsMax", "checkpoint: longest asynchronous part")

  val LagEpochs = StateStoreCustomSumMetric("checkpointLagEpochs", "checkpoint: epochs that are not durable yet")
  val LagMs = StateStoreCustomTimingMetric("checkpointLagMs", "checkpoint: time since the newest completed one was triggered, if newer epochs are not durable yet")
  val LagBytes = StateStoreCustomSizeMetric("checkpointLagBytes", "checkpoint: bytes that are not stored yet")

  val All: Seq[StateStoreCustomMetric] = Seq(Id, Snapshots, NewBytes, FullBytes, Sync, Async, LagEpochs, LagMs, LagBytes)

  private val Fields = Map(
    "snapshots" -> Snapshots.name, "new_bytes" -> NewBytes.name, "full_bytes" -> FullBytes.name,
    "sync_ms_max" -> Sync.name, "async_ms_max" -> Async.name)
  private val LagFields = Map("epochs" -> LagEpochs.name, "ms" -> LagMs.name, "bytes" -> LagBytes.name)

  /** Runs in the query thread. Metrics are for people: a fault here must not fail an epoch that is complete. */
  def set(query: => StreamExecution, answer: SealAnswer): Unit =
    contained("the checkpoint's numbers in the query's progress") {
      val operators = answer.checkpoint.flatMap(c => Option(c.get("operators"))).toSeq.flatMap(_.properties().asScala)
        .map(e => e.getKey -> e.getValue).toMap
      if (operators.nonEmpty || answer.lag.nonEmpty) query.lastExecution.executedPlan.foreach {
        case op: StateStoreWriter =>
          operators.get(op.getStateInfo.operatorId.toString).foreach { numbers =>
            answer.checkpoint.foreach(c => op.metrics.get(Id.name).foreach(_.set(c.get("epoch").asLong())))
            Fields.foreach { case (field, metric) => op.metrics.get(metric).foreach(_.set(numbers.get(field).asDouble().round)) }
          }
          answer.lag.foreach { lag =>
            LagFields.foreach { case (field, metric) => op.metrics.get(metric).foreach(_.set(lag.get(field).asDouble().round)) }
          }
        case _ =>
      }
    }
}
