package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.core.JsonProcessingException
import org.apache.hadoop.fs.Path

import org.apache.spark.ckpt.Json
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.sql.ckpt.SparkStreaming.CheckpointFileManager

/** The file `metadata` of a checkpointLocation: one JSON document with the query's id (Spark: StreamMetadata). */
object QueryId {
  /** None: there is none in the file, which a machine that lost its power may have left empty. */
  def read(fm: CheckpointFileManager, file: Path): Option[String] = {
    val in = fm.open(file)
    try Option(Json.parse(new String(in.readAllBytes(), UTF_8))).filter(_.isObject).flatMap(_.optStr("id"))
    catch { case _: JsonProcessingException => None }
    finally in.close()
  }

  def write(fm: CheckpointFileManager, file: Path, id: String, overwrite: Boolean): Unit =
    SmallFile.write(fm, file, Json.line(Json.obj("id" -> id)).getBytes(UTF_8), overwrite)
}
