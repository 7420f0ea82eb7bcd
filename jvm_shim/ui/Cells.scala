package org.apache.spark.ckpt.ui

import java.util.Locale

import scala.xml.{Node, NodeSeq, Text}

import org.apache.spark.ui.UIUtils
import org.apache.spark.util.Utils

/** Numbers as Spark's own pages write them. */
object Cells {
  private val TwoDays = 2 * 86400000L

  val Nothing: NodeSeq = Text("–")

  def time(ms: Long): String = if (ms > 0) UIUtils.formatDate(ms) else "–"

  /** Finer than Spark's own below a minute: most of what is shown here takes milliseconds. */
  def duration(ms: Long): String =
    if (ms < 1000) s"$ms ms"
    else if (ms < 60000) "%.2f s".formatLocal(Locale.US, ms / 1000.0)
    else if (ms < TwoDays) UIUtils.formatDuration(ms)
    else "%,.1f d".formatLocal(Locale.US, ms / 86400000.0)

  def micros(us: Long): String = if (us < 1000000) "%.1f ms".formatLocal(Locale.US, us / 1000.0) else duration(us / 1000)

  def size(bytes: Long): String = Utils.bytesToString(bytes)

  /** Only what has completed can be loaded. */
  def fullSize(of: CheckpointRecord): Seq[Node] = if (of.status == Status.Completed) Text(size(of.fullBytes)) else Nothing

  def number(n: Long): String = "%,d".formatLocal(Locale.US, n)

  def status(of: CheckpointRecord): Seq[Node] = of.status match {
    case Status.Completed => badge("text-bg-success", "completed") ++ kind(of)
    case Status.Failed if of.isGivenUp => badge("text-bg-secondary", of.reason.toLowerCase(Locale.ROOT)) ++ kind(of)
    case Status.Failed => badge("text-bg-danger", "failed") ++ kind(of)
    case _ => badge("text-bg-primary", "in progress") ++ kind(of)
  }

  private def kind(of: CheckpointRecord): Seq[Node] =
    (if (of.isSavepoint) Text(" ") ++ badge("text-bg-info", "savepoint") else Nil) ++
      (if (of.late) Text(" ") ++ <span class="badge text-bg-light border" title="Its epoch had ended before it became a checkpoint">late</span> else Nil)

  private def badge(colour: String, word: String): Seq[Node] = <span class={s"badge $colour"}>{word}</span>

  /** What a checkpoint in progress waits for. */
  def waitsFor(of: CheckpointRecord): String =
    if (!of.epochEnded) "the epoch's tasks"
    else if (of.acked < of.required) s"${number((of.required - of.acked).toLong)} more ${if (of.required - of.acked == 1) "snapshot" else "snapshots"} to be stored"
    else "its _metadata to be stored"

  def acknowledged(of: CheckpointRecord): String = if (of.required > 0) s"${of.acked}/${of.required}" else s"${of.acked}"

  /** A long text that can be selected and breaks where it must. */
  def path(text: String): Seq[Node] = if (text.isEmpty) Nothing else <code style="display: inline-block; min-width: 18rem; overflow-wrap: anywhere;">{text}</code>

  /** When the stream's checkpoints are made. */
  def rhythm(of: StreamView): String = {
    val interval = of.options.getOrElse("interval", "?")
    val when = interval match {
      case "never" => "only on demand (interval=never)"
      case Zero() => "every epoch is one"
      case _ => s"every $interval"
    }
    if (of.batchMs > 0) s"$when, in the background, in real time with batches of ${duration(of.batchMs)}"
    else if (of.background) s"$when, in the background, ${of.options.getOrElse("mode", "EXACTLY_ONCE")}"
    else "every epoch is one, and waits for it"
  }

  private val Zero = "0+\\D*".r
}
