package org.apache.spark.ckpt.ui

import org.apache.spark.ckpt.CheckpointEvent
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent

/** Fills the model from the listener bus, on a queue of its own: what goes wrong or is slow here reaches neither a query nor other listeners. */
class CheckpointHistory(model: CheckpointModel, metrics: Option[CheckpointMetrics]) extends SparkListener with Logging {

  override def onOtherEvent(event: SparkListenerEvent): Unit =
    try event match {
      case e: CheckpointEvent =>
        model.add(e)
        metrics.foreach(_.noticed(e))
      case e: QueryProgressEvent => model.progress(e.progress)
      case _ =>
    } catch {
      case error: Exception => logWarning("a checkpoint event could not be kept for the Checkpoints tab", error)
    }
}
