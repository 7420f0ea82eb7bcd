package org.apache.spark.ckpt.ui

import org.apache.spark.ckpt.{CheckpointEvent, Contained}
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent

/** Fills the model from the listener bus, on a queue of its own: what goes wrong or is slow here reaches neither a query nor other listeners. */
class CheckpointHistory(model: CheckpointModel, metrics: Option[CheckpointMetrics]) extends SparkListener with Contained {

  override def onOtherEvent(event: SparkListenerEvent): Unit =
    contained("a checkpoint event")(event match {
      case e: CheckpointEvent =>
        model.add(e)
        metrics.foreach(_.noticed(e))
      case e: QueryProgressEvent => model.progress(e.progress)
      case _ =>
    })
}
