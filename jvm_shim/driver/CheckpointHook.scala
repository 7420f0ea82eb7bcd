package org.apache.spark.ckpt

import java.util.Base64
import java.util.function.{Function => Callback}

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields

/**
 * What a user's own code on the driver gets to know of a query's checkpoints, and may keep in them (Flink: `MasterTriggerRestoreHook`,
 * `CheckpointListener`). `CheckpointHooks.register` registers one. Its calls come one after another, in a thread of its own.
 */
trait CheckpointHook {
  /** The epoch's data has been processed: the state to keep in its checkpoint, null for none. Called again where the epoch runs again. */
  def snapshot(epoch: Long): Array[Byte]

  /** A run begins: `restore` comes next. Every later one of the stream has a greater number, on whichever machine: a fencing token for what it writes to. */
  def begin(stream: String, start: Long): Unit = ()

  /** A run begins, before its first epoch: the state in the checkpoint that it goes on from, null where there is none. */
  def restore(state: Array[Byte]): Unit

  /** There is a durable checkpoint of this epoch: it covers all epochs up to it. Told at least once, and again after each start. */
  def completed(epoch: Long): Unit

  /** There is no checkpoint of this epoch, and nothing else: a later one covers it. */
  def aborted(epoch: Long): Unit
}

/** A hook in the driver's Python process (`spark_ckpt/api/hooks.py`): a line of JSON goes there, a line comes back. */
final class PythonHook(python: Callback[String, String]) extends CheckpointHook {

  override def snapshot(epoch: Long): Array[Byte] =
    ask(Json.obj("call" -> "snapshot", "epoch" -> epoch)).optStr("state").map(Base64.getDecoder.decode).orNull

  override def begin(stream: String, start: Long): Unit = ask(Json.obj("call" -> "begin", "stream" -> stream, "start" -> start))

  override def restore(state: Array[Byte]): Unit =
    ask(Json.obj("call" -> "restore", "state" -> Option(state).map(Base64.getEncoder.encodeToString)))

  override def completed(epoch: Long): Unit = ask(Json.obj("call" -> "completed", "epoch" -> epoch))

  override def aborted(epoch: Long): Unit = ask(Json.obj("call" -> "aborted", "epoch" -> epoch))

  private def ask(message: ObjectNode): com.fasterxml.jackson.databind.JsonNode = {
    val answer = Json.parse(python(Json.line(message)))
    answer.optStr("error").foreach(error => throw new PythonHookError(error))
    answer
  }
}

/** What the hook's own Python code raised: its type and message. The trace is in the driver's log. */
final class PythonHookError(message: String) extends RuntimeException(message) {
  override def toString: String = getMessage
}
