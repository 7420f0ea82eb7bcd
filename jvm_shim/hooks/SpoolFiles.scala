package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.{File, IOException}
import java.nio.file.{Files, StandardCopyOption}

import org.apache.hadoop.fs.{Path, RawLocalFileSystem}

import org.apache.spark.sql.ckpt.{NioFileManager, OwnerOnly}
import org.apache.spark.sql.execution.streaming.state._

/** What the engine keeps in its "DFS", which is a folder beside its own: SSTs, which never change, go there and come back as hard links. */
class SpoolFiles(dfsRootDir: String, parts: FileParts) extends HookedFiles(dfsRootDir, parts) {

  val abandoned = new AbandonedVersions(new File(new Path(dfsRootDir).toUri.getPath))

  override protected def deletes(): Unit = abandoned.sweep()

  override def loadCheckpointFromDfs(
      version: Long, localDir: File, mapping: RocksDBFileMapping, uniqueId: Option[String]): RocksDBCheckpointMetadata = {
    if (version == 0) NioFileManager.deleteTree(localDir) // Spark would start the program rm for it, in the task's thread
    else SnapshotZip.check(new File(new Path(dfsRootDir).toUri.getPath, uniqueId.fold(s"$version.zip")(id => s"${version}_$id.zip")))
    super.loadCheckpointFromDfs(version, localDir, mapping, uniqueId)
  }
}

/** Hadoop's own copies every byte, writes a file of checksums beside it, and starts the program chmod. */
class LinkingFileSystem extends RawLocalFileSystem {
  override def copyFromLocalFile(source: Path, target: Path): Unit = link(source, target)
  override def copyToLocalFile(source: Path, target: Path): Unit = link(source, target)

  private def link(source: Path, target: Path): Unit = {
    val (from, to) = (pathToFile(source).toPath, pathToFile(target).toPath)
    Files.createDirectories(to.getParent, OwnerOnly.folders(to): _*)
    Files.deleteIfExists(to)
    try Files.createLink(to, from)
    catch { case _: IOException | _: UnsupportedOperationException => Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING) }
    OwnerOnly.restrict(to)
  }
}
