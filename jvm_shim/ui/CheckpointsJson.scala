package org.apache.spark.ckpt.ui

import scala.util.Try

import jakarta.servlet.http.HttpServletRequest
import org.json4s.{JArray, JBool, JInt, JNull, JObject, JString, JValue}

import org.apache.spark.network.util.JavaUtils

/**
 * What the tab shows as JSON, below `/checkpoints/json`: ``, `/config`, `/details/<id>`, `/details/<id>/subtasks/<operator>` in the shape
 * of Flink's `/jobs/<job>/checkpoints…`, and `/latencies`, `/queries`. `?query=` names one of several queries. Fields of Flink that mean
 * nothing here (unaligned, buffered, …) are left out.
 */
object CheckpointsJson {
  private val Base = "/checkpoints/json"

  /** Raises IllegalArgumentException for what is not there: Spark's servlet answers with 400 and the message. */
  def answer(model: CheckpointModel, request: HttpServletRequest): JValue = {
    val uri = request.getRequestURI
    val asked = uri.substring(uri.indexOf(Base) + Base.length).split('/').filter(_.nonEmpty).toList
    val streams = model.views
    asked match {
      case List("queries") => JArray(streams.toList.map(query))
      case _ =>
        if (streams.size > 1 && request.getParameter("query") == null) {
          throw new IllegalArgumentException(s"there are ${streams.size} queries; add ?query= and an id of $Base/queries")
        }
        val stream = CheckpointsPage.chosen(streams, request)
          .getOrElse(throw new IllegalArgumentException(s"there is no such query; $Base/queries lists them"))
        asked match {
          case Nil => overview(stream)
          case List("config") => config(stream)
          case List("latencies") => latencies(stream)
          case List("details", id) => details(find(stream, id))
          case List("details", id, "subtasks", operator) => subtasks(find(stream, id), operator)
          case other => throw new IllegalArgumentException(s"there is no ${other.mkString("/")} below $Base")
        }
    }
  }

  private def find(stream: StreamView, id: String): CheckpointRecord =
    stream.find(id).getOrElse(throw new IllegalArgumentException(s"checkpoint $id is not among those that are kept"))

  private def query(s: StreamView): JObject =
    JObject("id" -> JString(s.queryId), "run_id" -> JString(s.runId), "name" -> JString(s.name), "location" -> JString(s.root), "run" -> JInt(s.run))

  private def overview(s: StreamView): JObject = {
    val completed = s.completed
    def of(value: CheckpointRecord => Long): JObject = distribution(Distribution.of(completed.map(value)))
    def latest(record: Option[CheckpointRecord]): JValue = record.map(statistics).getOrElse(JNull)
    JObject(
      "counts" -> JObject(
        "restored" -> JInt(s.counts.restored), "total" -> JInt(s.counts.triggered), "in_progress" -> JInt(s.inProgress.size),
        "completed" -> JInt(s.counts.completed), "failed" -> JInt(s.counts.failed)),
      "summary" -> JObject(
        "checkpointed_size" -> of(_.newBytes), "state_size" -> of(_.fullBytes), "end_to_end_duration" -> of(_.durationMs),
        "metadata_size" -> of(_.metadataBytes)),
      "latest" -> JObject(
        "completed" -> latest(s.latestCompleted), "savepoint" -> latest(s.latestSavepoint), "failed" -> latest(s.latestFailed),
        "restored" -> s.latestRestored.map(r => JObject(
          "id" -> JInt(r.epoch), "run" -> JInt(r.run), "restore_timestamp" -> JInt(r.restoredMs), "is_savepoint" -> JBool(r.fromSavepoint),
          "external_path" -> JString(r.origin))).getOrElse(JNull)),
      "lag" -> JObject("epochs" -> JInt(s.lag.epochs), "ms" -> JInt(s.lag.ms), "bytes" -> JInt(s.lag.bytes)),
      "sources" -> JArray(s.sources.toList.map(l => JObject(
        "source" -> JString(l.source), "records" -> l.records.map(JInt(_)).getOrElse(JNull), "ms" -> l.ms.map(JInt(_)).getOrElse(JNull)))),
      "history" -> JArray(s.records.toList.map(statistics)))
  }

