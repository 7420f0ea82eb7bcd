package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkContext
import org.apache.spark.ckpt.Json.Fields

/**
 * Makes Spark events of what the coordinator announces, with what only the driver knows, and the log's line of each. Everything that shows
 * checkpoints lives off these events. Nothing here may fail a query or make it wait: each entry contains what goes wrong in it.
 */
object CheckpointFeed extends Contained {
  private val EpochsKept = 1000
  /** Executors report every half second: an epoch that ended so long ago has all its commits. */
  private val ReportedMs = 2000L
  /** Names of the protocol's `AbortReason` that are no failures. */
  val Subsumed = "SUBSUMED"
  val Stopped = "STOPPED"

  /** Of one epoch: when its barrier was sent, and from there (ms) its sink's end and its operators' last commits. */
  private final class Epoch(val run: Long, val timeMs: Long, val checkpoint: Boolean) {
    var sinkMs = -1L
    var isReported = false
    val operators = mutable.Map.empty[Long, Long]

    def latency(number: Long): EpochLatency =
      EpochLatency(number, timeMs, sinkMs, operators.toArray.sorted.map { case (id, ms) => Array(id, ms) })
  }

  /** A checkpoint in the making, and the snapshots that are durable so far. */
  private final class Making(val run: Long, val epoch: Long, val timeMs: Long, val late: Boolean) {
    val acked = mutable.Set.empty[String]
  }

  /** What the driver knows of one stream's current run. Guarded by itself. */
  private final class Stream {
    var runs = false
    var counts = CheckpointCounts()
    var background = false
    val making = mutable.LinkedHashMap.empty[(Long, Long), Making]
    var names: Map[Long, String] = Map.empty
    var namesOf: () => Map[Long, String] = () => Map.empty
    val epochs = mutable.LinkedHashMap.empty[Long, Epoch]
  }

  private val streams = new ConcurrentHashMap[String, Stream]()
  @volatile private var options = Map.empty[String, String]

  /** A new application: `hello` was answered. */
  def begin(answer: JsonNode): Unit = {
    streams.clear()
    StorageCounters.clear()
    options = Option(answer.get("options")).toSeq.flatMap(_.properties().asScala).map(e => e.getKey -> e.getValue.asText()).toMap
  }

  /**
   * A run begins. `namesOf` tells the operators' names (id -> name) once the query has executed an epoch. The coordinator may have announced
   * this run's first checkpoint before: that of an epoch that runs again.
   */
  def started(
      sc: SparkContext, barrier: Barrier, queryId: String, runId: String, name: String, background: Boolean, batchMs: Long,
      namesOf: () => Map[Long, String]): Unit =
    contained("a run's begin") {
      val stream = streamOf(barrier.root)
      givenUp(sc, barrier.root, stream, "the query went back to its last completed checkpoint", _.run != barrier.run)
      stream.synchronized {
        stream.runs = true
        stream.background = background
        stream.names = Map.empty
        stream.namesOf = namesOf
        stream.epochs.clear()
      }
      sc.listenerBus.post(CheckpointRunStarted(
        barrier.root, barrier.run, barrier.epoch, System.currentTimeMillis(), queryId, runId, name, background, options, batchMs))
    }

  def runs(root: String): Boolean = Option(streams.get(root)).exists(stream => stream.synchronized(stream.runs))

  /** A run is over: its counts stay for the next one, and what refers to the query goes. */
  def ended(root: String): Unit = contained("a run's end") {
    Option(streams.get(root)).foreach { stream =>
      stream.synchronized {
        stream.runs = false
        stream.namesOf = () => Map.empty
        stream.epochs.clear()
      }
    }
  }

  /** Another coordinator serves: what the one before it had in the making, it has forgotten. */
  def coordinatorReplaced(sc: SparkContext): Unit = contained("the coordinator's end") {
    streams.asScala.foreach { case (root, stream) => givenUp(sc, root, stream, "the coordinator process died and was replaced", _ => true) }
  }

  private def givenUp(sc: SparkContext, root: String, stream: Stream, why: String, which: Making => Boolean): Unit = stream.synchronized {
    stream.making.values.filter(which).toSeq.foreach { m =>
      stream.making.remove((m.run, m.epoch))
      stream.counts = stream.counts.copy(failed = stream.counts.failed + 1)
      val event = CheckpointAborted(root, m.run, m.epoch, m.timeMs, Stopped, why, m.acked.size, 0, 0L, math.max(0L, System.currentTimeMillis() - m.timeMs),
        DurabilityLag(), m.late, stream.counts, Array.empty, Array.empty)
      log(event)
      sc.listenerBus.post(event)
    }
  }

  /** The epoch's barrier has been made; its tasks may start. */
  def barrier(barrier: Barrier): Unit = contained("a barrier") {
    val stream = streamOf(barrier.root)
    stream.synchronized {
      stream.epochs.remove(barrier.epoch)
      stream.epochs.put(barrier.epoch, new Epoch(barrier.run, barrier.timeMs, barrier.checkpoint))
      while (stream.epochs.size > EpochsKept) stream.epochs.remove(stream.epochs.head._1)
    }
  }

  /** Tasks and sink of the epoch are done. */
  def sunk(root: String, epoch: Long): Unit = contained("an epoch's end") {
    val stream = streamOf(root)
    stream.synchronized {
      stream.epochs.get(epoch).foreach(e => e.sinkMs = math.max(0L, System.currentTimeMillis() - e.timeMs))
    }
  }

