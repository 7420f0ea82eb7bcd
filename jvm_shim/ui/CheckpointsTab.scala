package org.apache.spark.ckpt.ui

import java.net.URLEncoder
import java.nio.charset.StandardCharsets.UTF_8

import scala.xml.{Node, Text}

import jakarta.servlet.http.HttpServletRequest
import org.json4s.JValue

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.ckpt.{CheckpointFeed, DriverSide, RestoreLog}
import org.apache.spark.ui.{SparkUI, SparkUITab, UIUtils, WebUIPage}

/** The Checkpoints tab of the Spark UI, of a running application or in the history server; the same as JSON below `/checkpoints/json`. */
class CheckpointsTab(ui: SparkUI, found: => CheckpointModel, val restoring: String => Option[String] = _ => None) extends SparkUITab(ui, "checkpoints") {
  override val name: String = "Checkpoints"
  private lazy val known = found

  def model: CheckpointModel = known
  def address(request: HttpServletRequest, page: String): String = UIUtils.prependBaseUri(request, ui.basePath, s"/checkpoints/$page")

  Seq(new OverviewPage(this), new HistoryPage(this), new DetailsPage(this), new SummaryPage(this), new ConfigurationPage(this)).foreach(attachPage)
  ui.attachTab(this)
}

object CheckpointsTab {
  private val Queue = "checkpoints"

  /** Of a running application. */
  def attach(sc: SparkContext): Unit = {
    val model = new CheckpointModel(Some(CheckpointModel.Live(CheckpointFeed.progressOf, () => System.currentTimeMillis(), DriverSide.sourceLags)))
    sc.listenerBus.addToQueue(new CheckpointHistory(model, Some(new CheckpointMetrics(SparkEnv.get.metricsSystem, model))), Queue)
    sc.ui.foreach(new CheckpointsTab(_, model, RestoreLog.text))
  }
}

/** What all pages have in common: the query they are about, and the way to the others. */
abstract class CheckpointsPage(tab: CheckpointsTab, prefix: String, title: String) extends WebUIPage(prefix) {

  protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node]

  override def render(request: HttpServletRequest): Seq[Node] = {
    val streams = tab.model.views
    def shown: Seq[Node] = CheckpointsPage.chosen(streams, request) match {
      case Some(stream) => queries(request, streams, stream) ++ head(request, stream) ++ content(request, stream)
      case None if streams.isEmpty => <p>No query has been started yet.</p>
      case None => <p>There is no query {request.getParameter("query")} here.</p> ++ queries(request, streams, streams.head)
    }
    UIUtils.headerSparkPage(request, s"Checkpoints: $title", shown, tab)
  }

  protected def address(request: HttpServletRequest, page: String, stream: StreamView, more: String = ""): String =
    s"${tab.address(request, page)}?query=${CheckpointsPage.encoded(stream.key)}$more"

  protected def checkpointLink(request: HttpServletRequest, stream: StreamView, record: CheckpointRecord): Seq[Node] =
    <a href={address(request, "details/", stream, s"&id=${record.id}")}>{record.epoch}</a>

  private def queries(request: HttpServletRequest, streams: Seq[StreamView], current: StreamView): Seq[Node] =
    if (streams.size < 2) Nil
    else
      <div class="mb-3" id="checkpoint-queries">Queries: {streams.map { s =>
        if (s.root == current.root) <strong class="me-3">{s.title}</strong>
        else <a class="me-3" href={s"${tab.address(request, prefix)}?query=${CheckpointsPage.encoded(s.key)}"}>{s.title}</a>
      }}</div>

  private def head(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    val tabs = Seq("" -> "Overview", "history/" -> "History", "summary/" -> "Summary", "configuration/" -> "Configuration")
    val named = Seq("Name" -> stream.name, "Id" -> stream.queryId, "RunId" -> stream.runId, "Location" -> stream.root,
      "Checkpoints" -> (if (stream.run > 0) Cells.rhythm(stream) else "")).filter(_._2.nonEmpty)
    <div class="mb-3">{named.map { case (what, value) => <div><strong>{what}: </strong>{value}</div> }}</div>
    <ul class="nav nav-tabs mb-3" id="checkpoint-pages">
      {tabs.map { case (page, label) =>
        val active = if (page.stripSuffix("/") == prefix) "nav-link active" else "nav-link"
        <li class="nav-item"><a class={active} href={address(request, page, stream)}>{label}</a></li>
      }}
      <li class="nav-item ms-auto"><a class="nav-link" href={address(request, "json/", stream)}>JSON</a></li>
    </ul>
  }
}

