package org.apache.spark.sql.ckpt

import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, OffsetSeq, OffsetSeqMetadata, StreamProgress}
import org.apache.spark.sql.connector.read.streaming.SparkDataStream

/** Entries of the offset log: with sources by their places. */
object OffsetEntries {
  type Entry = OffsetSeq
  type Metadata = OffsetSeqMetadata
  /** A query's sources. */
  final case class Sources(inOrder: Seq[SparkDataStream])

  def sources(query: MicroBatchExecution): Sources = Sources(QueryHook.sources(query))

  def metadata(entry: Entry): Option[Metadata] = entry.metadata

  def progress(entry: Entry, of: Sources): StreamProgress = entry.toStreamProgress(of.inOrder)

  def entry(end: StreamProgress, of: Sources, metadata: Metadata): Entry = end.toOffsetSeq(of.inOrder, metadata)

  /** The same with another watermark and time, and with more settings. */
  def at(metadata: Metadata, watermarkMs: Long, timestampMs: Long, more: Map[String, String]): Metadata =
    metadata.copy(batchWatermarkMs = watermarkMs, batchTimestampMs = timestampMs, conf = metadata.conf ++ more)
}