  /** What an executor's `CommitLatencies` has gathered. */
  def committed(rows: JsonNode): Unit = contained("latencies of an executor") {
    Option(rows).toSeq.flatMap(_.elements().asScala).foreach { row =>
      val stream = streamOf(row.str("root"))
      stream.synchronized(stream.epochs.get(row.long("epoch")).foreach { e =>
        e.operators.updateWith(row.long("op"))(before => Some(math.max(before.getOrElse(0L), row.long("ms"))))
      })
    }
  }

  /** What an executor's agent has made durable, on its way to the coordinator. */
  def acknowledged(message: JsonNode): Unit = contained("acknowledgements") {
    val stream = streamOf(message.str("root"))
    stream.synchronized {
      if (stream.making.nonEmpty) message.get("acks").elements().asScala.filterNot(_.has("decline")).foreach { ack =>
        stream.making.get((ack.long("run"), ack.long("epoch"))).foreach(_.acked += ack.str("uid"))
      }
    }
  }

  /** Of a checkpoint in the making: how many snapshots are durable, and whether its epoch has ended; None: there is no such checkpoint. */
  def progressOf(root: String, run: Long, epoch: Long): Option[(Int, Boolean)] = Option(streams.get(root)).flatMap { stream =>
    stream.synchronized(stream.making.get((run, epoch)).map(m => (m.acked.size, stream.epochs.get(epoch).exists(_.sinkMs >= 0))))
  }

  def announced(sc: SparkContext, node: JsonNode): Unit = contained("an announcement of the coordinator") {
    val stream = streamOf(node.str("root"))
    StorageCounters.take(node.str("root"), node)
    val event = stream.synchronized {
      val kind = node.str("event")
      count(stream, kind)
      val (run, epoch) = (node.long("run"), node.long("epoch"))
      if (stream.names.isEmpty && node.has("operators")) stream.names = stream.namesOf()
      // A run that goes back in place is announced while the epochs of the one before it are still known.
      val mine = stream.epochs.get(epoch).filter(_.run == run)
      val late = stream.making.get((run, epoch)).map(_.late).getOrElse(stream.background && mine.exists(_.sinkMs >= 0))
      kind match {
        case "TRIGGERED" => stream.making.put((run, epoch), new Making(run, epoch, node.long("time_ms"), late))
        case "COMPLETED" | "ABORTED" =>
          stream.making.remove((run, epoch))
          mine.foreach(_.isReported = true)
        case _ =>
      }
      val others = if (kind == "COMPLETED") unreported(stream) else Array.empty[EpochLatency]
      CheckpointEvents.parse(node, new CheckpointEvents.Known(
        stream.counts, stream.names, mine.map(_.sinkMs).filter(_ >= 0).getOrElse(0L), late, others, System.currentTimeMillis()))
    }
    event.foreach { e =>
      log(e)
      sc.listenerBus.post(e)
    }
  }

  /** Epochs that no checkpoint tells of: they go into the next event, so that the event log has them too. */
  private def unreported(stream: Stream): Array[EpochLatency] = {
    val before = System.currentTimeMillis() - ReportedMs
    val found = stream.epochs.filter { case (_, e) => !e.checkpoint && !e.isReported && e.sinkMs >= 0 && e.timeMs + e.sinkMs < before }
    found.values.foreach(_.isReported = true)
    found.map { case (number, e) => e.latency(number) }.toArray
  }

  private def count(stream: Stream, event: String): Unit = stream.counts = event match {
    case "TRIGGERED" => stream.counts.copy(triggered = stream.counts.triggered + 1)
    case "COMPLETED" => stream.counts.copy(completed = stream.counts.completed + 1)
    case "ABORTED" => stream.counts.copy(failed = stream.counts.failed + 1)
    case "RESTORED" => stream.counts.copy(restored = stream.counts.restored + 1)
    case _ => stream.counts
  }

  private def log(event: CheckpointEvent): Unit = event match {
    case e: CheckpointCompleted =>
      val behind = if (e.lag.epochs > 0) s", ${e.lag.epochs} epochs behind" else ""
      logInfo(s"checkpoint ${e.epoch} of run ${e.run} completed: acks ${e.acked}/${e.required}, ${e.newBytes} new bytes of ${e.fullBytes}, " +
        s"${e.durationMs} ms$behind, ${e.path}")
    case e: CheckpointAborted if e.reason == Subsumed || e.reason == Stopped =>
      logInfo(s"checkpoint ${e.epoch} of run ${e.run} of ${e.root} was given up (${e.reason}) after acks ${e.acked}/${e.required}: ${e.message}")
    case e: CheckpointAborted =>
      logWarning(s"checkpoint ${e.epoch} of run ${e.run} of ${e.root} was aborted (${e.reason}) after acks ${e.acked}/${e.required}: ${e.message}")
    case e: CheckpointRestored => logInfo(s"${e.root} goes on from checkpoint ${e.epoch} of run ${e.run}, ${e.path}")
    case e: CheckpointSavepoint => logInfo(s"a savepoint of checkpoint ${e.epoch} of run ${e.run} is stored at ${e.path}")
    case _ =>
  }

  private def streamOf(root: String): Stream = streams.computeIfAbsent(root, _ => new Stream)

}
