package org.apache.spark.sql.execution.streaming.state.ckpt

/** Where Spark writes the newest full snapshot that it has taken; deleting old versions is another step. */
abstract class MaintainedRocksDB(root: String, parts: EngineParts) extends SpoolRocksDB(root, parts) {
  protected def maintains(): Unit

  override def doSnapshotMaintenance(): Unit = maintains()

  protected def sparkMaintains(): Unit = super.doSnapshotMaintenance()
}
