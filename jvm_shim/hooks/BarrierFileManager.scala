package org.apache.spark.sql.ckpt

import java.io.File

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FileAlreadyExistsException, FileStatus, Path, PathFilter}

import org.apache.spark.ckpt.{CheckpointFailure, CheckpointFeed, DriverSide, DriverStream, ExecutorSide}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.{CancellableFSDataOutputStream, CheckpointFileManager}
import org.apache.spark.sql.internal.SQLConf

/**
 * Sees every small file that the driver writes below a checkpointLocation. `offsets/N` is the trigger point of epoch N, `commits/N` its
 * gate; in real time both come with the end of an epoch. Spool folders of executors are plain local files. Any other path is handled exactly as Spark alone would.
 */
class BarrierFileManager(path: Path, hadoopConf: Configuration) extends CheckpointFileManager with Logging {
  import BarrierFileManager._

  private lazy val sparks: CheckpointFileManager = unseen(path, hadoopConf)
  private lazy val local = new NioFileManager

  override def createAtomic(target: Path, overwrite: Boolean): CancellableFSDataOutputStream = streamOf(target) match {
    case Some((stream, relative)) =>
      val fm = filesOf(target)
      if (!overwrite && exists(target)) throw new FileAlreadyExistsException(s"$target exists already")
      new CollectedOutput {
        override protected def finished(content: Array[Byte]): Unit = {
          relative match {
            case Offsets(n) if stream.realTime => stream.hasRead(n.toLong, content)
            case Offsets(n) => DriverSide.setBarrier(stream.trigger(n.toLong, content))
            case Commits(n) =>
              CheckpointFeed.sunk(stream.root, n.toLong)
              val answer = stream.seal(n.toLong, content)
              OperatorMetrics.set(QueryHook.ofThread(), answer)
            case _ => stream.changed(relative, Some(content))
          }
          stream.mark.check()
          SmallFile.write(fm, target, content, overwrite)
        }
      }
    case None =>
      unguarded(target).foreach(throw _)
      filesOf(target).createAtomic(target, overwrite)
  }

  override def open(target: Path): FSDataInputStream = filesOf(target).open(target)

  override def list(target: Path, filter: PathFilter): Array[FileStatus] = {
    DriverSide.streamOf(target.toString).flatMap(_.failure).foreach(throw _)
    filesOf(target).list(target, filter)
  }

  override def mkdirs(target: Path): Unit = filesOf(target).mkdirs(target)

  // A file that Spark is about to write and that is there already may be that of the run which took over: that is to be said, by its name.
  override def exists(target: Path): Boolean = {
    val there = filesOf(target).exists(target)
    if (there) streamOf(target).foreach(_._1.mark.check())
    there
  }

  override def delete(target: Path): Unit = {
    streamOf(target).foreach(_._1.mark.check())
    filesOf(target).delete(target)
    streamOf(target).foreach { case (stream, relative) => stream.changed(relative, None) }
  }

  override def isLocal: Boolean = ExecutorSide.inSpool(path.toUri.getPath) || sparks.isLocal

  /**
   * Runs before the query id is read: on a fresh machine the id is brought back here. All else follows when Spark has accepted the start: it
   * may yet find that another query has this name or location.
   */
  override def createCheckpointDirectory(): Path = {
    val root = sparks.createCheckpointDirectory()
    if (!isTemporary(root)) {
      val metadata = new Path(root, "metadata")
      val fm = filesOf(root)
      val written = fm.exists(metadata)
      val localId = if (written) QueryId.read(fm, metadata) else None
      val known = DriverSide.look(root.toString, localId)
      if (localId.isEmpty) known.foreach(QueryId.write(fm, metadata, _, overwrite = written))
      if (written && localId.isEmpty && known.isEmpty) throw new CheckpointFailure(CheckpointFailure.Config,
        s"$metadata holds no query id, and the storage knows none of this location; put the file back, or remove it if the query has never run here")
    } else {
      logWarning("this query has no checkpointLocation: it runs, but nothing of it is kept; set the option checkpointLocation to make it durable")
    }
    root
  }

  private def filesOf(target: Path): CheckpointFileManager = {
    if (isOnDisk(target) && (ExecutorSide.inSpool(target.toUri.getPath) || DriverSide.isLocated(target.toString))) local else sparks
  }
}

object BarrierFileManager {
  /** For files of a checkpointLocation that are no step of the query's: as Spark alone would have it. */
  def unseen(path: Path, hadoopConf: Configuration): CheckpointFileManager = {
    val plain = new Configuration(hadoopConf)
    plain.unset(SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key)
    CheckpointFileManager.create(path, plain)
  }

  def isOnDisk(path: Path): Boolean = Option(path.toUri.getScheme).forall(_.equalsIgnoreCase("file"))

  private val Offsets = "offsets/(\\d+)".r
  private val Commits = "commits/(\\d+)".r
  val Folders: Seq[String] = Seq("offsets", "commits", "sources", "state")

  /** The stream that a path belongs to and the path below its checkpointLocation, for the four folders that make up a stream. */
  private def streamOf(path: Path): Option[(DriverStream, String)] = {
    val text = path.toString
    DriverSide.streamOf(text).filter(_.root.length < text.length).map(s => (s, text.substring(s.root.length + 1)))
      .filter { case (_, relative) => Folders.exists(f => relative.startsWith(f + "/")) }
  }

  /** A step of a query whose start nobody has heard of: nothing of it would be in a checkpoint, and nobody be told. */
  private def unguarded(target: Path): Option[CheckpointFailure] =
    Option(target.getParent).filter(_.getName == "offsets").flatMap(folder => Option(folder.getParent)).map(_.toString).filter(DriverSide.isLooked).map {
      root => new CheckpointFailure(CheckpointFailure.Internal,
        s"the plugin was not told that the query at $root has begun, so nothing of it would be in a checkpoint; start the query in a new application")
    }

  // Spark makes the folder of a query without a checkpointLocation with this name in the JVM's temporary folder (ResolveWriteToStream).
  private def isTemporary(root: Path): Boolean =
    root.getName.matches("temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}") &&
      root.getParent.toUri.getPath == new File(System.getProperty("java.io.tmpdir")).getCanonicalPath
}
