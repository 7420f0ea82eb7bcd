package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.hadoop.fs.Path

import org.apache.spark.ckpt.Json
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/** The file `metadata` of a checkpointLocation: one JSON document with the query's id (Spark: StreamMetadata). */
object QueryId {
  def read(fm: CheckpointFileManager, file: Path): String = {
    val in = fm.open(file)
    try Json.parse(new String(in.readAllBytes(), UTF_8)).str("id") finally in.close()
  }

  def write(fm: CheckpointFileManager, file: Path, id: String): Unit =
    SmallFile.write(fm, file, Json.line(Json.obj("id" -> id)).getBytes(UTF_8), overwrite = false)
}
