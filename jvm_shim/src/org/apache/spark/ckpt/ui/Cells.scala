package org.apache.spark.ckpt.ui

import java.util.Locale

import scala.xml.{Node, NodeSeq, Text}

import org.apache.spark.ui.UIUtils
import org.apache.spark.util.Utils

/** Numbers as Spark's own pages write them. */
object Cells {
  val Nothing: NodeSeq = Text("–")

  def time(ms: Long): String = if (ms > 0) UIUtils.formatDate(ms) else "–"

  /** Finer than Spark's own below a minute: most of what is shown here takes milliseconds. */
  def duration(ms: Long): String =
    if (ms < 1000) s"$ms ms" else if (ms < 60000) "%.2f s".formatLocal(Locale.US, ms / 1000.0) else UIUtils.formatDuration(ms)

  def micros(us: Long): String = if (us < 1000000) "%.1f ms".formatLocal(Locale.US, us / 1000.0) else duration(us / 1000)

  def size(bytes: Long): String = Utils.bytesToString(bytes)

  def number(n: Long): String = "%,d".formatLocal(Locale.US, n)

  def status(of: Status.Value): Seq[Node] = {
    val (colour, word) = of match {
      case Status.Completed => ("text-bg-success", "completed")
      case Status.Failed => ("text-bg-danger", "failed")
      case _ => ("text-bg-primary", "in progress")
    }
    <span class={s"badge $colour"}>{word}</span>
  }

  /** A long text that can be selected and breaks where it must. */
  def path(text: String): Seq[Node] = if (text.isEmpty) Nothing else <code style="display: inline-block; min-width: 18rem; overflow-wrap: anywhere;">{text}</code>

  def lag(of: org.apache.spark.ckpt.DurabilityLag): String =
    if (of.epochs == 0) "nothing: every finished epoch is durable"
    else s"${number(of.epochs)} ${if (of.epochs == 1) "epoch" else "epochs"}, ${duration(of.ms)}, ${size(of.bytes)} not yet stored"
}
