package org.apache.spark.sql.execution.streaming.state.ckpt

import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDB, StateStoreCheckpointInfo}

/** Spark's engine, and what is to happen where Spark loads and commits a store: lines of Spark say that with other arguments. */
abstract class HookedRocksDB(root: String, parts: EngineParts) extends MaintainedRocksDB(root, parts) {
  /** `empty`: the state is empty, whatever the version. */
  protected def loads(version: Long, uid: Option[String], readOnly: Boolean, empty: Boolean): RocksDB
  /** `full`: with a full snapshot in the place of a changelog. */
  protected def commits(full: Boolean): (Long, StateStoreCheckpointInfo)

  override def load(version: Long, uid: Option[String], readOnly: Boolean): RocksDB = loads(version, uid, readOnly, empty = false)
  override def commit(): (Long, StateStoreCheckpointInfo) = commits(full = false)

  protected def sparkLoads(version: Long, uid: Option[String], readOnly: Boolean, empty: Boolean): RocksDB =
    if (empty && version > 0) loadEmpty(version, readOnly) else super.load(version, uid, readOnly)

  /**
   * This engine has an empty state as version 0 only. It is told that what it has loaded is the version that is asked for, under a name, since
   * it looks for files where there is none; nothing is left for it to do but to begin a changelog.
   */
  private def loadEmpty(version: Long, readOnly: Boolean): RocksDB = {
    super.load(0L, None, readOnly = true)
    loadedVersion = version
    loadedStateStoreCkptId = Some(HookedRocksDB.Empty)
    lineageManager.resetLineage(Array.empty[LineageItem])
    super.load(version, loadedStateStoreCkptId, readOnly)
    loadedStateStoreCkptId = None
    this
  }

  protected def sparkCommits(full: Boolean): (Long, StateStoreCheckpointInfo) = {
    if (full) HookedRocksDB.forced.get(this).asInstanceOf[AtomicBoolean].set(true)
    super.commit()
  }

}

object HookedRocksDB {
  private val Empty = "empty"

  // Spark sets it where a column family comes or goes: such a commit is a full snapshot.
  private lazy val forced = {
    val field = classOf[RocksDB].getDeclaredField("shouldForceSnapshot")
    field.setAccessible(true)
    field
  }
}
