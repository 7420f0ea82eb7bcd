package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.File

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

object SnapshotVersion {
  /**
   * Before any engine is used, ours or Spark's: the version in the metadata of full snapshots is that of the session in whose thread this class
   * is used first (`VERSION`). It is "v2" where that is a task's, and then no snapshot with "v1" can be read in this JVM.
   */
  def pin(): Unit = SQLConf.withExistingConf(new SQLConf)(RocksDBCheckpointMetadata.VERSION)
}

/** What Spark makes an engine of, beside the folder of its files. */
final case class EngineParts(
    conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String, useColumnFamilies: Boolean, withIds: Boolean,
    partitionId: Int)

/** Spark's provider, with the engine that `engine` gives; None: with Spark's own. */
abstract class HookedProvider extends RocksDBStateStoreProvider {
  protected def engine(parts: EngineParts): Option[RocksDB]

  @volatile private var settings: (StateStoreConf, Configuration, Boolean) = _

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    settings = (storeConf, hadoopConf, useColumnFamilies)
    super.init(stateStoreId, keySchema, valueSchema, keyStateEncoderSpec, useColumnFamilies, storeConf, hadoopConf, useMultipleValuesPerKey,
      stateSchemaProvider)
  }

  // Spark makes its engine here, and has no other place that could be overridden.
  override lazy val rocksDB: RocksDB = {
    val (storeConf, hadoopConf, useColumnFamilies) = settings
    val id = stateStoreId
    val name = s"StateStoreId(opId=${id.operatorId},partId=${id.partitionId},name=${id.storeName})"
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    val parts = EngineParts(RocksDBConf(storeConf), Utils.createTempDir(Utils.getLocalDir(conf), name), hadoopConf, name, useColumnFamilies,
      storeConf.enableStateStoreCheckpointIds, id.partitionId)
    engine(parts).getOrElse(new RocksDB(id.storeCheckpointLocation().toString, parts.conf, parts.localRootDir, parts.hadoopConf, parts.loggingId,
      parts.useColumnFamilies, parts.withIds, parts.partitionId))
  }
}

/** Spark's engine over a spool folder, `root`. */
abstract class SpoolRocksDB private (root: String, parts: EngineParts, override val fileManager: SpoolFiles)
  extends RocksDB(
    root, parts.conf, parts.localRootDir, parts.hadoopConf, parts.loggingId, parts.useColumnFamilies, parts.withIds, parts.partitionId) {

  def this(root: String, parts: EngineParts) = this(root, parts, new SpoolFiles(root, FileParts(
    Utils.createTempDir(parts.localRootDir.getAbsolutePath, "fileManager"), parts.hadoopConf, parts.conf.compressionCodec, parts.loggingId)))
}

/** What Spark makes a file manager of, beside the folder of its files. */
final case class FileParts(localTempDir: File, hadoopConf: Configuration, codecName: String, loggingId: String)

/** Spark's file manager, on a file system that links. */
abstract class HookedFiles(dfsRootDir: String, parts: FileParts)
  extends RocksDBFileManager(dfsRootDir, parts.localTempDir, HookedFiles.linking(parts.hadoopConf), parts.codecName, parts.loggingId) {

  /** Before Spark deletes versions that it needs no more. */
  protected def deletes(): Unit

  override def deleteOldVersions(numVersionsToRetain: Int, minVersionsToDelete: Long): Unit = {
    deletes()
    super.deleteOldVersions(numVersionsToRetain, minVersionsToDelete)
  }
}

object HookedFiles {
  /** Spark takes the file system from Hadoop's configuration, by the scheme. */
  private def linking(hadoopConf: Configuration): Configuration = {
    val conf = new Configuration(hadoopConf)
    conf.setClass("fs.file.impl", classOf[LinkingFileSystem], classOf[org.apache.hadoop.fs.FileSystem])
    conf.setBoolean("fs.file.impl.disable.cache", true)
    conf
  }
}
