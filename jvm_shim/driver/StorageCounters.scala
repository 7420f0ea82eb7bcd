package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.ckpt.Json.Fields

/** What coordinator and agents have asked of a stream's storage since they began, what waits to be uploaded, and how far a start has come. */
final case class StorageCounters(
    requests: Long = 0, retries: Long = 0, bytesRead: Long = 0, bytesWritten: Long = 0, queuedSnapshots: Long = 0, queuedBytes: Long = 0,
    restore: RestoreProgress = RestoreProgress()) {
  def +(o: StorageCounters): StorageCounters = StorageCounters(
    requests + o.requests, retries + o.retries, bytesRead + o.bytesRead, bytesWritten + o.bytesWritten, queuedSnapshots + o.queuedSnapshots,
    queuedBytes + o.queuedBytes, restore + o.restore)
}

/** How much of the state that a start needs is in place, as far as executors know what they need. */
final case class RestoreProgress(snapshots: Long = 0, ofSnapshots: Long = 0, bytes: Long = 0, ofBytes: Long = 0) {
  def +(o: RestoreProgress): RestoreProgress =
    RestoreProgress(snapshots + o.snapshots, ofSnapshots + o.ofSnapshots, bytes + o.bytes, ofBytes + o.ofBytes)

  def isUnderWay: Boolean = snapshots < ofSnapshots
}

object StorageCounters {
  // (stream, process) -> its latest report. A process counts from its own beginning; one that died is counted as it was last seen.
  private val reports = new ConcurrentHashMap[(String, String), StorageCounters]()

  def clear(): Unit = reports.clear()

  /** A line of a coordinator or agent that has a field `storage` (docs/pipes.md). */
  def take(root: String, message: JsonNode): Unit = Option(message.get("storage")).foreach { s =>
    def number(name: String): Long = s.optLong(name).getOrElse(0L)
    val process = s.str("process")
    // One that has replaced another of the same executor: what that one had in its queue is in this one's, or gone.
    if (process.startsWith("agent ") && !reports.containsKey((root, process))) emptyQueues(process.split(' ')(1), besides = process)
    reports.put((root, process), StorageCounters(
      number("requests"), number("retries"), number("bytes_in"), number("bytes_out"), number("queued_snapshots"), number("queued_bytes"),
      RestoreProgress(number("restored_snapshots"), number("restore_snapshots"), number("restored_bytes"), number("restore_bytes"))))
  }

  def executorLost(executor: String): Unit = emptyQueues(executor, besides = "")

  private def emptyQueues(executor: String, besides: String): Unit = reports.replaceAll { (key, last) =>
    if (key._2.startsWith(s"agent $executor ") && key._2 != besides) last.copy(queuedSnapshots = 0, queuedBytes = 0, restore = RestoreProgress()) else last
  }

  def of(root: String): StorageCounters =
    reports.asScala.iterator.filter(_._1._1 == root).map(_._2).foldLeft(StorageCounters())(_ + _)
}
