package org.apache.spark.ckpt.ui

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

/** Distributions over the checkpoints and epochs that are kept. */
class SummaryPage(tab: CheckpointsTab) extends CheckpointsPage(tab, "summary", "Summary") {

  override protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    val completed = stream.completed
    def of(value: CheckpointRecord => Long): Distribution = Distribution.of(completed.map(value))
    val epochs = (SummaryPage.latencies(stream) ++ SummaryPage.standstill(stream)).map { case (name, values) => (name, Distribution.of(values), Cells.duration _) }
    val times = Seq("Newest Event behind the Clock" -> stream.eventTimes.flatMap(_.newestEventMs),
      "Watermark behind the Clock" -> stream.eventTimes.flatMap(_.watermarkMs)).filter(_._2.nonEmpty)
    val from =
      if (stream.batchMs > 0) s"from the end of each batch, which takes rows for ${Cells.duration(stream.batchMs)},"
      else "from the barrier's trigger"
    <h4>{s"${Cells.number(completed.size.toLong)} Completed Checkpoints"}</h4> ++
      SummaryPage.table("checkpoint-summary", Seq(
        ("End to End Duration", of(_.durationMs), Cells.duration _), ("Checkpointed Size", of(_.newBytes), Cells.size _),
        ("Full Size", of(_.fullBytes), Cells.size _), ("Metadata Size", of(_.metadataBytes), Cells.size _),
        ("Storing the Plan", of(_.planMs), Cells.duration _), ("Storing _metadata", of(_.finaliseMs), Cells.duration _),
        ("Sync (slowest)", of(r => (r.operators.map(_.syncMsMax).maxOption.getOrElse(0.0) * 1000).round), Cells.micros _),
        ("Async (slowest)", of(_.operators.map(_.asyncMsMax.round).maxOption.getOrElse(0L)), Cells.duration _))) ++
      <h4>Latency</h4> ++
      <p>Of {Cells.number(stream.latencies.size.toLong)} epochs, {from} to the commit of each operator's last partition, and until the sink was done.</p> ++
      SummaryPage.table("latency-summary", epochs) ++
      (if (times.isEmpty) Nil
       else <h4>Event Time</h4> ++ SummaryPage.table("event-time-summary", times.map { case (name, values) => (name, Distribution.of(values), Cells.duration _) }))
  }
}

object SummaryPage {
  def table(id: String, lines: Seq[(String, Distribution, Long => String)]): Seq[Node] =
    <table class="table table-bordered table-sm table-striped" style="width: auto;" id={id}>
      <thead><tr>{Seq("", "Minimum", "Average", "Maximum", "p50", "p90", "p95", "p99", "p99.9").map(h => <th style="padding-right: 1.5rem;">{h}</th>)}</tr></thead>
      <tbody>{lines.map { case (name, d, show) =>
        <tr><th>{name}</th>{Seq(d.min, d.avg, d.max, d.p50, d.p90, d.p95, d.p99, d.p999).map(v => <td>{show(v)}</td>)}</tr>
      }}</tbody>
    </table>

  /** By operator, in the plan's order, and of the sink. */
  def latencies(stream: StreamView): Seq[(String, Seq[Long])] = {
    val names = stream.operatorNames.toMap
    val operators = stream.latencies.flatMap(_.operators.keys).distinct.sorted
    operators.map(id => s"$id: ${names.getOrElse(id, s"operator $id")}" -> stream.latencies.flatMap(_.operators.get(id))) :+
      ("Sink" -> stream.latencies.map(_.sinkMs))
  }

  /** In real time only. */
  private def standstill(stream: StreamView): Seq[(String, Seq[Long])] =
    if (stream.standstills.isEmpty) Nil else Seq("Standstill at the Barrier" -> stream.standstills.map(_.ms))
}
