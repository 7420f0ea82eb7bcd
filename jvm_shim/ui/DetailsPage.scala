package org.apache.spark.ckpt.ui

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

import org.apache.spark.ckpt.ui.CheckpointsPage.{facts, text}
import org.apache.spark.ui.ckpt.{Column, RowsTable}

/** One checkpoint: by operator, and by partition of one of them, the slowest first. */
class DetailsPage(tab: CheckpointsTab) extends CheckpointsPage(tab, "details", "Details") {

  override protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node] =
    Option(request.getParameter("id")).flatMap(stream.find) match {
      case Some(record) => <h4>Checkpoint {record.epoch} of Run {record.run}</h4> ++ about(record) ++ operators(request, stream, record)
      case None => <p>This checkpoint is not among the newest {CheckpointModel.RecordsKept} that are kept here.</p>
    }

  private def about(r: CheckpointRecord): Seq[Node] = {
    val failed = if (r.status == Status.Failed) Seq("Reason" -> <span><strong>{r.reason}</strong> {r.message}</span>) else Nil
    val completed =
      if (r.status == Status.Completed) Seq(
        "Metadata" -> text(s"${Cells.size(r.metadataBytes)}, stored in ${Cells.duration(r.finaliseMs)}"), "Path" -> Cells.path(r.path))
      else Nil
    val savepoint = if (r.isSavepoint) Seq("Savepoint" -> Cells.path(r.savepoint)) else Nil
    if (r.status == Status.InProgress) facts("checkpoint-about", Seq(
      "Status" -> Cells.status(r), "Acknowledged" -> text(Cells.acknowledged(r)), "Trigger Time" -> text(Cells.time(r.triggeredMs)),
      "Waits for" -> text(Cells.waitsFor(r))))
    else facts("checkpoint-about", Seq(
      "Status" -> Cells.status(r),
      "Acknowledged" -> text(s"${r.acked}/${r.required}${r.latestAckMs.map(t => s", the latest after ${Cells.duration(t - r.triggeredMs)}").getOrElse("")}"),
      "Trigger Time" -> text(Cells.time(r.triggeredMs)),
      "End to End Duration" -> text(s"${Cells.duration(r.durationMs)}; the plan was durable after ${Cells.duration(r.planMs)}"),
      "Latency to the Sink" -> text(Cells.duration(r.sinkMs)),
      "Size" -> text(s"${Cells.size(r.newBytes)} stored, of ${Cells.size(r.fullBytes)}")) ++ failed ++ completed ++ savepoint)
  }

  private def operators(request: HttpServletRequest, stream: StreamView, record: CheckpointRecord): Seq[Node] =
    if (record.status == Status.InProgress) <p>Operators and partitions are shown once the checkpoint has come to its end.</p>
    else if (record.operators.isEmpty) <p>No operator has acknowledged a snapshot.</p>
    else {
      val current = Option(request.getParameter("operator")).flatMap(_.toLongOption).flatMap(id => record.operators.find(_.id == id))
        .getOrElse(record.operators.maxBy(_.ackedMs))
      val columns = Seq[Column[OperatorRecord]](
        Column("Operator", "Its number in the plan", _.id, o =>
          <a href={address(request, "details/", stream, s"&id=${record.id}&operator=${o.id}")}>{s"${o.id}: ${o.name}"}</a>),
        Column("Partitions", "", _.partitions, o => text(Cells.number(o.partitions.toLong))),
        Column("Latency", "From the barrier's trigger to the commit of its last partition", _.latencyMs, o => text(Cells.duration(o.latencyMs))),
        Column("End to End Duration", "From the barrier's trigger until its last snapshot was durable", _.ackedMs, o => text(Cells.duration(o.ackedMs))),
        Column("Start Delay (max)", "From the barrier's trigger until the task had the state", _.startDelayMsMax,
          o => text(Cells.duration(o.startDelayMsMax.round))),
        Column("Sync (max)", "The task waits for it", _.syncMsMax, o => text(Cells.micros((o.syncMsMax * 1000).round))),
        Column("Async (max)", "The task goes on meanwhile", _.asyncMsMax, o => text(Cells.duration(o.asyncMsMax.round))),
        Column("Checkpointed Size", "", _.newBytes, o => text(Cells.size(o.newBytes))),
        Column("Full Size", "", _.fullBytes, o => text(Cells.size(o.fullBytes))))
      <h4>Operators</h4> ++
        new RowsTable(request, tab.address(request, "details/"), "operators", columns, record.operators, "End to End Duration").shown ++
        <h4>{s"Partitions of ${current.id}: ${current.name}"}</h4> ++ distributions(current) ++ partitions(request, current)
    }

  private def distributions(o: OperatorRecord): Seq[Node] =
    SummaryPage.table("subtask-summary", Seq(
      ("Start Delay", o.column(0), Cells.duration _), ("Alignment", o.column(1), Cells.duration _), ("Sync", o.column(2), Cells.micros _),
      ("Async", o.column(3), Cells.duration _), ("Checkpointed Size", o.column(4), Cells.size _), ("Full Size", o.column(5), Cells.size _)))

  private def partitions(request: HttpServletRequest, o: OperatorRecord): Seq[Node] = {
    val columns = Seq[Column[SubtaskRecord]](
      Column("Partition", "", _.partition, s => text(s.partition)),
      Column("Executor", "", _.executor, s => text(s.executor)),
      Column("End to End Duration", "From the barrier's trigger until this snapshot was durable", _.endToEndMs, s => text(Cells.duration(s.endToEndMs))),
      Column("Start Delay", "From the barrier's trigger until the task had the state", _.startDelayMs, s => text(Cells.duration(s.startDelayMs))),
      Column("Alignment", "How long this snapshot waited for the last one of its operator", _.alignmentMs, s => text(Cells.duration(s.alignmentMs))),
      Column("Sync", "The task waits for it", _.syncUs, s => text(Cells.micros(s.syncUs))),
      Column("Async", "The task goes on meanwhile", _.asyncMs, s => text(Cells.duration(s.asyncMs))),
      Column("Checkpointed Size", "", _.newBytes, s => text(Cells.size(s.newBytes))),
      Column("Full Size", "", _.fullBytes, s => text(Cells.size(s.fullBytes))))
    val rows = o.subtasks
    val note =
      if (rows.isEmpty) <p>The partitions of this checkpoint are no longer kept; newer ones are.</p>
      else if (o.isSummarised) <p>{s"The slowest ${rows.size} of ${Cells.number(o.partitions.toLong)} partitions; the table above is about all of them."}</p>
      else Nil
    note ++ (if (rows.isEmpty) Nil
      else new RowsTable(request, tab.address(request, "details/"), "partitions", columns, rows, "End to End Duration").shown)
  }
}
