package org.apache.spark.sql.ckpt

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/** One line per completed checkpoint in Spark's own log. */
object Progress extends Logging {
  def completed(checkpoint: JsonNode): Unit =
    logInfo(s"checkpoint ${checkpoint.long("epoch")} of run ${checkpoint.long("run")} completed: acks ${checkpoint.long("acked")}/" +
      s"${checkpoint.long("required")}, ${checkpoint.long("new_bytes")} new bytes of ${checkpoint.long("full_bytes")}, " +
      s"${checkpoint.long("duration_ms")} ms, ${checkpoint.str("path")}")
}
