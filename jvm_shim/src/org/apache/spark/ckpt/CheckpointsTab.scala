package org.apache.spark.ckpt

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest
import org.json4s.{JArray, JInt, JNull, JObject, JString, JValue}

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.ui.{SparkUI, SparkUITab, UIUtils, WebUIPage}

/** The Checkpoints tab of the Spark UI; the same as JSON below `/checkpoints/json/`. */
class CheckpointsTab(ui: SparkUI, history: CheckpointHistory) extends SparkUITab(ui, "checkpoints") {
  override val name: String = "Checkpoints"
  attachPage(new CheckpointsPage(this, history))
}

object CheckpointsTab extends Logging {
  /** Without a UI there is no tab; whatever goes wrong here, the application goes on without it. */
  def attach(sc: SparkContext): Unit =
    try sc.ui.foreach { ui =>
      val history = new CheckpointHistory
      sc.addSparkListener(history)
      ui.attachTab(new CheckpointsTab(ui, history))
    } catch {
      case e: Throwable => logWarning("the Checkpoints tab cannot be shown", e)
    }
}

class CheckpointsPage(tab: CheckpointsTab, history: CheckpointHistory) extends WebUIPage("") {
  import CheckpointHistory._

  override def render(request: HttpServletRequest): Seq[Node] = {
    val records = history.newest
    val content = records.map(_.root).distinct.flatMap { root =>
      val own = records.filter(_.root == root)
      <h4>{root}</h4>
      <p>
        Completed: {history.count(root, Completed)}, failed: {history.count(root, Failed)}, restored: {history.count(root, Restored)},
        in progress: {own.count(_.status == InProgress)}
      </p> ++ UIUtils.listingTable(Columns, row, own)
    }
    val shown = if (content.isEmpty) <p>No checkpoint has been triggered yet.</p> else content
    UIUtils.headerSparkPage(request, "Checkpoints", shown, tab)
  }

  override def renderJson(request: HttpServletRequest): JValue = JArray(history.newest.toList.map { r =>
    JObject(
      "root" -> JString(r.root), "run" -> JInt(r.run), "epoch" -> JInt(r.epoch), "status" -> JString(r.status),
      "trigger_timestamp" -> JInt(r.triggeredMs),
      "acked" -> number(r, _.acked), "required" -> number(r, _.required), "end_to_end_duration" -> number(r, _.durationMs),
      "checkpointed_size" -> number(r, _.newBytes), "full_size" -> number(r, _.fullBytes), "note" -> JString(r.note))
  })

  private def number(r: CheckpointRecord, of: CheckpointCompleted => Long): JValue = r.completed.map(c => JInt(of(c))).getOrElse(JNull)

  private def row(r: CheckpointRecord): Seq[Node] = {
    val c = r.completed
    <tr>
      <td>{r.run}</td>
      <td>{r.epoch}</td>
      <td>{r.status}</td>
      <td>{c.map(x => s"${x.acked}/${x.required}").getOrElse("")}</td>
      <td>{UIUtils.formatDate(r.triggeredMs)}</td>
      <td>{c.map(x => UIUtils.formatDuration(x.durationMs)).getOrElse("")}</td>
      <td>{c.map(x => x.newBytes.toString).getOrElse("")}</td>
      <td>{c.map(x => x.fullBytes.toString).getOrElse("")}</td>
      <td>{r.note}</td>
    </tr>
  }

  private val Columns = Seq(
    "Run", "Epoch", "Status", "Acknowledged", "Trigger time", "End to end duration", "Checkpointed bytes", "Full bytes", "Path or reason")
}
