package org.apache.spark.ckpt.ui

import java.time.Instant

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.ckpt._
import org.apache.spark.sql.ckpt.OperatorMetrics
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import org.apache.spark.sql.streaming.StreamingQueryProgress

/** What is shown of one query, at one moment. `records` newest first, `latencies` and `eventTimes` oldest first. */
final case class StreamView(
    root: String, name: String, queryId: String, runId: String, run: Long, startedMs: Long, options: Map[String, String],
    counts: CheckpointCounts, records: Seq[CheckpointRecord], latestCompleted: Option[CheckpointRecord], latestFailed: Option[CheckpointRecord],
    latestSavepoint: Option[CheckpointRecord], latestRestored: Option[RestoredRecord], lag: DurabilityLag, latencies: Seq[LatencyRecord],
    eventTimes: Seq[EventTimeRecord]) {

  /** How it is named in an address; the name is for people, and two queries may have the same. */
  def key: String = if (queryId.nonEmpty) queryId else root

  def title: String = if (name.nonEmpty) name else root

  def inProgress: Int = records.count(_.status == Status.InProgress)

  def completed: Seq[CheckpointRecord] = records.filter(_.status == Status.Completed)

  /** `42`: the newest of that epoch; `3-42`: that of run 3. */
  def find(id: String): Option[CheckpointRecord] = records.find(_.id == id).orElse(records.find(_.epoch.toString == id))

  def operatorNames: Seq[(Long, String)] = latestCompleted.toSeq.flatMap(_.operators.map(o => o.id -> o.name))
}

/**
 * What Spark's own events tell of checkpoints. The same while the application runs and when its log is replayed. Memory is bounded: by the
 * number of streams, of checkpoints of each, and by the bytes that all their partitions take together (the oldest lose theirs first).
 */
class CheckpointModel {
  import CheckpointModel._

  private final class Stream(val root: String) {
    var started: Option[CheckpointRunStarted] = None
    var counts = CheckpointCounts()
    var lag = DurabilityLag()
    val records = mutable.LinkedHashMap.empty[(Long, Long), CheckpointRecord]
    var completed: Option[CheckpointRecord] = None
    var failed: Option[CheckpointRecord] = None
    var savepoint: Option[CheckpointRecord] = None
    var restored: Option[RestoredRecord] = None
    val latencies = mutable.ArrayDeque.empty[LatencyRecord]
    val eventTimes = mutable.ArrayDeque.empty[EventTimeRecord]

    def view: StreamView = {
      def of(text: CheckpointRunStarted => String): String = started.flatMap(s => Option(text(s))).getOrElse("")
      StreamView(
        root, of(_.name), of(_.queryId), of(_.runId), started.map(_.run).getOrElse(0L), started.map(_.timeMs).getOrElse(0L),
        started.flatMap(s => Option(s.options)).getOrElse(Map.empty), counts, records.values.toSeq.reverse, completed, failed, savepoint, restored,
        lag, latencies.toSeq, eventTimes.toSeq)
    }
  }

  private val streams = mutable.LinkedHashMap.empty[String, Stream]
  /** Records that have partitions, oldest first, and the bytes those take. */
  private val detailed = mutable.LinkedHashMap.empty[(String, (Long, Long)), Int]
  private var detailedBytes = 0L

  /** The query that was started last comes first. */
  def views: Seq[StreamView] = synchronized(streams.values.toSeq.reverse.map(_.view))

  def view(root: String): Option[StreamView] = synchronized(streams.get(root).map(_.view))

  /** Bytes that the partitions of all checkpoints take. */
  def partitionBytes: Long = synchronized(detailedBytes)

  def add(event: CheckpointEvent): Unit = synchronized {
    val stream = streamOf(event.root)
    event match {
      case e: CheckpointRunStarted => begin(stream, e)
      case e: CheckpointTriggered =>
        stream.counts = e.counts
        if (!stream.records.get((e.run, e.epoch)).exists(_.status == Status.Completed)) put(stream, CheckpointRecord.triggered(e))
      case e: CheckpointCompleted => complete(stream, e)
      case e: CheckpointAborted =>
        val record = CheckpointRecord.aborted(e)
        stream.counts = counts(e.counts, stream)
        stream.lag = record.lag
        stream.failed = Some(record.withoutPartitions)
        put(stream, record)
      case e: CheckpointSavepoint =>
        val record = stream.records.get((e.run, e.epoch)).getOrElse(CheckpointRecord.savepoint(e)).copy(savepoint = e.path)
        stream.records.updateWith(record.key)(_.map(_ => record))
        stream.savepoint = Some(record.withoutPartitions)
      case e: CheckpointRestored =>
        stream.counts = counts(e.counts, stream)
        stream.restored = Some(RestoredRecord(e.run, e.epoch, e.timeMs, e.restoredMs, Option(e.path).getOrElse(""), e.fullBytes))
    }
  }

