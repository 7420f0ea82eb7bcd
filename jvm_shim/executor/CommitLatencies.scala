package org.apache.spark.ckpt

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields

/**
 * When this executor's last commit of each operator came, counted from the barrier's trigger, in epochs that are no checkpoints: those have no
 * acknowledgements to tell it. It travels with the report that the executor makes anyway.
 */
object CommitLatencies {
  private val Kept = 10000
  private val latest = mutable.LinkedHashMap.empty[(String, Long, Long), Long]

  def note(commit: JsonNode): Unit = if (!commit.path("checkpoint").asBoolean(true)) synchronized {
    val key = (commit.str("root"), commit.long("epoch"), commit.long("op"))
    val ms = commit.long("commit_delay_ms")
    latest.updateWith(key)(before => Some(math.max(before.getOrElse(0L), ms)))
    if (latest.size > Kept) latest.remove(latest.head._1)
  }

  def take(): Seq[ObjectNode] = synchronized {
    val rows = latest.toSeq.map { case ((root, epoch, op), ms) => Json.obj("root" -> root, "epoch" -> epoch, "op" -> op, "ms" -> ms) }
    latest.clear()
    rows
  }
}
