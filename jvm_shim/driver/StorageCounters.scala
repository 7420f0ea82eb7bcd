package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
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

  /** Without what was counted of one that is over. */
  def -(o: StorageCounters): StorageCounters = copy(
    requests - o.requests, retries - o.retries, bytesRead - o.bytesRead, bytesWritten - o.bytesWritten)
}

/** How much of the state that a start needs is in place, as far as executors know what they need. */
final case class RestoreProgress(snapshots: Long = 0, ofSnapshots: Long = 0, bytes: Long = 0, ofBytes: Long = 0) {
  def +(o: RestoreProgress): RestoreProgress =
    RestoreProgress(snapshots + o.snapshots, ofSnapshots + o.ofSnapshots, bytes + o.bytes, ofBytes + o.ofBytes)

  def isUnderWay: Boolean = snapshots < ofSnapshots
}

object StorageCounters {
  private val OverKept = 1000
  private val Agent = "agent (\\S+) .*".r

  /** Of one stream. A process counts from its own beginning; one that is over is counted as it was last seen. */
  private final class Reports {
    private val live = mutable.HashMap.empty[String, StorageCounters]
    private var former = StorageCounters()
    // The newest of those that are over: they may still say something on their way out.
    private val over = mutable.LinkedHashMap.empty[String, StorageCounters]

    def take(process: String, report: StorageCounters, isOver: Boolean): Unit = synchronized {
      if (isOver || over.contains(process)) end(process, report) else live.put(process, report)
    }

    def knows(process: String): Boolean = synchronized(live.contains(process) || over.contains(process))

    def end(those: String => Boolean): Unit = synchronized {
      live.keys.filter(those).toSeq.foreach(process => live.remove(process).foreach(end(process, _)))
    }

    // What it had in its queue is another one's now, or gone.
    private def end(process: String, report: StorageCounters): Unit = {
      val last = report.copy(queuedSnapshots = 0, queuedBytes = 0, restore = RestoreProgress())
      former = former + last - over.remove(process).getOrElse(StorageCounters())
      over.put(process, last)
      while (over.size > OverKept) over.remove(over.head._1)
    }

    def sum: StorageCounters = synchronized(live.valuesIterator.foldLeft(former)(_ + _))
  }

  private val streams = new ConcurrentHashMap[String, Reports]()
  // By executor: its agent, the newest that was heard of; and, of all, those whose place another one has taken.
  private val agents = new ConcurrentHashMap[String, String]()
  private val replaced = ConcurrentHashMap.newKeySet[String]()

  def clear(): Unit = {
    streams.clear()
    agents.clear()
    replaced.clear()
  }

  /** A line of a coordinator or agent that has a field `storage` (docs/pipes.md). */
  def take(root: String, message: JsonNode): Unit = take(root, message, _ => false)

  /** `isGone`: whether Spark has lost this executor. */
  def take(root: String, message: JsonNode, isGone: String => Boolean): Unit = Option(message.get("storage")).foreach { s =>
    def number(name: String): Long = s.optLong(name).getOrElse(0L)
    val process = s.str("process")
    val reports = streams.computeIfAbsent(root, _ => new Reports)
    val isOver = process match {
      case Agent(executor) => isGone(executor) || replaced.contains(process) || {
        replaces(executor, process)
        false
      }
      case _ =>
        // Each start of a stream has its own.
        if (!reports.knows(process)) reports.end(!_.startsWith("agent "))
        false
    }
    reports.take(process, StorageCounters(
      number("requests"), number("retries"), number("bytes_in"), number("bytes_out"), number("queued_snapshots"), number("queued_bytes"),
      RestoreProgress(number("restored_snapshots"), number("restore_snapshots"), number("restored_bytes"), number("restore_bytes"))), isOver)
  }

  private def replaces(executor: String, process: String): Unit = Option(agents.put(executor, process)).filter(_ != process).foreach { former =>
    replaced.add(former)
    streams.values().asScala.foreach(_.end(_ == former))
  }

  def executorLost(executor: String): Unit = Option(agents.remove(executor)).foreach { agent =>
    streams.values().asScala.foreach(_.end(_ == agent))
  }

  def of(root: String): StorageCounters = Option(streams.get(root)).fold(StorageCounters())(_.sum)
}
