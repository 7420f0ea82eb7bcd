package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.internal.Logging
import org.apache.spark.util.Utils

/** A start that loads its state for long says so in the log: how much of it is in place, and about how long the rest will take. */
object RestoreLog extends Logging {
  private val EveryNs = 10000000000L

  private final class Began(val ns: Long, val bytes: Long) {
    var loggedNs = ns
    var isLogged = false
  }

  private val running = new ConcurrentHashMap[String, Began]()

  /** Whenever an agent has told more. Not of a start that is done within ten seconds. */
  def look(root: String): Unit = {
    val (now, at) = (System.nanoTime(), StorageCounters.of(root).restore)
    if (at.isUnderWay) {
      val began = running.computeIfAbsent(root, _ => new Began(now, at.bytes))
      began.synchronized {
        if (now - began.loggedNs >= EveryNs) {
          began.loggedNs = now
          began.isLogged = true
          logInfo(s"$root loads its state: ${line(at, left(at, at.bytes - began.bytes, now - began.ns))}")
        }
      }
    } else Option(running.remove(root)).filter(_.isLogged).foreach { began =>
      logInfo(s"$root has loaded its state: ${line(at, None)}, in ${(now - began.ns) / 1000000000L} s")
    }
  }

  /** For people: `1.2 GiB of 10.0 GiB, 12 of 100 stores, about 75 s left`. */
  def text(root: String): Option[String] = Some(StorageCounters.of(root).restore).filter(_.isUnderWay).map { at =>
    val rest = Option(running.get(root)).flatMap(began => left(at, at.bytes - began.bytes, System.nanoTime() - began.ns))
    line(at, rest)
  }

  private def line(at: RestoreProgress, leftS: Option[Long]): String =
    s"${Utils.bytesToString(at.bytes)} of ${Utils.bytesToString(at.ofBytes)}, ${at.snapshots} of ${at.ofSnapshots} stores" +
      leftS.map(s => s", about $s s left").getOrElse("")

  /** Seconds, at the pace so far; None: there is none yet. */
  def left(at: RestoreProgress, bytes: Long, ns: Long): Option[Long] =
    if (bytes <= 0 || ns <= 0) None else Some(((at.ofBytes - at.bytes).toDouble / bytes * ns / 1e9).ceil.toLong)
}
