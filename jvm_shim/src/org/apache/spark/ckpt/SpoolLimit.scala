package org.apache.spark.ckpt

import java.util.concurrent.TimeUnit

import org.apache.spark.{SparkConf, TaskContext}
import org.apache.spark.internal.Logging

/** How much may lie in the spool that the storage does not have yet: beyond it a commit waits or fails, as configured. */
final class SpoolLimit(conf: SparkConf) extends Logging {
  private val maxBytes = conf.getSizeAsBytes("spark.ckpt.spool.maxSize", "10g")
  private val fails = conf.get("spark.ckpt.spool.whenFull", "WAIT").equalsIgnoreCase("FAIL")
  private val timeoutMs = conf.getTimeAsMs("spark.ckpt.timeout", "10min")

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
      if (fails) throw full(s"spark.ckpt.spool.whenFull=FAIL ends the query here")
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
