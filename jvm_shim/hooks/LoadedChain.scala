package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.File

import org.apache.spark.sql.execution.streaming.state.LineageItem

/**
 * What it costs to load a store from its newest full snapshot and the changelogs since. Rates are those of Spark's engine on one core, to an
 * order of magnitude; what follows from them is compared with each other only.
 */
final case class ChainCost(changelogs: Long, changelogBytes: Long, fullBytes: Long) {
  import ChainCost._

  def replayMs: Double = changelogs * ChangelogMs + changelogBytes / ReplayBytesPerMs
  def loadMs: Double = SnapshotMs + fullBytes / LoadBytesPerMs

  /**
   * A full snapshot is worth its upload when it loads faster than the chain replays, and when the changelogs since the last one are so many
   * bytes that one more, even if all of it is new, adds a third to them at most. And whatever it costs, when the chain is long.
   */
  def isTooDear: Boolean = changelogs >= Due || (replayMs > loadMs && changelogBytes >= BytesForOne * (fullBytes + ZipBytes))
}

object ChainCost {
  private val ChangelogMs = 1.0
  private val SnapshotMs = 10.0
  private val ReplayBytesPerMs = 20e3
  private val LoadBytesPerMs = 200e3
  private val BytesForOne = 3L
  /** Of a snapshot beside its SST files: RocksDB's own small files. */
  private val ZipBytes = 8L << 10

  /** Each changelog names all versions of its chain, some 76 bytes each: of two hundred changelogs these names alone are 1.5 MB. */
  private val Due = 200L
  /** No changelog can name more than 65,535 bytes of them (StateStoreChangelogWriter.writeLineage, by DataOutputStream.writeUTF). */
  val Overdue = 500L
}

/**
 * The chain that a store of this partition has loaded, whose changelogs lie in `folder`. A `lineage` is the engine's: the version of the full
 * snapshot, and all since.
 */
class LoadedChain(folder: File, partition: Int) {
  import LoadedChain._

  private var from = -1L
  private var bytes = 0L
  private var isDear = false

  /**
   * From files: an application that commits no second time has no other moment for a full snapshot than its first commit. How large that will
   * be is not known before: what the changelogs since the last one hold is not in it. So it is not for a short chain, however large.
   */
  def loaded(lineage: Array[LineageItem]): Unit = synchronized {
    measure(lineage)
    val full = Option(new File(folder, "SSTs").listFiles()).toSeq.flatten.map(_.length()).sum
    isDear = lineage.length >= Few + partition % Few && ChainCost(lineage.length, bytes, full).isTooDear
  }

  /** Has the next commit to be a full snapshot? One that is asked for of a store that lives on has had its time by then. */
  def endsNow(lineage: Array[LineageItem]): Boolean = synchronized(isDear || lineage.length >= ChainCost.Overdue)

  /** After a commit: what the chain costs now. */
  def committed(lineage: Array[LineageItem], fullBytes: Long): ChainCost = synchronized {
    isDear = false
    if (lineage.headOption.exists(_.version == from)) lineage.lastOption.foreach(bytes += size(_)) else measure(lineage)
    ChainCost(lineage.length, bytes, fullBytes)
  }

  private def measure(lineage: Array[LineageItem]): Unit = {
    from = lineage.headOption.fold(-1L)(_.version)
    bytes = lineage.map(size).sum
  }

  private def size(item: LineageItem): Long = new File(folder, s"${item.version}_${item.checkpointUniqueId}.changelog").length()
}

object LoadedChain {
  /** A start loads so many changelogs in no time. Twice as many are the limit of some partitions: not all have their snapshots in one epoch. */
  private val Few = 32
}
