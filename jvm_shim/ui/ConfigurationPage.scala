package org.apache.spark.ckpt.ui

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

import org.apache.spark.ui.UIUtils

/** The options that hold for the query's run. */
class ConfigurationPage(tab: CheckpointsTab) extends CheckpointsPage(tab, "configuration", "Configuration") {

  override protected def content(request: HttpServletRequest, stream: StreamView): Seq[Node] =
    <h4>Configuration</h4> ++ UIUtils.listingTable[(String, String)](
      Seq("Option", "Value"), line => <tr><td>{line._1}</td><td>{line._2}</td></tr>, ConfigurationPage.options(stream), id = Some("checkpoint-options"))
}

object ConfigurationPage {
  def options(stream: StreamView): Seq[(String, String)] =
    stream.options.toSeq.sortBy(_._1).map { case (name, value) => s"spark.ckpt.$name" -> value }
}
