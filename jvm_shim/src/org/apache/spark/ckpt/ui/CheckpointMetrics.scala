package org.apache.spark.ckpt.ui

import scala.collection.mutable

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.ckpt.{CheckpointEvent, CheckpointRunStarted, StorageCounters}
import org.apache.spark.metrics.source.Source

/** One source of Spark's metrics system for each query, with Flink's names; they go wherever the user's sinks and Prometheus endpoint are. */
class CheckpointMetrics(sc: SparkContext, model: CheckpointModel) {
  private val registered = mutable.Map.empty[String, Source]

  /** Runs on the listener's own queue. */
  def noticed(event: CheckpointEvent): Unit = event match {
    case e: CheckpointRunStarted =>
      val system = SparkEnv.get.metricsSystem
      registered.remove(e.root).foreach(system.removeSource)
      val source = new QuerySource(e, model)
      registered.put(e.root, source)
      system.registerSource(source)
    case _ =>
  }
}

private class QuerySource(query: CheckpointRunStarted, model: CheckpointModel) extends Source {
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
  count("numberOfInProgressCheckpoints")(_.inProgress.toLong)
  count("numberOfCompletedCheckpoints")(_.counts.completed)
  count("numberOfFailedCheckpoints")(_.counts.failed)
  last("lastCompletedCheckpointId")(_.epoch)
  last("lastCheckpointDuration")(_.durationMs)
  last("lastCheckpointSize")(_.newBytes)
  last("lastCheckpointFullSize")(_.fullBytes)
  last("lastCheckpointMetadataSize")(_.metadataBytes)
  gauge("lastCheckpointRestoreTimestamp")(view.flatMap(_.latestRestored).map(_.restoredMs).getOrElse(-1L))
  gauge("lastCheckpointExternalPath")(view.flatMap(_.latestCompleted).map(_.path).getOrElse("n/a"))
  count("durabilityLagEpochs")(_.lag.epochs)
  count("durabilityLagMs")(_.lag.ms)
  count("durabilityLagBytes")(_.lag.bytes)
  gauge("storageRequests")(StorageCounters.of(query.root).requests)
  gauge("storageRetries")(StorageCounters.of(query.root).retries)
  gauge("storageBytesRead")(StorageCounters.of(query.root).bytesRead)
  gauge("storageBytesWritten")(StorageCounters.of(query.root).bytesWritten)
  gauge("uploadQueueSnapshots")(StorageCounters.of(query.root).queuedSnapshots)
  gauge("uploadQueueBytes")(StorageCounters.of(query.root).queuedBytes)
  for ((name, of) <- Seq[(String, StreamView => Seq[Long])](
      "sinkLatency" -> (_.latencies.map(_.sinkMs)),
      "operatorLatency" -> (_.latencies.flatMap(_.operators.values.maxOption)),
      "eventTimeLag" -> (_.eventTimes.flatMap(_.newestEventMs)),
      "watermarkLag" -> (_.eventTimes.flatMap(_.watermarkMs)))) {
    count(s"$name.last")(v => of(v).lastOption.getOrElse(0L))
    count(s"$name.p50")(v => Distribution.of(of(v)).p50)
    count(s"$name.p99")(v => Distribution.of(of(v)).p99)
    count(s"$name.max")(v => Distribution.of(of(v)).max)
  }
}
