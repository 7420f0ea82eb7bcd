package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentHashMap

/**
 * The barriers of this executor's tasks. A task carries its own as a property that its thread has set for all jobs that it starts; but a thread
 * of the user's (a pool inside foreachBatch) inherits it when it is made, and gives its tasks that one for as long as it lives, also in later
 * epochs, runs and starts of the query. What a task carries is taken where it fits what the task is about to do; else `ask` asks the driver.
 *
 * `ask`: the barrier that this start of a query (Spark's run id) is at, if it runs; None for the start: whichever the stream at `root` has.
 */
final class StreamBarriers(ask: (String, Option[String]) => Option[Barrier]) {
  // By root: the start that has opened stores here last, and what the driver said of it.
  private val starts = new ConcurrentHashMap[String, (String, Barrier)]()
  // By root, as far as this executor knows.
  private val newestRun = new ConcurrentHashMap[String, Long]()
  private val seen = new ConcurrentHashMap[String, Barrier]()

  /** For a store that is about to be opened. None: this checkpointLocation has no stream, so the store is Spark's own affair. */
  def opening(root: String, start: String): Option[Barrier] = {
    val carried = Barrier.ofTask(root)
    val told = Option(starts.get(root)).filter(_._1 == start).map(_._2).orElse {
      val answer = asked(root, Some(start))
      answer.foreach(barrier => starts.put(root, (start, barrier)))
      answer
    }
    noted(carried.filter(own => told.forall(_.run <= own.run)).orElse(told).orElse(carried).orElse(asked(root, None)))
  }

  /** For a task that loads this version, and commits the next one: an epoch loads the version of its own number. */
  def of(root: String, start: String, version: Long): Option[Barrier] = {
    val carried = Barrier.ofTask(root)
    val fits = carried.filter(own => own.epoch == version && own.run >= newestRun.getOrDefault(root, 0L))
    noted(fits.orElse(asked(root, Some(start)).filter(carried.isEmpty || _.epoch == version)).orElse(carried).orElse(asked(root, None)))
      .orElse(last(root))
  }

  /** What any task has been given last. */
  def last(root: String): Option[Barrier] = Option(seen.get(root))

  /** A run has begun. */
  def began(barrier: Barrier): Unit = newestRun.put(barrier.root, barrier.run)

  /** What still carries its barriers belongs to a later one. */
  def over(root: String, run: Long): Unit = newestRun.merge(root, run + 1, Math.max(_, _))

  private def asked(root: String, start: Option[String]): Option[Barrier] = {
    val answer = ask(root, start)
    answer.foreach(began) // a stream that was deleted counts its runs anew
    answer
  }

  private def noted(found: Option[Barrier]): Option[Barrier] = {
    found.foreach { barrier =>
      seen.put(barrier.root, barrier)
      newestRun.merge(barrier.root, barrier.run, Math.max(_, _))
    }
    found
  }
}
