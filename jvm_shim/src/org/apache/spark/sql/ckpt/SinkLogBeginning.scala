package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.internal.Logging
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.sinks.{FileStreamSink, FileStreamSinkLog}

/**
 * A stream that goes on behind epoch K, but writes to a new folder: the file sink's log needs an entry for every batch since its last
 * compaction, or the folder cannot be read and the next compaction fails (Spark: `CompactibleFileStreamLog.allFiles`). They are empty.
 */
object SinkLogBeginning extends Logging {
  private val Commit = """commits/(\d+)""".r

  /** `sink` as the user gave it; `files`: what the checkpointLocation holds now. */
  def apply(sink: Table, query: MicroBatchExecution, files: Iterable[String]): Unit = sink match {
    case sink: FileStreamSink =>
      val committed = files.collect { case Commit(epoch) => epoch.toLong }
      val log = QueryHook.sinkLog(sink)
      if (committed.nonEmpty && log.getLatestBatchId().isEmpty)
        fill(log, committed.max, query.sparkSession.sessionState.conf.fileSinkLogCompactInterval)
    case _ =>
  }

  private def fill(log: FileStreamSinkLog, last: Long, interval: Int): Unit = {
    val compacted = (last + 1) / interval * interval - 1
    logInfo(s"the sink is new to this stream, which goes on behind epoch $last: its log begins with empty batches up to that")
    (math.max(0L, compacted) to last).foreach { batch =>
      log.addNewBatchByStream(batch)(_.write(s"v${FileStreamSinkLog.VERSION}".getBytes(UTF_8)))
    }
  }
}
