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

  /** The store goes on from `version` in another run of the query. */
  def above(version: Long): Unit = {
    versions.foreach { case (_, number, uid) => if (number > version) uids.add(uid) }
    sweep()
  }

  /** Also what a snapshot of such a version, which was still to be written, has left since. */
  def sweep(): Unit = if (!uids.isEmpty) versions.foreach { case (file, _, uid) => if (uids.contains(uid)) NioFileManager.deleteTree(file) }

  private def versions: Seq[(File, Long, String)] = Option(folder.listFiles()).toSeq.flatten.flatMap { file =>
    Option(file.getName).collect { case Version(number, uid) => (file, number.toLong, uid) }
  }
}

object AbandonedVersions {
  private val Version = "(\\d+)_(.+)\\.(?:changelog|zip)".r
}
