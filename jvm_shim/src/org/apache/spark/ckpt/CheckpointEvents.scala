package org.apache.spark.ckpt

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkContext
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.scheduler.SparkListenerEvent

/** What every checkpoint event tells; times are milliseconds since 1970, sizes bytes, durations milliseconds. */
sealed trait CheckpointEvent extends SparkListenerEvent {
  def root: String
  def run: Long
  def epoch: Long
  def timeMs: Long
}

/** A barrier has been sent: the epoch's plan is durable and its tasks are about to run (Flink: triggered). */
case class CheckpointTriggered(root: String, run: Long, epoch: Long, timeMs: Long) extends CheckpointEvent

/** All snapshots are acknowledged and `_metadata` is stored below `path`. */
case class CheckpointCompleted(
    root: String, run: Long, epoch: Long, timeMs: Long, path: String, acked: Int, required: Int, newBytes: Long, fullBytes: Long,
    metadataBytes: Long, durationMs: Long, syncMsMax: Long, asyncMsMax: Long) extends CheckpointEvent

/** The checkpoint will never complete; `reason` is one of the protocol's abort reasons. */
case class CheckpointAborted(root: String, run: Long, epoch: Long, timeMs: Long, reason: String, message: String) extends CheckpointEvent

/** A run has begun from a completed checkpoint. */
case class CheckpointRestored(root: String, run: Long, epoch: Long, timeMs: Long, path: String) extends CheckpointEvent

object CheckpointEvents {
  def parse(node: JsonNode): Option[CheckpointEvent] = {
    val root = node.str("root")
    val (run, epoch) = (node.long("run"), node.long("epoch"))
    val timeMs = node.long("time_ms")
    def number(name: String): Long = node.optLong(name).getOrElse(0L)
    def text(name: String): String = node.optStr(name).getOrElse("")
    node.str("event") match {
      case "TRIGGERED" => Some(CheckpointTriggered(root, run, epoch, timeMs))
      case "COMPLETED" => Some(CheckpointCompleted(
        root, run, epoch, timeMs, text("path"), number("acked").toInt, number("required").toInt, number("new_bytes"), number("full_bytes"),
        number("metadata_bytes"), number("duration_ms"), number("sync_ms_max"), number("async_ms_max")))
      case "ABORTED" => Some(CheckpointAborted(root, run, epoch, timeMs, text("reason"), text("message")))
      case "RESTORED" => Some(CheckpointRestored(root, run, epoch, timeMs, text("path")))
      case _ => None
    }
  }

  def post(sc: SparkContext, node: JsonNode): Unit = parse(node).foreach(event => sc.listenerBus.post(event))
}
