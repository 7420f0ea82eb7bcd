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
   * From files: an application that commits no second time has no other moment for a full snapshot than its first commit. Where there is none
   * yet, all that the store holds is in its changelogs, and a first one may be as large as they are: not for a few of them.
   */
  def loaded(lineage: Array[LineageItem]): Unit = synchronized {
    measure(lineage)
    val full = Option(new File(folder, "SSTs").listFiles()).toSeq.flatten.map(_.length()).sum
    isDear = ChainCost(lineage.length, bytes, full).isTooDear && (full > 0 || lineage.length >= Few + partition % Few)
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

  // The changelog that lies beside a full snapshot is not replayed.
  private def size(item: LineageItem): Long = {
    val name = s"${item.version}_${item.checkpointUniqueId}"
    if (new File(folder, s"$name.zip").exists()) 0L else new File(folder, s"$name.changelog").length()
  }
}

object LoadedChain {
  /** Stores that have all begun together get their first full snapshots in different starts. */
  private val Few = 32
}