  private def statistics(r: CheckpointRecord): JObject = JObject(List(
    "className" -> JString(r.status match {
      case Status.Completed => "completed"
      case Status.Failed => "failed"
      case _ => "in_progress"
    }),
    "id" -> JInt(r.epoch),
    "run" -> JInt(r.run),
    "status" -> JString(r.status.toString),
    "is_savepoint" -> JBool(r.isSavepoint),
    "checkpoint_type" -> JString(if (r.isSavepoint) "SAVEPOINT" else "CHECKPOINT"),
    "is_late" -> JBool(r.late),
    "trigger_timestamp" -> JInt(r.triggeredMs),
    "latest_ack_timestamp" -> JInt(r.latestAckMs.fold(-1L)(identity)),
    "checkpointed_size" -> JInt(r.newBytes),
    "state_size" -> JInt(r.fullBytes),
    "end_to_end_duration" -> JInt(r.durationMs),
    "num_subtasks" -> JInt(r.required),
    "num_acknowledged_subtasks" -> JInt(r.acked)) ++ (r.status match {
    case Status.Completed => List("external_path" -> JString(if (r.isSavepoint) r.savepoint else r.path), "metadata_size" -> JInt(r.metadataBytes))
    case Status.Failed => List(
      "failure_timestamp" -> JInt(r.triggeredMs + r.durationMs), "failure_message" -> JString(r.message), "failure_reason" -> JString(r.reason))
    case _ => Nil
  }))

  private def details(r: CheckpointRecord): JObject = JObject(statistics(r).obj ++ List(
    "plan_duration" -> JInt(r.planMs), "finalise_duration" -> JInt(r.finaliseMs), "sink_latency" -> JInt(r.sinkMs),
    "tasks" -> JObject(r.operators.toList.map(o => o.id.toString -> JObject(task(r, o))))))

  private def task(r: CheckpointRecord, o: OperatorRecord): List[(String, JValue)] = List(
    "id" -> JInt(r.epoch),
    "operator" -> JInt(o.id),
    "name" -> JString(o.name),
    "status" -> JString(r.status.toString),
    "latest_ack_timestamp" -> JInt(r.triggeredMs + r.planMs + o.ackedMs),
    "checkpointed_size" -> JInt(o.newBytes),
    "state_size" -> JInt(o.fullBytes),
    "end_to_end_duration" -> JInt(o.ackedMs),
    "latency" -> JInt(o.latencyMs),
    "num_subtasks" -> JInt(o.partitions),
    "num_acknowledged_subtasks" -> JInt(o.partitions))

  private def subtasks(r: CheckpointRecord, operator: String): JObject = {
    val o = r.operators.find(_.id.toString == operator).getOrElse(
      throw new IllegalArgumentException(s"checkpoint ${r.epoch} has no operator $operator"))
    val rows = o.subtasks
    JObject(task(r, o) ++ List(
      "summary" -> JObject(
        "checkpointed_size" -> distribution(o.column(4)), "state_size" -> distribution(o.column(5)),
        "end_to_end_duration" -> distribution(Distribution.of(rows.map(_.endToEndMs))),
        "checkpoint_duration" -> JObject("sync" -> distribution(inMillis(o.column(2))), "async" -> distribution(o.column(3))),
        "alignment" -> JObject("duration" -> distribution(o.column(1))), "start_delay" -> distribution(o.column(0))),
      "is_summarised" -> JBool(o.isSummarised),
      "subtasks" -> JArray(rows.toList.map(s => JObject(
        "index" -> JInt(s.partition), "status" -> JString("completed"), "executor" -> JString(s.executor),
        "ack_timestamp" -> JInt(r.triggeredMs + r.planMs + s.endToEndMs), "end_to_end_duration" -> JInt(s.endToEndMs),
        "checkpointed_size" -> JInt(s.newBytes), "state_size" -> JInt(s.fullBytes),
        "checkpoint" -> JObject("sync" -> JInt(Math.round(s.syncUs / 1000.0)), "async" -> JInt(s.asyncMs)),
        "alignment" -> JObject("duration" -> JInt(s.alignmentMs)), "start_delay" -> JInt(s.startDelayMs))))))
  }

