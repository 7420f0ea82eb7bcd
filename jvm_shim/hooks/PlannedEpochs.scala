package org.apache.spark.sql.ckpt

import org.apache.hadoop.fs.Path

import org.apache.spark.ckpt.Content
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.{CheckpointFileManager, MicroBatchExecution, MicroBatchExecutionContext}

/**
 * Epochs that an earlier run had planned and that run again exactly so: offsets, watermark and timestamp come from the log, not from the
 * sources. Spark itself runs again the first of them; these are the ones after it (a start that had to go back more than one checkpoint).
 */
class PlannedEpochs(query: MicroBatchExecution, planned: Map[Long, Content]) extends Logging {

  def contains(epoch: Long): Boolean = planned.contains(epoch)

  /** Runs in the query thread, before Spark would ask the sources for this epoch's offsets. */
  def construct(ctx: MicroBatchExecutionContext): Unit =
    if (!ctx.isCurrentBatchConstructed) planned.get(ctx.batchId).foreach { content =>
      write(ctx.batchId, content.bytes)
      val entry = query.offsetLog.get(ctx.batchId).getOrElse(
        throw new IllegalStateException(s"the offsets of the planned epoch ${ctx.batchId} cannot be read back"))
      ctx.endOffsets = OffsetEntries.progress(entry, OffsetEntries.sources(query))
      OffsetEntries.metadata(entry).foreach { metadata =>
        ctx.offsetSeqMetadata = metadata
        // That of a drain is in no data: what follows must not go back behind it.
        val watermarks = QueryHook.watermarkTracker(query)
        watermarks.setWatermark(math.max(watermarks.currentWatermark, metadata.batchWatermarkMs))
      }
      ctx.isCurrentBatchConstructed = true
      logInfo(s"epoch ${ctx.batchId} runs again as it was planned")
    }

  // Through the file manager: for the protocol it is a trigger like any other.
  private def write(epoch: Long, content: Array[Byte]): Unit = {
    val file = new Path(new Path(query.resolvedCheckpointRoot, "offsets"), epoch.toString)
    val fm = CheckpointFileManager.create(file.getParent, query.sparkSession.sessionState.newHadoopConf())
    SmallFile.write(fm, file, content, overwrite = false)
  }
}
