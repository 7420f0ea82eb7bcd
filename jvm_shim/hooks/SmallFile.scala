package org.apache.spark.sql.ckpt

import java.io.OutputStream

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.ckpt.SparkStreaming.CheckpointFileManager

/** A file written whole or not at all. */
object SmallFile {
  def write(fm: CheckpointFileManager, target: Path, content: Array[Byte], overwrite: Boolean): Unit =
    write(fm, target, _.write(content), overwrite)

  def write(fm: CheckpointFileManager, target: Path, content: OutputStream => Unit, overwrite: Boolean): Unit = {
    val out = fm.createAtomic(target, overwrite)
    try {
      content(out)
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
  }
}
