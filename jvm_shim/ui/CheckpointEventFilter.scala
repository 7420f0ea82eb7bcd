package org.apache.spark.ckpt.ui

import scala.collection.mutable

import org.apache.spark.ckpt._
import org.apache.spark.deploy.history.{EventFilter, EventFilterBuilder}
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}

/**
 * What compaction of a rolling event log leaves of checkpoints: the newest of each stream, which is what the tab keeps, and the latest
 * failure, savepoint and restore, however old. They carry the counts of all that were before them. Without it, compaction would keep every one
 * for ever.
 */
class CheckpointEventFilterBuilder extends SparkListener with EventFilterBuilder {
  import CheckpointEventFilterBuilder._

  private val newest = mutable.Map.empty[String, mutable.Queue[Key]]
  private val latest = mutable.Map.empty[(String, Class[_]), Key]
  private val runs = mutable.Map.empty[String, Long]

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case e: CheckpointRunStarted => runs(e.root) = math.max(e.run, runs.getOrElse(e.root, 0L))
    case e: CheckpointEvent =>
      latest((e.root, e.getClass)) = key(e)
      val queue = newest.getOrElseUpdate(e.root, mutable.Queue.empty)
      queue.enqueue(key(e))
      if (queue.size > CheckpointModel.RecordsKept) queue.dequeue()
    case _ =>
  }

  override def createFilter(): EventFilter = {
    val kept = newest.map { case (root, queue) => root -> (queue.toSet ++ latest.collect { case ((`root`, _), key) => key }) }.toMap
    val current = runs.toMap
    new EventFilter {
      override def statistics(): Option[EventFilter.FilterStatistics] = None
      override def acceptFn(): PartialFunction[SparkListenerEvent, Boolean] = {
        case e: CheckpointRunStarted => current.get(e.root).contains(e.run)
        case e: CheckpointEvent => kept.get(e.root).exists(_(key(e)))
      }
    }
  }
}

object CheckpointEventFilterBuilder {
  private type Key = (Class[_], Long, Long)

  private def key(e: CheckpointEvent): Key = (e.getClass, e.run, e.epoch)
}
