package org.apache.spark.sql.ckpt

import org.apache.spark.sql.ckpt.SparkStreaming.StateStoreWriter
import org.apache.spark.sql.{DataFrame, Dataset, Row}
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.execution.streaming.Sink

/**
 * A sink that has seen a batch id returns without running the plan (the file sink, a foreachBatch that remembers). Stock Spark then finds
 * no state ids of that epoch and fails at every restart ("CheckpointInfo length: 0"). Here the plan is run for its state alone.
 */
class StateKeepingSink(inner: Sink) extends Sink {

  override def addBatch(batchId: Long, data: DataFrame): Unit = {
    inner.addBatch(batchId, data)
    val execution = data.asInstanceOf[ClassicDataset[Row]].queryExecution
    val silent = execution.executedPlan.collect {
      case op: StateStoreWriter if op.checkpointInfoAccumulator.value.isEmpty => op
    }
    if (silent.nonEmpty) execution.toRdd.foreach(_ => ())
  }

  override def name(): String = inner.name()
  override def toString: String = inner.toString
}
