package org.apache.spark.sql.execution.streaming.state.ckpt

import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * Chains of changelogs are kept short by what they cost, not by Spark's clock alone (`stateStore.maintenanceInterval`, 60 s): with epochs of a
 * tenth of a second hundreds of changelogs lie between two of its rounds, and each of them carries the names of all before it.
 *
 * The engine takes its snapshots by itself, every `minDeltasForSnapshot` commits; here they are written to the spool earlier than Spark would,
 * outside of any task, one store after the other, and for a tenth of the time at most.
 */
object SnapshotTurns extends Logging {
  private val Share = 10
  private val IdleS = 10L

  private val waiting = mutable.LinkedHashSet.empty[BarrierRocksDB]
  private lazy val thread = {
    val made = new ScheduledThreadPoolExecutor(1, (body: Runnable) => {
      val t = new Thread(body, "checkpoint-snapshots")
      t.setDaemon(true)
      t
    })
    made.setKeepAliveTime(IdleS, TimeUnit.SECONDS)
    made.allowCoreThreadTimeOut(true)
    made
  }
  private var isRunning = false

  def ask(store: BarrierRocksDB): Unit = waiting.synchronized {
    waiting.add(store)
    if (!isRunning) {
      isRunning = true
      thread.execute(() => next())
    }
  }

  private def next(): Unit = {
    val began = System.nanoTime()
    try waiting.synchronized(waiting.headOption.map { store => waiting.remove(store); store }).foreach { store =>
      try store.writeSnapshot() catch { case NonFatal(e) => logWarning("a full snapshot could not be written; Spark's maintenance writes it", e) }
    }
    finally goOn(System.nanoTime() - began)
  }

  private def goOn(tookNs: Long): Unit = waiting.synchronized {
    isRunning = waiting.nonEmpty
    if (isRunning) thread.schedule((() => next()): Runnable, tookNs * (Share - 1), TimeUnit.NANOSECONDS)
  }
}
