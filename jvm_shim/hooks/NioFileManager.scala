package org.apache.spark.sql.ckpt

import java.io.{ByteArrayOutputStream, EOFException, File, OutputStream, RandomAccessFile}
import java.nio.file.{DirectoryNotEmptyException, FileAlreadyExistsException => NioExists, Files, FileSystemException, LinkOption}
import java.nio.file.{NoSuchFileException, Path => NioPath, StandardCopyOption}
import java.util.UUID

import org.apache.hadoop.fs._

import org.apache.spark.sql.ckpt.SparkStreaming.{CancellableFSDataOutputStream, CheckpointFileManager}

/**
 * Local files through java.nio: no forked chmod and no checksum side files, which cost Hadoop's local file system 40 to 120 ms a commit.
 * Nothing is synced to disk: a spool and a materialised checkpointLocation are copies of what the storage holds.
 */
class NioFileManager extends CheckpointFileManager {

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = {
    val target = nio(path)
    val temp = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID()}.tmp")
    Files.createDirectories(target.getParent, OwnerOnly.folders(target): _*)
    new CancellableFSDataOutputStream(OwnerOnly.newFile(temp)) {
      private var ended = false

      override def close(): Unit = synchronized {
        if (!ended) {
          ended = true
          underlyingStream.close()
          NioFileManager.move(temp, target, overwriteIfPossible)
        }
      }

      override def cancel(): Unit = synchronized {
        if (!ended) {
          ended = true
          try underlyingStream.close() finally Files.deleteIfExists(temp)
        }
      }
    }
  }

  override def open(path: Path): FSDataInputStream =
    new FSDataInputStream(new BufferedFSInputStream(new LocalInput(nio(path).toFile), 1 << 16))

  override def list(path: Path, filter: PathFilter): Array[FileStatus] = {
    val children = nio(path).toFile.listFiles()
    if (children == null) throw new java.io.FileNotFoundException(s"$path does not exist")
    children.filterNot(_.getName.endsWith(".tmp")).map(status).filter(s => filter.accept(s.getPath))
  }

  override def mkdirs(path: Path): Unit = Files.createDirectories(nio(path), OwnerOnly.folders(nio(path)): _*)

  override def exists(path: Path): Boolean = Files.exists(nio(path))

  override def delete(path: Path): Unit = NioFileManager.deleteTree(nio(path).toFile)

  override def isLocal: Boolean = true

  override def createCheckpointDirectory(): Path = throw new UnsupportedOperationException("a folder of files is no checkpointLocation")

  private def nio(path: Path): NioPath = new File(path.toUri.getPath).toPath

  private def status(file: File): FileStatus =
    new FileStatus(file.length(), file.isDirectory, 1, 1 << 25, file.lastModified(), new Path(file.toURI))
}

object NioFileManager {
  def move(temp: NioPath, target: NioPath, overwrite: Boolean): Unit =
    if (overwrite) Files.move(temp, target, StandardCopyOption.ATOMIC_MOVE)
    else {
      // link fails where the name is taken, a move would replace it
      try Files.createLink(target, temp)
      catch {
        case e: NioExists => throw taken(target, e.getMessage)
        case e: NoSuchFileException => throw e
        // A file system without hard links: look and rename, as Hadoop's local one does it for Spark. Any other fault is told.
        case _: FileSystemException | _: UnsupportedOperationException if !hasLinks(temp) =>
          if (Files.exists(target, LinkOption.NOFOLLOW_LINKS)) throw taken(target, "it was looked for")
          Files.move(temp, target, StandardCopyOption.ATOMIC_MOVE)
      } finally Files.deleteIfExists(temp)
    }

  private def hasLinks(file: NioPath): Boolean = {
    val probe = file.resolveSibling(s".${UUID.randomUUID()}.tmp")
    try {
      Files.createLink(probe, file)
      true
    } catch { case _: FileSystemException | _: UnsupportedOperationException => false }
    finally Files.deleteIfExists(probe)
  }

  private def taken(target: NioPath, why: String) = new FileAlreadyExistsException(s"$target exists already: $why")

  /** A folder into which somebody writes meanwhile stays. */
  def deleteTree(file: File): Unit = {
    if (file.isDirectory && !Files.isSymbolicLink(file.toPath)) Option(file.listFiles()).foreach(_.foreach(deleteTree))
    try Files.deleteIfExists(file.toPath) catch { case _: NoSuchFileException | _: DirectoryNotEmptyException => }
  }
}

/** A local file as Hadoop wants to read it. */
private class LocalInput(file: File) extends FSInputStream {
  private val in =
    try new RandomAccessFile(file, "r")
    catch { case _: java.io.FileNotFoundException => throw new java.io.FileNotFoundException(s"$file does not exist") }

  override def seek(pos: Long): Unit = if (pos < 0) throw new EOFException(s"negative position in $file") else in.seek(pos)
  override def getPos: Long = in.getFilePointer
  override def seekToNewSource(target: Long): Boolean = false
  override def read(): Int = in.read()
  override def read(buffer: Array[Byte], offset: Int, length: Int): Int = in.read(buffer, offset, length)
  override def available(): Int = math.min(Int.MaxValue.toLong, in.length() - in.getFilePointer).toInt
  override def close(): Unit = in.close()
}

/** Collects a small file; what becomes of it is decided when it is closed. */
abstract class CollectedOutput private (bytes: ByteArrayOutputStream) extends CancellableFSDataOutputStream(bytes: OutputStream) {
  private var ended = false

  def this() = this(new ByteArrayOutputStream())

  protected def finished(content: Array[Byte]): Unit

  override def close(): Unit = synchronized {
    if (!ended) {
      ended = true
      finished(bytes.toByteArray)
    }
  }

  override def cancel(): Unit = synchronized { ended = true }
}
