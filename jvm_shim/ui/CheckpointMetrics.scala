package org.apache.spark.ckpt.ui

import scala.collection.mutable

import com.codahale.metrics.{Gauge, Histogram, MetricRegistry, Reservoir, Snapshot, UniformSnapshot}

import org.apache.spark.ckpt.{CheckpointCompleted, CheckpointEvent, CheckpointFeed, CheckpointRunStarted, StorageCounters}
import org.apache.spark.metrics.MetricsSystem
import org.apache.spark.metrics.source.Source

/**
 * One source of Spark's metrics system for each query, with Flink's names; they go wherever the user's sinks and Prometheus endpoint are. Of
 * two queries with one name, the one that was started last has it.
 */
class CheckpointMetrics(system: => MetricsSystem, model: CheckpointModel) {
  private val registered = mutable.LinkedHashMap.empty[String, QuerySource]

  /** Runs on the listener's own queue, after the model has taken the event. */
  def noticed(event: CheckpointEvent): Unit = event match {
    case e: CheckpointRunStarted => begin(new QuerySource(e, model))
    case e: CheckpointCompleted => registered.get(e.root).foreach(_.noticed(e.operators.map(_.id)))
    case _ =>
  }

  private def begin(source: QuerySource): Unit = {
    val gone = registered.values.filter(s => s.root == source.root || s.sourceName == source.sourceName || isForgotten(s.root)).toSeq
    // Spark removes all metrics that begin with the source's name: those of `orders_eu` go with those of `orders`.
    val beside = registered.values.filter(s => !gone.contains(s) && gone.exists(g => s.sourceName.startsWith(g.sourceName))).toSeq
    (gone ++ beside).foreach { s =>
      registered.remove(s.root)
      system.removeSource(s)
    }
    (beside.map(_.again) :+ source).foreach { s =>
      registered.put(s.root, s)
      system.registerSource(s)
    }
  }

  /** A query is over, and so many have begun since that nothing is known of it any more. */
  private def isForgotten(root: String): Boolean = !model.knows(root) && !CheckpointFeed.runs(root)
}

private class QuerySource(query: CheckpointRunStarted, model: CheckpointModel) extends Source {
  val root: String = query.root
  override val sourceName: String = s"checkpoints.${if (query.name != null && query.name.nonEmpty) query.name else query.queryId}"
  override val metricRegistry: MetricRegistry = new MetricRegistry

  @volatile private var seen = (0L, Option.empty[StreamView])

  /** A sink asks for all gauges at once: the view is made once for them. */
  private def view: Option[StreamView] = synchronized {
    val now = System.nanoTime()
    if (seen._2.isEmpty || now - seen._1 > 1000000000L) seen = (now, model.view(query.root))
    seen._2
  }

  private def gauge[T](name: String)(value: => T): Unit = metricRegistry.register(name, new Gauge[T] { override def getValue: T = value })
  private def count(name: String)(of: StreamView => Long): Unit = gauge(name)(view.map(of).getOrElse(0L))
  /** Of the last completed checkpoint; -1 as long as there is none, as in Flink. */
  private def last(name: String)(of: CheckpointRecord => Long): Unit = gauge(name)(view.flatMap(_.latestCompleted).map(of).getOrElse(-1L))

  count("totalNumberOfCheckpoints")(_.counts.triggered)
  count("numberOfInProgressCheckpoints")(_.inProgress.size.toLong)
  count("numberOfCompletedCheckpoints")(_.counts.completed)
  count("numberOfFailedCheckpoints")(_.counts.failed)
  last("lastCompletedCheckpointId")(_.epoch)
  last("lastCheckpointDuration")(_.durationMs)
  last("lastCheckpointSize")(_.newBytes)
  last("lastCheckpointFullSize")(_.fullBytes)
  last("lastCheckpointMetadataSize")(_.metadataBytes)
  last("lastCheckpointCompletedTimestamp")(r => r.triggeredMs + r.durationMs)
  gauge("lastCheckpointRestoreTimestamp")(view.flatMap(_.latestRestored).map(_.restoredMs).getOrElse(-1L))
  gauge("lastCheckpointExternalPath")(view.flatMap(_.latestCompleted).map(_.path).getOrElse("n/a"))
  count("durabilityLagEpochs")(_.lag.epochs)
  count("durabilityLagMs")(_.lag.ms)
  count("durabilityLagBytes")(_.lag.bytes)
  // -1: no source tells it, or not yet.
  count("sourceLagRecords")(v => if (v.sources.isEmpty || v.sources.exists(_.records.isEmpty)) -1L else v.sources.flatMap(_.records).sum)
  count("sourceLagMs")(v => v.sources.flatMap(_.ms).maxOption.getOrElse(-1L))
  gauge("storageRequests")(StorageCounters.of(query.root).requests)
  gauge("storageRetries")(StorageCounters.of(query.root).retries)
  gauge("storageBytesRead")(StorageCounters.of(query.root).bytesRead)
  gauge("storageBytesWritten")(StorageCounters.of(query.root).bytesWritten)
  gauge("uploadQueueSnapshots")(StorageCounters.of(query.root).queuedSnapshots)
  gauge("uploadQueueBytes")(StorageCounters.of(query.root).queuedBytes)
  values("sinkLatency")(_.latencies.map(_.sinkMs))
  if (query.batchMs > 0) values("barrierStandstill")(_.standstills.map(_.ms))
  values("eventTimeLag")(_.eventTimes.flatMap(_.newestEventMs))
  values("watermarkLag")(_.eventTimes.flatMap(_.watermarkMs))

  private val operators = mutable.Set.empty[Long]

  /** The same, for the metrics system: what was removed there still hears of what is added to it. */
  def again: QuerySource = {
    val source = new QuerySource(query, model)
    source.noticed(operators)
    source
  }

  /** Operators are known once an epoch has gone through the query. The metrics system takes what is added to a source later. */
  def noticed(ids: Iterable[Long]): Unit =
    ids.filter(operators.add).foreach(id => values(s"operatorLatency.$id")(_.latencies.flatMap(_.operators.get(id))))

  /** A histogram over the newest epochs, and the newest one itself. */
  private def values(name: String)(of: StreamView => Seq[Long]): Unit = {
    def now: Seq[Long] = view.map(of).getOrElse(Nil)
    gauge(s"$name.last")(now.lastOption.getOrElse(0L))
    metricRegistry.register(name, new Histogram(new Reservoir {
      override def size(): Int = now.size
      override def update(value: Long): Unit = ()
      override def getSnapshot: Snapshot = new UniformSnapshot(now.toArray)
    }) {
      override def getCount: Long = now.size.toLong
    })
  }
}