  def progress(p: StreamingQueryProgress): Unit = synchronized {
    streams.values.find(_.started.exists(_.runId == p.runId.toString)).foreach { stream =>
      val newest = stream.completed.filter(c => stream.started.exists(_.run == c.run)).map(_.epoch)
      lag(p).filterNot(told => newest.exists(_ > p.batchId - told.epochs)).foreach(stream.lag = _)
      val times = p.eventTime.asScala
      for (now <- millis(p.timestamp)) {
        val event = times.get("max").flatMap(millis).map(now - _)
        val watermark = times.get("watermark").flatMap(millis).filter(_ > 0).map(now - _) // it begins at 1970
        if (event.isDefined || watermark.isDefined) append(stream.eventTimes, EventTimeRecord(p.batchId, now, event, watermark))
      }
    }
  }

  /** As of the epoch's end: while the storage is away no checkpoint tells it. One that completed since knows better. */
  private def lag(p: StreamingQueryProgress): Option[DurabilityLag] =
    p.stateOperators.headOption.map(_.customMetrics).filter(_.containsKey(OperatorMetrics.LagEpochs.name)).map { m =>
      def number(metric: StateStoreCustomMetric): Long = Option(m.get(metric.name)).map(_.longValue).getOrElse(0L)
      DurabilityLag(number(OperatorMetrics.LagEpochs), number(OperatorMetrics.LagMs), number(OperatorMetrics.LagBytes))
    }

  private def begin(stream: Stream, e: CheckpointRunStarted): Unit = {
    stream.started = Some(e)
    // What an earlier run had begun will never end.
    stream.records.values.filter(r => r.status == Status.InProgress && r.run != e.run).map(_.key).toSeq.foreach(stream.records.remove)
    streams.remove(stream.root)
    streams.put(stream.root, stream)
    while (streams.size > StreamsKept) {
      val (root, oldest) = streams.head
      oldest.records.keys.foreach(forgetPartitions(root, _))
      streams.remove(root)
    }
  }

  private def complete(stream: Stream, e: CheckpointCompleted): Unit = {
    val record = CheckpointRecord.completed(e)
    stream.counts = counts(e.counts, stream)
    stream.lag = record.lag
    stream.completed = Some(record.withoutPartitions)
    put(stream, record)
    Option(e.latencies).toSeq.flatten.foreach { l =>
      val operators = Option(l.operators).toSeq.flatten.collect { case Array(id, ms) => id -> ms }.toMap
      latency(stream, LatencyRecord(l.epoch, l.timeMs, l.sinkMs, operators))
    }
    latency(stream, LatencyRecord(e.epoch, e.timeMs, e.sinkMs, record.operators.map(o => o.id -> o.latencyMs).toMap))
  }

  /** An epoch that became a checkpoint after it had ended is told twice; one that is run again, too. */
  private def latency(stream: Stream, record: LatencyRecord): Unit = {
    stream.latencies.filterInPlace(_.epoch != record.epoch)
    append(stream.latencies, record)
  }

  private def put(stream: Stream, record: CheckpointRecord): Unit = {
    forget(stream, record.key)
    stream.records.put(record.key, record)
    val bytes = record.byteCount
    if (bytes > 0) {
      detailed.put((stream.root, record.key), bytes)
      detailedBytes += bytes
    }
    while (stream.records.size > RecordsKept) forget(stream, stream.records.head._1)
    while (detailedBytes > PartitionBytesKept) {
      val (root, key) = detailed.head._1
      forgetPartitions(root, key)
      streams.get(root).foreach(s => s.records.updateWith(key)(_.map(_.withoutPartitions)))
    }
  }

  private def forget(stream: Stream, key: (Long, Long)): Unit = {
    stream.records.remove(key)
    forgetPartitions(stream.root, key)
  }

  private def forgetPartitions(root: String, key: (Long, Long)): Unit = detailed.remove((root, key)).foreach(detailedBytes -= _)

  private def counts(told: CheckpointCounts, stream: Stream): CheckpointCounts = Option(told).getOrElse(stream.counts)

  private def streamOf(root: String): Stream = streams.getOrElseUpdate(root, new Stream(root))

  private def append[T](to: mutable.ArrayDeque[T], item: T): Unit = {
    to.append(item)
    if (to.size > EpochsKept) to.removeHead()
  }

  private def millis(text: String): Option[Long] = Try(Instant.parse(text).toEpochMilli).toOption
}

object CheckpointModel {
  val RecordsKept = 1000
  val EpochsKept = 1000
  private val StreamsKept = 100
  private val PartitionBytesKept = 64L << 20
}