object CheckpointsPage {
  def encoded(text: String): String = URLEncoder.encode(text, UTF_8)

  /** The query that the address names by its id, run id, name or location; the one started last if it names none. */
  def chosen(streams: Seq[StreamView], request: HttpServletRequest): Option[StreamView] = Option(request.getParameter("query")) match {
    case Some(q) => streams.find(_.key == q).orElse(streams.find(s => Seq(s.queryId, s.runId, s.name, s.root).contains(q)))
    case None => streams.headOption
  }

  /** A table of a few lines, each a word and what it means. */
  def facts(id: String, lines: Seq[(String, Seq[Node])]): Seq[Node] =
    <table class="table table-bordered table-sm" style="width: auto;" id={id}>
      <tbody>{lines.map { case (word, value) => <tr><th style="white-space: nowrap;">{word}</th><td>{value}</td></tr> }}</tbody>
    </table>

  def text(value: Any): Seq[Node] = Text(value.toString)
}

/** Counts, the latest of each kind, and how they went over time. The JSON of the whole tab hangs here. */
class OverviewPage(tab: CheckpointsTab) extends CheckpointsPage(tab, "", "Overview") {
  import CheckpointsPage.text

  override def renderJson(request: HttpServletRequest): JValue = CheckpointsJson.answer(tab.model, request)

