package org.apache.spark.ckpt.ui

import java.time.Instant

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.ckpt._
import org.apache.spark.sql.ckpt.OperatorMetrics
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import org.apache.spark.sql.streaming.StreamingQueryProgress

/**
 * What is shown of one query, at one moment. `records` newest first, `latencies`, `standstills`, `lags` and `eventTimes` oldest first.
 * `batchMs`: of a run in real time, how long a batch takes rows; its latencies count from there. 0 of all others.
 */
final case class StreamView(
    root: String, name: String, queryId: String, runId: String, run: Long, startedMs: Long, background: Boolean, options: Map[String, String],
    counts: CheckpointCounts, records: Seq[CheckpointRecord], latestCompleted: Option[CheckpointRecord], latestFailed: Option[CheckpointRecord],
    latestSavepoint: Option[CheckpointRecord], latestRestored: Option[RestoredRecord], lag: DurabilityLag, latencies: Seq[LatencyRecord],
    lags: Seq[LagRecord], eventTimes: Seq[EventTimeRecord], sources: Seq[SourceLag] = Nil, batchMs: Long = 0,
    standstills: Seq[StandstillRecord] = Nil) {

  /** How it is named in an address; the name is for people, and two queries may have the same. */
  def key: String = if (queryId.nonEmpty) queryId else root

  def title: String = if (name.nonEmpty) name else root

  def inProgress: Seq[CheckpointRecord] = records.filter(_.status == Status.InProgress)

  def completed: Seq[CheckpointRecord] = records.filter(_.status == Status.Completed)

  /** `42`: the newest of that epoch; `3-42`: that of run 3. */
  def find(id: String): Option[CheckpointRecord] = records.find(_.id == id).orElse(records.find(_.epoch.toString == id))

  def operatorNames: Seq[(Long, String)] = latestCompleted.toSeq.flatMap(_.operators.map(o => o.id -> o.name))
}

/**
 * What Spark's own events tell of checkpoints. The same while the application runs and when its log is replayed, but for what only a running
 * one has (`live`): acknowledgements of a checkpoint in the making. Memory is bounded: by the number of streams, of checkpoints of each,
 * and by the bytes that all their partitions take together (the oldest lose theirs first).
 */
class CheckpointModel(live: Option[CheckpointModel.Live] = None) {
  import CheckpointModel._

  private final class Stream(val root: String) {
    var started: Option[CheckpointRunStarted] = None
    var counts = CheckpointCounts()
    var lag = DurabilityLag()
    var lagMs = 0L
    val records = mutable.LinkedHashMap.empty[(Long, Long), CheckpointRecord]
    var completed: Option[CheckpointRecord] = None
    var failed: Option[CheckpointRecord] = None
    var savepoint: Option[CheckpointRecord] = None
    var restored: Option[RestoredRecord] = None
    val latencies = mutable.ArrayDeque.empty[LatencyRecord]
    val lags = mutable.ArrayDeque.empty[LagRecord]
    val eventTimes = mutable.ArrayDeque.empty[EventTimeRecord]

    def view: StreamView = {
      def of(text: CheckpointRunStarted => String): String = started.flatMap(s => Option(text(s))).getOrElse("")
      StreamView(
        root, of(_.name), of(_.queryId), of(_.runId), started.map(_.run).getOrElse(0L), started.map(_.timeMs).getOrElse(0L),
        started.exists(_.background), started.flatMap(s => Option(s.options)).getOrElse(Map.empty), counts,
        records.values.toSeq.reverse.map(now), completed, failed, savepoint, restored, lagNow,
        latencies.toSeq.map(l => if (isInRealTime(l)) l.after(batchMs) else l), lags.toSeq, eventTimes.toSeq,
        live.map(_.sourceLags(root)).getOrElse(Nil), batchMs, standstills)
    }

    private def batchMs: Long = started.map(_.batchMs).getOrElse(0L)

    private def isInRealTime(l: LatencyRecord): Boolean = batchMs > 0 && started.exists(_.run == l.run)

    /** One batch begins as soon as the one before has ended: what is left of the time between their beginnings nobody took rows. */
    private def standstills: Seq[StandstillRecord] = latencies.toSeq.filter(isInRealTime).sortBy(_.epoch).sliding(2).collect {
      case Seq(a, b) if b.epoch == a.epoch + 1 => StandstillRecord(a.epoch, a.timeMs, math.max(0L, b.timeMs - a.timeMs - batchMs))
    }.toSeq

    private def now(r: CheckpointRecord): CheckpointRecord =
      if (r.status != Status.InProgress) r
      else {
        val (acked, ended) = live.flatMap(_.progressOf(r.root, r.run, r.epoch)).getOrElse((0, false))
        r.copy(acked = acked, required = math.max(acked, completed.map(_.required).getOrElse(0)), epochEnded = ended)
      }

