package org.apache.spark.sql.ckpt

import java.io.FileNotFoundException

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.ckpt.{CheckpointFailure, Content, FolderMark}
import org.apache.spark.sql.ckpt.SparkStreaming.CheckpointFileManager

/** The four folders of a checkpointLocation, made to hold exactly what the storage says. */
class CheckpointFolder(root: String, hadoopConf: Configuration) {
  private val rootPath = new Path(root)
  private val files: CheckpointFileManager =
    if (BarrierFileManager.isOnDisk(rootPath)) new NioFileManager else BarrierFileManager.unseen(rootPath, hadoopConf)

  /** Every file below the four folders, relative to the root. */
  def present(): Seq[String] = BarrierFileManager.Folders.flatMap(f => below(new Path(rootPath, f)))

  /** `mark`: of the run that makes it. While this takes its time the folder may become another run's: then it throws. */
  def replace(wanted: Map[String, Content], mark: Option[FolderMark]): Unit = {
    wanted.keys.foreach(check)
    present().filterNot(wanted.contains).foreach { name =>
      mark.foreach(_.check())
      files.delete(new Path(rootPath, name))
    }
    wanted.foreach { case (name, content) =>
      mark.foreach(_.check())
      val target = new Path(rootPath, name)
      files.mkdirs(target.getParent)
      SmallFile.write(files, target, SchemaPaths.below(rootPath, name, content).copyTo(_), overwrite = true)
    }
    mark.foreach(_.check())
  }

  // A name comes out of the storage, and a Path of root and name is the name alone where that has a scheme of its own.
  private def check(name: String): Unit =
    if (!BarrierFileManager.Folders.exists(folder => name.startsWith(folder + "/")) || name.split("/", -1).exists(Set("", ".", "..")(_))) {
      throw new CheckpointFailure(CheckpointFailure.Damaged, s"the storage names '$name' as a file of $root, which it is not; log or checkpoint is damaged or forged")
    }

  private def below(dir: Path): Seq[String] = {
    val children = try files.list(dir, _ => true).toSeq catch { case _: FileNotFoundException => Nil }
    children.flatMap { child =>
      if (child.isDirectory) below(child.getPath)
      else Seq(child.getPath.toUri.getPath.stripPrefix(rootPath.toUri.getPath + "/"))
    }
  }
}