  private def inMillis(us: Distribution): Distribution = {
    def ms(v: Long): Long = Math.round(v / 1000.0)
    Distribution(ms(us.min), ms(us.avg), ms(us.max), ms(us.p50), ms(us.p90), ms(us.p95), ms(us.p99), ms(us.p999))
  }

  private def config(s: StreamView): JObject = {
    val options = s.options
    def millis(name: String): JValue = options.get(name).flatMap(t => Try(JavaUtils.timeStringAsMs(t.filterNot(_.isWhitespace))).toOption).map(JInt(_)).getOrElse(JNull)
    def number(name: String): JValue = options.get(name).flatMap(_.toLongOption).map(JInt(_)).getOrElse(JNull)
    JObject(
      "mode" -> JString(options.getOrElse("mode", "EXACTLY_ONCE").toLowerCase(java.util.Locale.ROOT)),
      "interval" -> (if (options.get("interval").contains("never")) JInt(BigInt(Long.MaxValue)) else millis("interval")), "timeout" -> millis("timeout"), "min_pause" -> millis("minPause"),
      "max_concurrent" -> number("maxConcurrent"), "tolerable_failed_checkpoints" -> number("tolerableFailures"),
      "externalization" -> JObject("enabled" -> JBool(true), "delete_on_cancellation" -> JBool(options.get("onStop").contains("DELETE"))),
      "background" -> JBool(s.background),
      "real_time_batch" -> (if (s.batchMs > 0) JInt(s.batchMs) else JNull),
      "state_backend" -> JString("RocksDBStateStore"),
      "checkpoint_storage" -> JString(options.getOrElse("storage", s"${s.root}/_ckpt")),
      "unaligned_checkpoints" -> JBool(false),
      "state_changelog_enabled" -> JBool(true),
      "options" -> JObject(options.toList.sortBy(_._1).map { case (name, value) => name -> JString(value) }))
  }

  private def latencies(s: StreamView): JObject = {
    val names = s.operatorNames.toMap
    val stood = s.standstills.map(one => one.epoch -> one.ms).toMap
    def of(values: Seq[Long]): JObject = distribution(Distribution.of(values))
    JObject(
      "operators" -> JArray(s.latencies.flatMap(_.operators.keys).distinct.sorted.toList.map(id => JObject(
        "id" -> JInt(id), "name" -> JString(names.getOrElse(id, s"operator $id")), "latency" -> of(s.latencies.flatMap(_.operators.get(id)))))),
      "sink" -> of(s.latencies.map(_.sinkMs)),
      "standstill" -> (if (s.standstills.isEmpty) JNull else of(s.standstills.map(_.ms))),
      "newest_event_behind" -> of(s.eventTimes.flatMap(_.newestEventMs)),
      "watermark_behind" -> of(s.eventTimes.flatMap(_.watermarkMs)),
      "epochs" -> JArray(s.latencies.toList.map(l => JObject(
        "id" -> JInt(l.epoch), "trigger_timestamp" -> JInt(l.timeMs), "sink" -> JInt(l.sinkMs),
        "standstill" -> stood.get(l.epoch).map(JInt(_)).getOrElse(JNull),
        "operators" -> JObject(l.operators.toList.sortBy(_._1).map { case (id, ms) => id.toString -> JInt(ms) })))))
  }

  private def distribution(d: Distribution): JObject = JObject(
    "min" -> JInt(d.min), "max" -> JInt(d.max), "avg" -> JInt(d.avg), "p50" -> JInt(d.p50), "p90" -> JInt(d.p90), "p95" -> JInt(d.p95),
    "p99" -> JInt(d.p99), "p999" -> JInt(d.p999))
}
