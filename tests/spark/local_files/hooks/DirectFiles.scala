package org.apache.spark.ckpt.tests

import java.net.URI
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FileStatus, FsConstants, LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/**
 * Hadoop's local file system. Where its native library is missing, as in PySpark, it starts a `chmod` for each file and folder that it makes,
 * and a `readlink` for each that it renames: some ten processes an epoch. Here the JVM does the same itself, and all else is Hadoop's.
 */
class DirectRawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    val symbols = Seq(permission.getUserAction, permission.getGroupAction, permission.getOtherAction).map(_.SYMBOL).mkString
    Files.setPosixFilePermissions(pathToFile(path).toPath, PosixFilePermissions.fromString(symbols))
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)
}

/** `fs.file.impl` */
class DirectFiles extends LocalFileSystem(new DirectRawFiles)

/** `fs.AbstractFileSystem.file.impl` */
class DirectFs(uri: URI, conf: Configuration) extends ChecksumFs(new DirectRawFs(uri, conf))

class DirectRawFs(uri: URI, conf: Configuration)
    extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new DirectRawFiles, conf, FsConstants.LOCAL_FS_URI.getScheme, false) {
  override def getUriDefaultPort: Int = -1
  override def isValidName(src: String): Boolean = true
}
