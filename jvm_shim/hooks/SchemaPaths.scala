package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}
import org.apache.hadoop.fs.Path

import org.apache.spark.ckpt.{Content, InMessage, Json}

/**
 * An operator's metadata (`state/N/_metadata/v2/M`) names the files with the schemas of its state by their whole paths. Where a checkpoint is
 * restored into another checkpointLocation, by a fork or an import, they lie there, and what the old paths lead to may be gone.
 */
object SchemaPaths {
  private val Metadata = "state/\\d+/_metadata/v2/\\d+".r
  private val Schema = "(?s).*?/(state/\\d+/_stateSchema/.+)".r

  def below(root: Path, name: String, content: Content): Content = name match {
    case Metadata() => InMessage(moved(root, new String(content.bytes, UTF_8)).getBytes(UTF_8))
    case _ => content
  }

  private def moved(root: Path, text: String): String = text.split("\n", 2) match {
    case Array(version, body) if body.contains("_stateSchema") =>
      val document = Json.parse(body)
      for {
        store <- Option(document.get("stateStoreInfo")).toSeq.flatMap(_.elements().asScala).collect { case o: ObjectNode => o }
        paths <- Option(store.get("stateSchemaFilePaths")).collect { case a: ArrayNode => a }
      } {
        val there = paths.elements().asScala.map(_.asText()).toList.map {
          case Schema(relative) => new Path(root, relative).toString
          case other => other
        }
        paths.removeAll()
        there.foreach(path => paths.add(path))
      }
      s"$version\n${Json.line(document)}"
    case _ => text
  }
}
