package org.apache.spark.sql.ckpt

import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.{CompactibleFileStreamLog, FileStreamSink, FileStreamSinkLog, SinkFileStatus}
import org.apache.spark.sql.connector.catalog.Table

/**
 * The file sink's log needs an entry for every batch since its last compaction, or the folder cannot be read and the next compaction
 * fails (Spark: `CompactibleFileStreamLog.allFiles`). Batches that it will never see get an empty one: those before the first of a stream
 * that goes on in a new folder, and the numbers between what the sink has seen and a stream that goes on under new numbers.
 */
object SinkLogBeginning extends Logging {
  private val Commit = """commits/(\d+)""".r

  /** `sink` as the user gave it; `files`: what the checkpointLocation holds now. */
  def apply(sink: Table, files: Iterable[String]): Unit = sink match {
    case sink: FileStreamSink =>
      val log = QueryHook.sinkLog(sink)
      val following = log.getLatestBatchId().map(_ + 1).getOrElse(0L)
      files.collect { case Commit(epoch) => epoch.toLong }.maxOption.filter(_ >= following).foreach(fill(log, following, _))
    case _ =>
  }

  // Two compacted entries at least: when the log is opened, their distance is taken for its interval.
  private def fill(log: FileStreamSinkLog, following: Long, last: Long): Unit = {
    val interval = QueryHook.compactInterval(log)
    val compacted = (last + 1) / interval * interval - 1
    logInfo(s"the stream goes on behind epoch $last, and the sink has no batch from $following on: it gets empty ones")
    val held = log.allFiles()
    (math.max(following, compacted - interval) to last).foreach { batch =>
      val content = if (CompactibleFileStreamLog.isCompactionBatch(batch, interval)) held else Array.empty[SinkFileStatus]
      log.addNewBatchByStream(batch)(log.serialize(content, _))
    }
  }
}
