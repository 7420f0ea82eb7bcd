package org.apache.spark.ckpt

import java.util.concurrent.TimeUnit

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.TaskContext
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/** What an executor keeps to (the coordinator's answer to `hello`). */
final case class ExecutorLimits(timeoutMs: Long, spoolMaxBytes: Long, fullSpoolFails: Boolean)

object ExecutorLimits {
  def apply(node: JsonNode): ExecutorLimits =
    ExecutorLimits(node.long("timeout_ms"), node.long("spool_max_bytes"), node.get("full_spool_fails").asBoolean())
}

/** How much may lie in the spool that the storage does not have yet: beyond it a commit waits or fails, as configured. */
final class SpoolLimit(limits: ExecutorLimits) extends Logging {
  import limits.timeoutMs

  private val maxBytes = limits.spoolMaxBytes

  private var bytes = 0L
  private var waiting = 0

  /** Bytes in the agent's hands that are not stored. */
  def unstored: Long = synchronized(bytes)

  def set(unstoredBytes: Long): Unit = synchronized {
    bytes = unstoredBytes
    notifyAll()
  }

  /** Called in the task's thread after a commit, which the agent may upload meanwhile. */
  def admit(): Unit = synchronized {
    if (bytes >= maxBytes) {
      if (limits.fullSpoolFails) throw full(s"spark.ckpt.spool.whenFull=FAIL ends the query here")
      if (waiting == 0) logWarning(s"$bytes bytes of state wait for their upload, the spool may hold $maxBytes: tasks wait until the storage has taken some")
      waiting += 1
      try waitForRoom() finally waiting -= 1
    }
  }

  private def waitForRoom(): Unit = {
    val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs)
    while (bytes >= maxBytes) {
      Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
      val left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())
      if (left <= 0) throw full(s"nothing was stored for $timeoutMs ms (spark.ckpt.timeout)")
      wait(math.min(left, SpoolLimit.LookMs))
    }
  }

  private def full(why: String) = new CheckpointFailure(CheckpointFailure.Storage,
    s"$bytes bytes of state wait for their upload, spark.ckpt.spool.maxSize=$maxBytes: $why; see to the storage, or give the spool more room")
}

object SpoolLimit {
  private val LookMs = 500L
}
