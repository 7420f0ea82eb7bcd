package org.apache.spark.ckpt

import scala.collection.mutable

/** How far a source's log goes beyond the newest completed checkpoint. None: not known (yet). `ms`: the age of the oldest such record. */
final case class SourceLag(source: String, records: Option[Long], ms: Option[Long])

/** Follows a query's completed checkpoints with what the sources have been read to. Nothing here makes its caller wait, except `end`. */
trait SourceFollower {
  /** Comes first: nothing may be told to anybody before `former`, which may take seconds, has returned. */
  def after(former: Runnable): Unit

  /** The newest completed checkpoint is now that of this epoch; `offsets` is the content of its `offsets/N`. */
  def completed(epoch: Long, offsets: Array[Byte]): Unit

  /** What is known now. Asking makes it known anew. */
  def lags(): Seq[SourceLag]

  /** The run is over: what is under way gets a moment. Nothing is told to anybody when this has returned. */
  def end(): Unit
}

/**
 * The content of `offsets/N` for epochs of which a checkpoint may yet complete, and who follows the completed ones. At most `maxBytes`
 * are kept: what goes first is the oldest epoch that is no checkpoint, then the newest that is one, never the oldest that is one. `former`:
 * of the start before this one, which may still be ending.
 */
final class EpochEnds(former: Option[EpochEnds], maxBytes: Long) extends Contained {
  import EpochEnds._

  def this(former: Option[EpochEnds]) = this(former, EpochEnds.MaxBytes)

  private val planned = mutable.TreeMap.empty[Long, Array[Byte]]
  private val triggered = mutable.TreeSet.empty[Long]
  private var bytes = 0L
  private var dropped = -1L
  private var warned = false
  private var newest: Option[(Long, Array[Byte])] = None
  private var followed: Option[SourceFollower] = None
  private var before = former
  private var over = false
  private val ending = new Object

  /**
   * A run begins from the checkpoint of epoch `origin` (-1: none) with epoch `next`; `files` are those that it finds in the
   * checkpointLocation: there the checkpoint is that of the epoch before `next`, whatever its number was when it was made.
   */
  def begin(origin: Long, next: Long, files: Map[String, Content]): Unit = contained("offsets of a checkpoint") {
    synchronized {
      forgetAll()
      if (!over) files.foreach {
        case (Offsets(n), content) if n.toLong == next - 1 && origin >= 0 => isNow(origin, content.bytes)
        case (Offsets(n), content) if n.toLong >= next => keep(n.toLong, content.bytes)
        case _ =>
      }
    }
  }

  /** Epoch `n` is about to run. */
  def plan(n: Long, offsets: Array[Byte]): Unit = synchronized(if (!over) keep(n, offsets))

  /** Epoch `n` is to be a checkpoint. */
  def trigger(n: Long): Unit = synchronized(if (!over) triggered += n)

  /** It is none. */
  def abort(n: Long): Unit = synchronized(triggered -= n)

  def complete(epoch: Long): Unit = contained("the offsets of a completed checkpoint") {
    synchronized {
      planned.get(epoch) match {
        case Some(offsets) => isNow(epoch, offsets)
        case None if epoch <= dropped && newest.forall(_._1 < epoch) && followed.nonEmpty && !warned =>
          warned = true
          logWarning(s"the offsets of epoch $epoch were no longer kept when its checkpoint was complete, since those of all that run meanwhile " +
            s"take more than ${maxBytes >> 20} MiB; what follows this query's checkpoints stays where it is until one of them completes sooner")
        case None =>
      }
      planned.keysIterator.takeWhile(_ <= epoch).toSeq.foreach(forget)
      triggered --= triggered.rangeTo(epoch).toSeq
    }
  }

  def follow(follower: SourceFollower): Unit = contained("a query's sources") {
    val late = synchronized {
      if (!over) {
        followed = Some(follower)
        before.foreach(old => follower.after(() => old.end()))
        before = None
        newest.foreach { case (epoch, offsets) => follower.completed(epoch, offsets) }
      }
      over
    }
    if (late) follower.end()
  }

  def lags(): Seq[SourceLag] = synchronized(followed).map(_.lags()).getOrElse(Nil)

  /** Returns when nobody follows any more, whoever has ended it: nor the start before, where this one was never followed. */
  def end(): Unit = ending.synchronized {
    val (last, unfollowed) = synchronized {
      over = true
      val ends = (followed, before)
      before = None
      followed = None
      // Whose location was a query's once stays known for as long as the application lives.
      forgetAll()
      ends
    }
    unfollowed.foreach(_.end())
    contained("the end of a query's sources")(last.foreach(_.end()))
  }

  private def forgetAll(): Unit = {
    planned.clear()
    triggered.clear()
    bytes = 0
    dropped = -1
    newest = None
  }

  private def isNow(epoch: Long, offsets: Array[Byte]): Unit = {
    newest = Some(epoch -> offsets)
    followed.foreach(_.completed(epoch, offsets))
  }

  private def keep(n: Long, offsets: Array[Byte]): Unit = {
    forget(n)
    planned.put(n, offsets)
    bytes += offsets.length
    var goes = leaves(n)
    while (bytes > maxBytes && goes.nonEmpty) {
      goes.foreach { epoch =>
        forget(epoch)
        dropped = math.max(dropped, epoch)
      }
      goes = leaves(n)
    }
  }

  private def leaves(inHand: Long): Option[Long] =
    planned.keysIterator.find(n => n != inHand && !triggered.contains(n))
      .orElse(planned.keysIterator.filter(_ != inHand).drop(1).reduceOption((_, last) => last))

  private def forget(n: Long): Unit = planned.remove(n).foreach(bytes -= _.length)
}

object EpochEnds {
  private val Offsets = "offsets/(\\d+)".r
  private val MaxBytes = 16L << 20
}