    /** What is not durable grows older while nothing is told. */
    private def lagNow: DurabilityLag =
      if (lag.epochs == 0 || lagMs == 0) lag else lag.copy(ms = lag.ms + live.map(l => math.max(0L, l.clockMs() - lagMs)).getOrElse(0L))
  }

  private val streams = mutable.LinkedHashMap.empty[String, Stream]
  /** Records that have partitions, oldest first, and the bytes those take. */
  private val detailed = mutable.LinkedHashMap.empty[(String, (Long, Long)), Int]
  private var detailedBytes = 0L

  /** The query that was started last comes first. */
  def views: Seq[StreamView] = synchronized(streams.values.toSeq.reverse.map(_.view))

  def knows(root: String): Boolean = synchronized(streams.contains(root))

  def view(root: String): Option[StreamView] = synchronized(streams.get(root).map(_.view))

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
        if (!record.isGivenUp) lag(stream, record.lag)
        stream.failed = Some(record.withoutPartitions)
        put(stream, record)
      case e: CheckpointSavepoint =>
        val record = stream.records.get((e.run, e.epoch)).getOrElse(CheckpointRecord.savepoint(e)).copy(savepoint = e.path)
        stream.records.updateWith(record.key)(_.map(_ => record))
        stream.savepoint = Some(record.withoutPartitions)
      case e: CheckpointRestored =>
        stream.counts = counts(e.counts, stream)
        stream.restored = Some(CheckpointRecord.restored(e))
    }
  }

  def progress(p: StreamingQueryProgress): Unit = synchronized {
    streams.values.find(_.started.exists(_.runId == p.runId.toString)).foreach { stream =>
      val times = p.eventTime.asScala
      for (now <- millis(p.timestamp)) {
        val newest = times.get("max").flatMap(millis).map(now - _)
        val watermark = times.get("watermark").flatMap(millis).filter(_ > 0).map(now - _) // it begins at 1970
        if (newest.isDefined || watermark.isDefined) append(stream.eventTimes, EventTimeRecord(p.batchId, now, newest, watermark))
        for (told <- lagIn(p)) {
          append(stream.lags, LagRecord(p.batchId, now, told))
          lag(stream, sinceCompleted(stream, p.batchId, told))
        }
      }
    }
  }

  // (1) The epoch's end takes the lag along; (2) a checkpoint completes and is told; (3) the epoch's progress is told, with the lag of (1).
  private def sinceCompleted(stream: Stream, epoch: Long, told: DurabilityLag): DurabilityLag =
    stream.completed.filter(c => stream.started.exists(_.run == c.run)).map(epoch - _.epoch) match {
      case Some(behind) if behind <= 0 => DurabilityLag()
      case Some(behind) if behind < told.epochs => told.copy(epochs = behind)
      case _ => told
    }

  /** Every stateful operator's metrics have it (`OperatorMetrics`). */
  private def lagIn(p: StreamingQueryProgress): Option[DurabilityLag] =
    p.stateOperators.map(_.customMetrics.asScala).find(_.contains(OperatorMetrics.LagEpochs.name)).map { m =>
      def number(metric: StateStoreCustomMetric): Long = m.get(metric.name).map(_.longValue).getOrElse(0L)
      DurabilityLag(number(OperatorMetrics.LagEpochs), number(OperatorMetrics.LagMs), number(OperatorMetrics.LagBytes))
    }

  private def lag(stream: Stream, told: DurabilityLag): Unit = {
    // What the executors have last said of their bytes is older than a checkpoint that leaves nothing behind.
    stream.lag = if (told.epochs == 0) DurabilityLag() else told
    stream.lagMs = live.map(_.clockMs()).getOrElse(0L)
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
    lag(stream, record.lag)
    stream.completed = Some(record.withoutPartitions)
    put(stream, record)
    Option(e.latencies).toSeq.flatten.foreach { l =>
      val operators = Option(l.operators).toSeq.flatten.collect { case Array(id, ms) => id -> ms }.toMap
      latency(stream, LatencyRecord(e.run, l.epoch, l.timeMs, l.sinkMs, operators))
    }
    latency(stream, LatencyRecord(e.run, e.epoch, e.timeMs, e.sinkMs, record.operators.map(o => o.id -> o.latencyMs).toMap))
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
  /** What only a running application knows: (snapshots that are durable, whether the epoch has ended) of a checkpoint in the making, the time, and
   *  how far sources are ahead. */
  final case class Live(
      progressOf: (String, Long, Long) => Option[(Int, Boolean)], clockMs: () => Long, sourceLags: String => Seq[SourceLag] = _ => Nil)

  val RecordsKept = 1000
  val EpochsKept = 1000
  private val StreamsKept = 100
  private val PartitionBytesKept = 64L << 20
}
