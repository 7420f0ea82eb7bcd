package org.apache.spark.ckpt.ui

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

import org.apache.spark.ckpt.ui.CheckpointsPage.text
import org.apache.spark.ui.ckpt.{Column, RowsTable}

/** The newest checkpoints, one a row. */
class HistoryPage(tab: CheckpointsTab) extends CheckpointsPage(tab, "history", "History") {

  override protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node] = {
    val columns = Seq[Column[CheckpointRecord]](
      Column("ID", "The epoch", _.epoch, checkpointLink(request, stream, _)),
      Column("Run", "Which life of the stream: 1, 2, 3, …", _.run, r => text(r.run)),
      Column("Status", "", _.status.toString, Cells.status),
      Column("Acknowledged", "Snapshots that are durable, of those that are needed", _.acked,
        r => text(Cells.acknowledged(r))),
      Column("Trigger Time", "", _.triggeredMs, r => text(Cells.time(r.triggeredMs))),
      Column("Latest Acknowledgement", "When the last snapshot was durable", _.latestAckMs.getOrElse(0L),
        r => r.latestAckMs.map(t => text(Cells.time(t))).getOrElse(Cells.Nothing)),
      Column("End to End Duration", "From the trigger until _metadata was stored", _.durationMs, ended(_)(r => Cells.duration(r.durationMs))),
      Column("Checkpointed Size", "What this checkpoint had to store", _.newBytes, ended(_)(r => Cells.size(r.newBytes))),
      Column("Full Size", "What it takes to load all of it", _.fullBytes, Cells.fullSize),
      Column("Path or Reason", "", r => r.path + r.reason, outcome, wraps = true))
    <h4>History</h4> ++
      (if (stream.records.isEmpty) <p>No checkpoint has been triggered yet.</p>
       else new RowsTable(request, tab.address(request, "history/"), "checkpoints", columns, stream.records, "Trigger Time").shown)
  }

  private def ended(r: CheckpointRecord)(show: CheckpointRecord => String): Seq[Node] =
    if (r.status == Status.InProgress) Cells.Nothing else text(show(r))

  private def outcome(r: CheckpointRecord): Seq[Node] = r.status match {
    case Status.Completed => Cells.path(if (r.isSavepoint) r.savepoint else r.path)
    case Status.Failed => <span><strong>{r.reason}</strong> {r.message}</span>
    case _ => text(s"waits for ${Cells.waitsFor(r)}")
  }
}
