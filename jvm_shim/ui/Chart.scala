package org.apache.spark.ckpt.ui

import java.util.Locale

import scala.xml.Node

import org.apache.spark.ui.UIUtils

/** One number over time, as a small SVG that needs no script: the same live, in the history server and on paper. */
object Chart {
  private val (width, height) = (400, 150)
  private val (left, right, top, bottom) = (64, 12, 10, 22)
  private val Points = 240

  /** `points` are (time, value); `failed` are times. Of very many points the highest of each stretch is drawn. */
  def line(title: String, points: Seq[(Long, Long)], show: Long => String, failed: Seq[Long] = Nil): Seq[Node] =
    <figure class="checkpoint-chart" style="display: inline-block; margin: 0 1.5rem 1rem 0; vertical-align: top;">
      <figcaption><strong>{title}</strong></figcaption>
      {if (points.isEmpty) <p class="text-body-secondary">Nothing to show yet.</p> else drawing(title, thinned(points.sortBy(_._1)), show, failed)}
    </figure>

  private def drawing(title: String, points: Seq[(Long, Long)], show: Long => String, failed: Seq[Long]): Seq[Node] = {
    val times = points.map(_._1) ++ failed
    val (from, to) = (times.min, math.max(times.max, times.min + 1))
    val most = math.max(1L, points.map(_._2).max)
    def x(time: Long): Double = left + (width - left - right) * ((time - from).toDouble / (to - from))
    // What is below zero (event time in the future) is drawn as nothing.
    def y(value: Long): Double = height - bottom - (height - top - bottom) * (math.max(0L, value).toDouble / most)
    val path = points.map { case (t, v) => s"${at(x(t))},${at(y(v))}" }.mkString(" ")
    val floor = at(y(0))
    val area = s"${at(x(points.head._1))},$floor $path ${at(x(points.last._1))},$floor"
    <svg class="graph" role="img" aria-label={title} width={s"$width"} height={s"$height"} viewBox={s"0 0 $width $height"}
         style="font: 10px sans-serif; max-width: 100%;">
      {Seq(0L, most / 2, most).distinct.map { v =>
        <g>
          <line x1={s"$left"} x2={s"${width - right}"} y1={at(y(v))} y2={at(y(v))} stroke="var(--bs-border-color, #ccc)" stroke-width="1"/>
          <text x={s"${left - 6}"} y={at(y(v) + 3)} text-anchor="end" fill="var(--bs-secondary-color, gray)">{show(v)}</text>
        </g>
      }}
      <polygon points={area} fill="#0088cc" fill-opacity="0.12"/>
      <polyline points={path} class="line" fill="none" stroke="#0088cc" stroke-width="1.5"/>
      {points.map { case (t, v) =>
        <circle cx={at(x(t))} cy={at(y(v))} r="3" fill="#0088cc" fill-opacity={if (points.size > 60) "0" else "1"}>
          <title>{s"${UIUtils.formatDate(t)}: ${show(v)}"}</title>
        </circle>
      }}
      {failed.map { t =>
        <line x1={at(x(t))} x2={at(x(t))} y1={s"$top"} y2={s"${height - bottom}"} stroke="#dc3545" stroke-width="1.5" stroke-dasharray="3 3">
          <title>{s"${UIUtils.formatDate(t)}: failed"}</title>
        </line>
      }}
      <text x={s"$left"} y={s"${height - 6}"} fill="var(--bs-secondary-color, gray)">{UIUtils.formatDate(from)}</text>
      <text x={s"${width - right}"} y={s"${height - 6}"} text-anchor="end" fill="var(--bs-secondary-color, gray)">{UIUtils.formatDate(to)}</text>
    </svg>
  }

  private def thinned(points: Seq[(Long, Long)]): Seq[(Long, Long)] =
    if (points.size <= Points) points else points.grouped((points.size + Points - 1) / Points).map(_.maxBy(_._2)).toSeq

  private def at(pixels: Double): String = String.format(Locale.US, "%.1f", pixels)
}
