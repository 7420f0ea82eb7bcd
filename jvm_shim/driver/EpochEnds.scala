package org.apache.spark.ckpt

import scala.collection.mutable

/** How far a source's log goes beyond the newest completed checkpoint. None: not known (yet). `ms`: the age of the oldest such record. */
final case class SourceLag(source: String, records: Option[Long], ms: Option[Long])

/** Follows a query's completed checkpoints with what the sources have been read to. Nothing here makes its caller wait. */
trait SourceFollower {
  /** The newest completed checkpoint is now that of this epoch; `offsets` is the content of its `offsets/N`. */
  def completed(epoch: Long, offsets: Array[Byte]): Unit

  /** What is known now. Asking makes it known anew. */
  def lags(): Seq[SourceLag]

  /** The run is over: what is under way gets a moment. */
  def end(): Unit
}

/** The content of `offsets/N` for epochs of which a checkpoint may yet complete, and who follows the completed ones. */
final class EpochEnds extends Contained {
  import EpochEnds._

  private val planned = mutable.TreeMap.empty[Long, Array[Byte]]
  private var bytes = 0L
  private var newest: Option[(Long, Array[Byte])] = None
  private var followed: Option[SourceFollower] = None

  /** A run begins from the checkpoint of epoch `origin` (-1: none); `files` are those that it finds in the checkpointLocation. */
  def begin(origin: Long, files: Map[String, Content]): Unit = contained("offsets of a checkpoint") {
    synchronized {
      planned.clear()
      bytes = 0
      files.foreach {
        case (Offsets(n), content) if n.toLong >= origin => keep(n.toLong, content.bytes)
        case _ =>
      }
      newest = None
      complete(origin)
    }
  }

  /** Epoch `n` is about to run. */
  def plan(n: Long, offsets: Array[Byte]): Unit = synchronized(keep(n, offsets))

  /** A checkpoint is complete, or, at a run's begin, was restored. */
  def complete(epoch: Long): Unit = contained("the offsets of a completed checkpoint") {
    synchronized {
      planned.get(epoch).foreach { offsets =>
        newest = Some(epoch -> offsets)
        followed.foreach(_.completed(epoch, offsets))
      }
      planned.keysIterator.takeWhile(_ < epoch).toSeq.foreach(forget)
    }
  }

  def follow(follower: SourceFollower): Unit = contained("a query's sources") {
    synchronized {
      followed = Some(follower)
      newest.foreach { case (epoch, offsets) => follower.completed(epoch, offsets) }
    }
  }

  def lags(): Seq[SourceLag] = synchronized(followed).map(_.lags()).getOrElse(Nil)

  def end(): Unit = {
    val last = synchronized {
      val follower = followed
      followed = None
      follower
    }
    contained("the end of a query's sources")(last.foreach(_.end()))
  }

  private def keep(n: Long, offsets: Array[Byte]): Unit = {
    forget(n)
    planned.put(n, offsets)
    bytes += offsets.length
    while (bytes > MaxBytes && planned.size > 1) forget(planned.firstKey)
  }

  private def forget(n: Long): Unit = planned.remove(n).foreach(bytes -= _.length)
}

object EpochEnds {
  private val Offsets = "offsets/(\\d+)".r
  /** Epochs may wait long for a checkpoint that is slow; what is then missing comes with the next one. */
  private val MaxBytes = 16L << 20
}
