package org.apache.spark.sql.ckpt

import java.util.concurrent.{ScheduledExecutorService, TimeUnit}
import java.util.concurrent.atomic.AtomicReference
import java.util.function.Consumer

/**
 * What is to be told to somebody who may be away, on the thread of `worker`: only the newest of it, and what fails again after a wait,
 * which is `FirstMs` and then twice as long each time, up to `MostMs`. Something newer does not end a wait: it takes the place of what waits.
 */
class NewestCommit[A <: AnyRef](worker: ScheduledExecutorService, commit: Consumer[A]) {
  import NewestCommit._

  private val pending = new AtomicReference[A]
  @volatile private var isForgotten = false
  // Of the worker's thread.
  private var waits = false
  private var waitMs = FirstMs

  def offer(newest: A): Unit = {
    pending.set(newest)
    worker.execute(() => if (!waits) attempt())
  }

  /** Nothing follows: what has not been told is tried once more, without the rest of a wait. */
  def last(): Unit = worker.execute(() => attempt())

  /** Nothing follows, and what has not been told is forgotten: also what is being told just now, should that fail. */
  def forget(): Unit = {
    isForgotten = true
    pending.set(null.asInstanceOf[A])
  }

  private def attempt(): Unit = Option(pending.getAndSet(null.asInstanceOf[A])).foreach { newest =>
    try {
      commit.accept(newest)
      waitMs = FirstMs
    } catch {
      case e: InterruptedException => throw e
      case _: Throwable =>
        pending.compareAndSet(null.asInstanceOf[A], newest)
        // Only after it was put back: who forgets marks first and then clears.
        if (isForgotten) pending.set(null.asInstanceOf[A])
        else if (!worker.isShutdown) {
          waits = true
          worker.schedule((() => { waits = false; attempt() }): Runnable, waitMs, TimeUnit.MILLISECONDS)
          waitMs = math.min(2 * waitMs, MostMs)
        }
    }
  }
}

object NewestCommit {
  private val FirstMs = 250L
  private val MostMs = 10000L
}
