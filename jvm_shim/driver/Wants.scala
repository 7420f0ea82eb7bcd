package org.apache.spark.ckpt

import java.util.concurrent.TimeUnit

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/**
 * What each executor last said it holds, and which ones the application has lost. Times are System.nanoTime.
 *
 * @param lives whether Spark counts on that executor: it ends those whose connection is gone, or whose heartbeat stays away
 *   (`spark.network.timeout`). One that only says nothing to the plugin for a while - a long collection of garbage, a starved machine - holds
 *   what it held.
 */
final class Holdings(lives: String => Boolean) {
  import Holdings._

  private val reports = mutable.Map.empty[String, (Long, Set[String])]
  // Of executors that said in time that they would go: what they were about to hand over, and since when.
  private val leaving = mutable.Map.empty[String, (Long, Set[String])]
  private val gone = mutable.LinkedHashSet.empty[String]

  /** A lost executor may still say something on its way out: Spark gives nobody else its id, so that counts for nothing: false. */
  def report(executor: String, uids: Set[String], now: Long, leaves: Boolean = false): Boolean = synchronized {
    val alive = !gone(executor)
    if (alive) reports(executor) = (now, uids)
    if (leaves) leaving(executor) = (now, uids)
    alive
  }

  /** Its runs are over: it says nothing more until it has committed for another one. */
  def quiet(executor: String): Unit = synchronized { reports.remove(executor) }

  def lost(executor: String): Unit = synchronized {
    reports.remove(executor)
    gone += executor
  }

  def lostOnes: Seq[String] = synchronized(gone.toSeq)

  /**
   * No executor that lives has it: each has reported since then without it. Who has just made its first commit has two chances to report
   * it. Whether Spark counts on an executor is asked, for the event that it has lost one may be dropped from a listener's queue.
   */
  def nobodyHolds(uid: String, since: Long, now: Long): Boolean = synchronized {
    now - since >= 2 * ReportNs && !leaving.values.exists { case (at, uids) => now - at < LeaveNs && uids(uid) } &&
    reports.forall { case (executor, (at, uids)) => (at > since && !uids(uid)) || !lives(executor) }
  }

  def clear(): Unit = synchronized {
    reports.clear()
    leaving.clear()
    gone.clear()
  }
}

object Holdings {
  private val ReportNs = TimeUnit.MILLISECONDS.toNanos(ExecutorSide.ReportMs)
  private val LeaveNs = TimeUnit.MILLISECONDS.toNanos(ExecutorSide.LeaveMs)
}

/**
 * State that a task needs on another executor than the one that committed it (no checkpoint that is complete has it yet). The task's
 * executor asks again and again; the holder hears of it in the answer to its next report and uploads it; its acknowledgement answers.
 */
final class Wants(holdings: Holdings) extends Logging {
  private class Want(val line: ObjectNode, val since: Long) {
    var asked: Long = since
    var declined: Option[String] = None
  }

  private val wants = mutable.Map.empty[String, Want]
  // unique id -> epoch and handles: acknowledged, and perhaps wanted before the checkpoint is complete
  private val stored = mutable.LinkedHashMap.empty[String, (Long, JsonNode)]

  /** Answer of one poll: `handles` once they are known; `lost` when nobody can ever give them; `declined` with the cause. */
  def ask(message: JsonNode, now: Long): ObjectNode = synchronized {
    val uid = message.str("uid")
    stored.get(uid) match {
      case Some((_, handles)) =>
        wants.remove(uid)
        Json.obj("handles" -> handles, "lost" -> false, "declined" -> None)
      case None =>
        val want = wants.getOrElseUpdate(uid, {
          logInfo(s"a task needs state store ${message.str("op")}/${message.str("part")}/${message.str("store")}, version ${message.str("version")}, " +
            "which another executor has and no checkpoint yet")
          new Want(message.asInstanceOf[ObjectNode], now)
        })
        want.asked = now
        val lost = want.declined.isEmpty && holdings.nobodyHolds(uid, want.since, now)
        if (lost || want.declined.nonEmpty) wants.remove(uid)
        Json.obj("handles" -> None, "lost" -> lost, "declined" -> want.declined)
    }
  }

  /** What the holders are to hand over. A task that has stopped asking wants nothing any more. */
  def open: Seq[ObjectNode] = synchronized {
    val now = System.nanoTime()
    wants.filterInPlace((_, want) => now - want.asked < Wants.ForgottenNs)
    wants.values.map { w =>
      Json.obj(Seq("root", "op", "part", "store", "uid").map(name => name -> w.line.get(name)): _*)
    }.toSeq
  }

  def heard(acks: JsonNode): Unit = synchronized {
    acks.elements().asScala.foreach { ack =>
      val uid = ack.str("uid")
      ack.optStr("decline") match {
        case Some(cause) => wants.get(uid).foreach(_.declined = Some(cause))
        case None => stored(uid) = (ack.long("epoch"), ack.get("handles"))
      }
    }
  }

  /** Tasks of the next epoch may still carry a barrier from before this checkpoint: its own acknowledgements are kept. */
  def completed(epoch: Long): Unit = synchronized { stored.filterInPlace { case (_, (at, _)) => at >= epoch } }

  def clear(): Unit = synchronized {
    wants.clear()
    stored.clear()
  }
}

object Wants {
  private val ForgottenNs = 60000000000L
}
