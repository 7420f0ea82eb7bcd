package org.apache.spark.sql.execution.streaming.state.ckpt

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreCheckpointInfo}

/** Spark's engine, and what is to happen where Spark loads and commits a store: lines of Spark say that with other arguments. */
abstract class HookedRocksDB(root: String, parts: EngineParts) extends MaintainedRocksDB(root, parts) {
  /** `empty`: the state is empty, whatever the version. */
  protected def loads(version: Long, uid: Option[String], readOnly: Boolean, empty: Boolean): RocksDB
  /** `full`: with a full snapshot in the place of a changelog. */
  protected def commits(full: Boolean): (Long, StateStoreCheckpointInfo)

  override def load(version: Long, uid: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = loads(version, uid, readOnly, loadEmpty)
  override def commit(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = commits(forceSnapshot)

  protected def sparkLoads(version: Long, uid: Option[String], readOnly: Boolean, empty: Boolean): RocksDB = super.load(version, uid, readOnly, empty)
  protected def sparkCommits(full: Boolean): (Long, StateStoreCheckpointInfo) = super.commit(full)
}