  override protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    val counts = stream.counts
    val lines = Seq(
      "Triggered" -> text(Cells.number(counts.triggered)), "In progress" -> text(Cells.number(stream.inProgress.size.toLong)),
      "Completed" -> text(Cells.number(counts.completed)), "Failed" -> text(Cells.number(counts.failed)),
      "Restored" -> text(Cells.number(counts.restored)))
    val lag = Seq(
      "Epochs behind" -> text(Cells.number(stream.lag.epochs)), "Time behind" -> text(Cells.duration(stream.lag.ms)),
      "Waiting to be stored" -> text(Cells.size(stream.lag.bytes)))
    <div class="d-flex flex-wrap gap-5">
      <div><h4>Checkpoint Counts</h4>{line("checkpoint-counts", lines)}</div>
      <div><h4 title="Finished epochs that the newest completed checkpoint does not hold">Durable State</h4>{line("checkpoint-lag", lag)}</div>
    </div> ++
      (if (stream.sources.isEmpty) Nil else <h4 title="Records that the newest completed checkpoint does not hold">Behind the Sources</h4> ++ sources(stream)) ++
      tab.restoring(stream.root).toSeq.map(text => <p id="checkpoint-restoring"><strong>Loading its state: </strong>{text}</p>) ++
      (if (stream.inProgress.isEmpty) Nil else <h4>In Progress</h4> ++ inProgress(request, stream)) ++
      <h4>Latest</h4> ++ latest(request, stream) ++
      <h4>Over Time</h4> ++ charts(stream)
  }

  private def line(id: String, cells: Seq[(String, Seq[Node])]): Seq[Node] =
    <table class="table table-bordered table-sm" style="width: auto;" id={id}>
      <thead><tr>{cells.map(c => <th style="padding-right: 2rem;">{c._1}</th>)}</tr></thead>
      <tbody><tr>{cells.map(c => <td>{c._2}</td>)}</tr></tbody>
    </table>

  private def sources(stream: StreamView): Seq[Node] =
    <table class="table table-bordered table-sm" style="width: auto;" id="checkpoint-sources">
      <thead><tr>{Seq("Source", "Records", "Age of the Oldest").map(h => <th style="padding-right: 2rem;">{h}</th>)}</tr></thead>
      <tbody>{stream.sources.map { s =>
        <tr><td>{s.source}</td><td>{s.records.fold(Cells.Nothing)(r => text(Cells.number(r)))}</td><td>{s.ms.fold(Cells.Nothing)(ms => text(Cells.duration(ms)))}</td></tr>
      }}</tbody>
    </table>

  private def inProgress(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    val now = System.currentTimeMillis()
    <table class="table table-bordered table-sm" style="width: auto;" id="checkpoint-in-progress">
      <thead><tr>{Seq("ID", "Status", "Trigger Time", "Age", "Acknowledged", "Waits for").map(h => <th style="padding-right: 2rem;">{h}</th>)}</tr></thead>
      <tbody>{stream.inProgress.map { r =>
        <tr><td>{checkpointLink(request, stream, r)}</td><td>{Cells.status(r)}</td><td>{Cells.time(r.triggeredMs)}</td>
          <td>{Cells.duration(math.max(0L, now - r.triggeredMs))}</td><td>{Cells.acknowledged(r)}</td><td>{Cells.waitsFor(r)}</td></tr>
      }}</tbody>
    </table>
  }

  private def latest(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    def of(record: Option[CheckpointRecord]): Seq[Seq[Node]] = record.toSeq.flatMap { r =>
      val outcome = if (r.status == Status.Failed) <span><strong>{r.reason}</strong> {r.message}</span> else Cells.path(if (r.isSavepoint) r.savepoint else r.path)
      Seq(checkpointLink(request, stream, r), text(r.run), text(Cells.time(r.triggeredMs)), text(Cells.acknowledged(r)), text(Cells.duration(r.durationMs)),
        text(Cells.size(r.newBytes)), Cells.fullSize(r), outcome)
    }
    def restored(r: RestoredRecord): Seq[Seq[Node]] = Seq(
      text(r.epoch), text(r.run), text(Cells.time(r.restoredMs)), Cells.Nothing, Cells.Nothing, Cells.Nothing, text(Cells.size(r.fullBytes)),
      (if (r.fromSavepoint) text("savepoint ") else Nil) ++ Cells.path(r.origin))
    val rows = Seq(
      "Completed checkpoint" -> of(stream.latestCompleted), "Failed checkpoint" -> of(stream.latestFailed), "Savepoint" -> of(stream.latestSavepoint),
      "Restore" -> stream.latestRestored.toSeq.flatMap(restored))
    val head = Seq("", "ID", "Run", "Time", "Acknowledged", "End to End Duration", "Checkpointed Size", "Full Size", "Path or Reason")
    <table class="table table-bordered table-sm table-striped" id="checkpoint-latest">
      <thead><tr>{head.map(h => <th>{h}</th>)}</tr></thead>
      <tbody>{rows.map { case (what, cells) =>
        <tr><th class="text-nowrap">{what}</th>{
          if (cells.isEmpty) head.tail.map(_ => <td>{Cells.Nothing}</td>)
          else cells.init.map(c => <td class="text-nowrap">{c}</td>) :+ <td>{cells.last}</td>
        }</tr>
      }}</tbody>
    </table>
  }

  private def charts(stream: StreamView): Seq[Node] = {
    val completed = stream.completed
    val failed = stream.records.filter(r => r.status == Status.Failed && !r.isGivenUp).map(_.triggeredMs)
    val lags = stream.lags.map(l => l.timeMs -> l.lag.ms)
    def of(value: CheckpointRecord => Long): Seq[(Long, Long)] = completed.map(r => r.triggeredMs -> value(r))
    val behind = stream.eventTimes.flatMap(e => e.watermarkMs.map(e.timeMs -> _))
    <div id="checkpoint-charts">{
      Chart.line("End to End Duration", of(_.durationMs), Cells.duration, failed) ++
        Chart.line("Checkpointed Size", of(_.newBytes), Cells.size, failed) ++
        Chart.line("Full Size", of(_.fullBytes), Cells.size) ++
        Chart.line("Latency to the Sink", stream.latencies.map(l => l.timeMs -> l.sinkMs), Cells.duration) ++
        (if (stream.standstills.isEmpty) Nil
         else Chart.line("Standstill at the Barrier", stream.standstills.map(s => s.timeMs -> s.ms), Cells.duration)) ++
        (if (lags.exists(_._2 > 0)) Chart.line("Durability Lag", lags, Cells.duration) else Nil) ++
        (if (behind.nonEmpty) Chart.line("Watermark behind the Clock", behind, Cells.duration) else Nil)
    }</div>
  }
}
