package org.apache.spark.ckpt.ui

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.annotation.JsonIgnore

import org.apache.spark.SparkConf
import org.apache.spark.ckpt.{CheckpointEvent, CheckpointRunStarted, Contained}
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent
import org.apache.spark.status.{AppHistoryServerPlugin, ElementTrackingStore}
import org.apache.spark.ui.SparkUI
import org.apache.spark.util.JsonProtocol
import org.apache.spark.util.kvstore.{KVIndex, KVStore}

/**
 * The Checkpoints tab in the history server. It is found through `META-INF/services` when the JAR is on the history server's class path,
 * knows event logs only, and shows the tab for applications that had checkpoints.
 */
class CheckpointHistoryServerPlugin extends AppHistoryServerPlugin {
  override def createListeners(conf: SparkConf, store: ElementTrackingStore): Seq[SparkListener] = Seq(new ReplayedEvents(store))

  override def setupUI(ui: SparkUI): Unit = {
    val store = ui.store.store
    if (ReplayedEvents.any(store)) new CheckpointsTab(ui, ReplayedEvents.model(store))
  }

  override def displayOrder: Int = 5
}

/** One replayed event. The history server may keep these on disk and show a tab without replaying the log again. */
class ReplayedEvent(val number: Long, val line: String) {
  @JsonIgnore @KVIndex
  def key: Long = number
}

/** Keeps the newest of the events that the tab is made of. */
class ReplayedEvents(store: KVStore) extends SparkListener with Contained {
  private var next = 0L

  override def onOtherEvent(event: SparkListenerEvent): Unit =
    contained("a checkpoint event")(event match {
      case _: CheckpointEvent | _: QueryProgressEvent =>
        store.write(new ReplayedEvent(next, JsonProtocol.sparkEventToJsonString(event)))
        if (next >= ReplayedEvents.Kept) forget(next - ReplayedEvents.Kept)
        next += 1
      case _ =>
    })

  // How a run began is needed as long as anything of it is shown, and there are few of those.
  private def forget(number: Long): Unit = {
    val old = store.read(classOf[ReplayedEvent], number)
    if (!old.line.contains(classOf[CheckpointRunStarted].getName)) store.delete(classOf[ReplayedEvent], number)
  }
}

object ReplayedEvents {
  /** A checkpoint and its epoch's progress are two; between two checkpoints there may be epochs. */
  private val Kept = 4L * CheckpointModel.RecordsKept

  def any(store: KVStore): Boolean = store.count(classOf[ReplayedEvent]) > 0

  def model(store: KVStore): CheckpointModel = {
    val model = new CheckpointModel
    val found = store.view(classOf[ReplayedEvent]).closeableIterator()
    try found.asScala.foreach { stored =>
      Try(JsonProtocol.sparkEventFromJson(stored.line)).foreach {
        case e: CheckpointEvent => model.add(e)
        case e: QueryProgressEvent => model.progress(e.progress)
        case _ =>
      }
    } finally found.close()
    model
  }
}
