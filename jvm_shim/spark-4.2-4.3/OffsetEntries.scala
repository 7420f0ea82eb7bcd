package org.apache.spark.sql.ckpt

import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, OffsetSeqMetadata, StreamProgress}
import org.apache.spark.sql.execution.streaming.checkpointing.{OffsetSeqBase, OffsetSeqMetadataBase, OffsetSeqMetadataV2}

/** Entries of the offset log: with sources by their names or by their places. */
object OffsetEntries {
  type Entry = OffsetSeqBase
  type Metadata = OffsetSeqMetadataBase
  /** A query's sources. */
  final case class Sources(inOrder: Seq[SparkDataStream], byName: Map[String, SparkDataStream])

  def sources(query: MicroBatchExecution): Sources = Sources(
    QueryHook.sources(query), classOf[MicroBatchExecution].getMethod("sourceIdMap").invoke(query).asInstanceOf[Map[String, SparkDataStream]])

  def metadata(entry: Entry): Option[Metadata] = entry.metadataOpt

  def progress(entry: Entry, of: Sources): StreamProgress = entry.toStreamProgress(of.inOrder, of.byName)

  def entry(end: StreamProgress, of: Sources, metadata: Metadata): Entry = end.toOffsets(of.inOrder, of.byName, metadata)

  /** The same with another watermark and time, and with more settings. */
  def at(metadata: Metadata, watermarkMs: Long, timestampMs: Long, more: Map[String, String]): Metadata = metadata match {
    case m: OffsetSeqMetadata => m.copy(batchWatermarkMs = watermarkMs, batchTimestampMs = timestampMs, conf = m.conf ++ more)
    case m: OffsetSeqMetadataV2 => m.copy(batchWatermarkMs = watermarkMs, batchTimestampMs = timestampMs, conf = m.conf ++ more)
    case other => throw new IllegalStateException(s"the offset log's metadata of kind ${other.getClass.getSimpleName} is not known: no drain")
  }
}
