package org.apache.spark.ckpt

import scala.collection.mutable

/**
 * The tasks of this executor by the stream they belong to, and what they have committed: they tell when snapshots that wait are complete.
 *
 * A task of nobody may have been started inside foreachBatch: what it has committed waits until nothing runs at all, whoever's task is
 * the last one.
 */
final class StreamTasks {
  import StreamTasks._

  private val streams = mutable.HashMap.empty[String, Tasks]
  private var nobodyWaits = false

  def started(root: String): Unit = synchronized {
    val of = tasks(root)
    of.running += 1
    of.begun += 1
  }

  /** A store has been committed by a task of the stream. */
  def committed(root: String, epoch: Long): Unit = synchronized(tasks(root).count(epoch))

  /** The moment after a task's end in which none of its stream runs, if none does, and that of nobody's tasks, if they wait for it. */
  def ended(root: String): Seq[Quiet] = synchronized {
    tasks(root).running -= 1
    nobodyWaits ||= root == Nobody
    val concerned = if (nobodyWaits) Seq(root, Nobody).distinct else Seq(root)
    concerned.filter(isQuiet).map(r => Quiet(r, concerning(r).map(_.lullMs).max, concerning(r).map(_.begun).sum))
  }

  /** Is it quiet, and has no other task come and gone since? */
  def lasts(quiet: Quiet): Boolean = synchronized {
    val is = concerning(quiet.root).map(_.begun).sum == quiet.begun && isQuiet(quiet.root)
    if (is && quiet.root == Nobody) nobodyWaits = false
    is
  }

  private def isQuiet(root: String): Boolean = concerning(root).forall(_.running == 0)

  private def concerning(root: String): Seq[Tasks] = if (root == Nobody) streams.values.toSeq else Seq(tasks(root))

  private def tasks(root: String): Tasks = streams.getOrElseUpdate(root, new Tasks)
}

object StreamTasks {
  /** In the place of a stream's root, for tasks that carry none. */
  val Nobody = ""

  /** Of an executor that committed as often as in the epoch before, or whose first epoch it is. */
  private val LullMs = 10L

  /** Between two tasks of an executor with a single slot lies a round trip to the driver, which on a busy machine takes tens of ms. */
  private val LongLullMs = 100L

  /** Nothing runs here that concerns `root`. That has to last `forMs` before snapshots are taken for complete; `begun`: tasks until now. */
  final case class Quiet(root: String, forMs: Long, begun: Long)

  private final class Tasks {
    var running = 0
    var begun = 0L
    private var epoch = -1L
    private var commits = 0
    private var before = 0

    def count(of: Long): Unit =
      if (of == epoch) commits += 1
      else {
        before = commits
        commits = 1
        epoch = of
      }

    // As many as last time: no more are to be expected. Wrong where partitions move between executors, which costs a second upload or a wait.
    def lullMs: Long = if (before == 0) LullMs else if (commits >= before) 0 else LongLullMs
  }
}
