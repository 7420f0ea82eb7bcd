package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.File
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.ckpt.NioFileManager

/**
 * Versions in a store's spool folder that belong to epochs which run again. Spark's maintenance tells by the number which versions are old:
 * (1) a query at epoch 40 goes back to a checkpoint of epoch 5, in place; (2) the store commits version 7 of the new line; (3) maintenance
 * keeps the newest versions below 41, and deletes it; (4) a task fails, and the store cannot be loaded again.
 */
class AbandonedVersions(folder: File) {
  import AbandonedVersions._

  private val uids = ConcurrentHashMap.newKeySet[String]()
  private var newest = Option.empty[Long]

  /**
   * A task of that run of the query is about to load `version`. In a newer run than before the store goes on from there, and what lies above
   * belonged to the old one. A task of an older run, which was to be killed and still goes on, changes nothing.
   */
  def loads(run: Long, version: Long): Unit = synchronized {
    if (newest.exists(_ < run)) {
      versions.foreach { case (_, number, uid) => if (number > version) uids.add(uid) }
      sweep()
    }
    if (newest.forall(_ < run)) newest = Some(run)
  }

  /** A task of that run has committed: of an older run than the newest it is abandoned already. */
  def committed(run: Long, uid: String): Unit = synchronized { if (newest.exists(_ > run)) uids.add(uid) }

  /** Also what a snapshot of such a version, which was still to be written, has left since. */
  def sweep(): Unit = if (!uids.isEmpty) versions.foreach { case (file, _, uid) => if (uids.contains(uid)) NioFileManager.deleteTree(file) }

  private def versions: Seq[(File, Long, String)] = Option(folder.listFiles()).toSeq.flatten.flatMap { file =>
    Option(file.getName).collect { case Version(number, uid) => (file, number.toLong, uid) }
  }
}

object AbandonedVersions {
  private val Version = "(\\d+)_(.+)\\.(?:changelog|zip)".r
}
