package org.apache.spark.sql.ckpt

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/** A small file written whole or not at all. */
object SmallFile {
  def write(fm: CheckpointFileManager, target: Path, content: Array[Byte], overwrite: Boolean): Unit = {
    val out = fm.createAtomic(target, overwrite)
    try {
      out.write(content)
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
  }
}
