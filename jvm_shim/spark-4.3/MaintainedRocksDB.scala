package org.apache.spark.sql.execution.streaming.state.ckpt

/** Where Spark writes the newest full snapshot that it has taken; deleting old versions is another step. */
abstract class MaintainedRocksDB(root: String, parts: EngineParts) extends SpoolRocksDB(root, MaintainedRocksDB.reusing(parts)) {
  protected def maintains(): Unit

  override def doSnapshotMaintenance(): Unit = maintains()

  protected def sparkMaintains(): Unit = super.doSnapshotMaintenance()
}

object MaintainedRocksDB {
  /**
   * Spark gives an SST a new name, and so stores it once more, when the file that it has is older than the versions that are kept: where a
   * state store has moved away and back, another executor may have deleted that file (`RocksDB.replaceStaleReusedFilesInSnapshot`). The
   * spool is one executor's alone and keeps ten versions (`SpoolVersions`): every second full snapshot would be the whole state once more.
   * What is gone from a spool all the same is in the storage, or the agent tells that a snapshot lacks it.
   */
  def reusing(parts: EngineParts): EngineParts = parts.copy(conf = parts.conf.copy(checkStaleReusedFilesInSnapshot = false))
}
