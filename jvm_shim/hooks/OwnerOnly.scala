package org.apache.spark.sql.ckpt

import java.io.OutputStream
import java.nio.channels.Channels
import java.nio.file.{Files, Path, StandardOpenOption}
import java.nio.file.attribute.{FileAttribute, PosixFilePermissions}

import org.apache.spark.ckpt.ExecutorSide

/** What lies in an executor's spool is state: nobody but its owner reads it, whatever the umask. Other places are as the umask says. */
object OwnerOnly {
  private val File = PosixFilePermissions.fromString("rw-------")
  private val Folder = PosixFilePermissions.fromString("rwx------")

  def folders(path: Path): Seq[FileAttribute[_]] =
    if (ExecutorSide.inSpool(path.toString)) Seq(PosixFilePermissions.asFileAttribute(Folder)) else Nil

  def newFile(path: Path): OutputStream =
    if (!ExecutorSide.inSpool(path.toString)) Files.newOutputStream(path)
    else {
      val options = java.util.Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
      Channels.newOutputStream(Files.newByteChannel(path, options, PosixFilePermissions.asFileAttribute(File)))
    }

  /** A file that the engine has made as the umask says. */
  def restrict(path: Path): Unit = Files.setPosixFilePermissions(path, File)
}
