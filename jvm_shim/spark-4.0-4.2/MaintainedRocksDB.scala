package org.apache.spark.sql.execution.streaming.state.ckpt

/** Where Spark writes the newest full snapshot that it has taken, and deletes old versions. */
abstract class MaintainedRocksDB(root: String, parts: EngineParts) extends SpoolRocksDB(root, parts) {
  protected def maintains(): Unit

  override def doMaintenance(): Unit = maintains()

  protected def sparkMaintains(): Unit = super.doMaintenance()
}
