package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.File
import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FileSystem

import org.apache.spark.sql.execution.streaming.state._

object SnapshotVersion {
  /** The version in the metadata of full snapshots is a constant. */
  def pin(): Unit = ()
}

/** What Spark makes an engine of, beside the folder of its files. */
final case class EngineParts(
    conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String, useColumnFamilies: Boolean, withIds: Boolean,
    partitionId: Int, eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String])

/** Spark's provider, with the engine that `engine` gives; None: with Spark's own. */
abstract class HookedProvider extends RocksDBStateStoreProvider {
  protected def engine(parts: EngineParts): Option[RocksDB]

  override def createRocksDB(
      dfsRootDir: String,
      conf: RocksDBConf,
      localRootDir: File,
      hadoopConf: Configuration,
      loggingId: String,
      useColumnFamilies: Boolean,
      enableStateStoreCheckpointIds: Boolean,
      partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder],
      uniqueId: Option[String]): RocksDB =
    engine(EngineParts(
      conf, localRootDir, hadoopConf, loggingId, useColumnFamilies, enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId))
      .getOrElse(super.createRocksDB(dfsRootDir, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
        enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId))
}

/** Spark's engine over a spool folder, `root`. */
abstract class SpoolRocksDB(root: String, parts: EngineParts)
  extends RocksDB(root, parts.conf, parts.localRootDir, parts.hadoopConf, parts.loggingId, parts.useColumnFamilies, parts.withIds,
    parts.partitionId, parts.eventForwarder, parts.uniqueId) {

  override def createFileManager(
      dfsRootDir: String, localTempDir: File, hadoopConf: Configuration, codecName: String, loggingId: String, storeConf: StateStoreConf)
    : RocksDBFileManager = new SpoolFiles(dfsRootDir, FileParts(localTempDir, hadoopConf, codecName, loggingId, storeConf))
}

/** What Spark makes a file manager of, beside the folder of its files. */
final case class FileParts(localTempDir: File, hadoopConf: Configuration, codecName: String, loggingId: String, storeConf: StateStoreConf)

/** Spark's file manager, on a file system that links. */
abstract class HookedFiles(dfsRootDir: String, parts: FileParts)
  extends RocksDBFileManager(
    dfsRootDir, parts.localTempDir, parts.hadoopConf, parts.codecName, parts.loggingId, parts.storeConf, false, None) {

  /** Before Spark deletes versions that it needs no more. */
  protected def deletes(): Unit

  override def deleteOldVersions(numVersionsToRetain: Int, numVersionsInMemory: Int, minVersionsToDelete: Long): Unit = {
    deletes()
    super.deleteOldVersions(numVersionsToRetain, numVersionsInMemory, minVersionsToDelete)
  }

  override def getFileSystem(dfsRootDir: String, hadoopConf: Configuration): FileSystem = {
    val files = new LinkingFileSystem
    files.initialize(URI.create("file:///"), hadoopConf)
    files
  }
}
