package org.apache.spark.sql.ckpt

import org.apache.spark.sql.execution.streaming

/** The classes of Spark's streaming engine, which lines of Spark have in different packages. */
object SparkStreaming {
  type CheckpointFileManager = streaming.CheckpointFileManager
  val CheckpointFileManager = streaming.CheckpointFileManager
  type CancellableFSDataOutputStream = streaming.CheckpointFileManager.CancellableFSDataOutputStream
  type HDFSMetadataLog[T <: AnyRef] = streaming.HDFSMetadataLog[T]
  type OffsetSeq = streaming.OffsetSeq
  type OffsetSeqLog = streaming.OffsetSeqLog
  type OffsetSeqMetadata = streaming.OffsetSeqMetadata
  val OffsetSeqMetadata = streaming.OffsetSeqMetadata

  type AsyncProgressTrackingMicroBatchExecution = streaming.AsyncProgressTrackingMicroBatchExecution
  type CompactibleFileStreamLog[T <: AnyRef] = streaming.CompactibleFileStreamLog[T]
  val CompactibleFileStreamLog = streaming.CompactibleFileStreamLog
  type IncrementalExecution = streaming.IncrementalExecution
  type MicroBatchExecution = streaming.MicroBatchExecution
  type MicroBatchExecutionContext = streaming.MicroBatchExecutionContext
  type MultiBatchExecutor = streaming.MultiBatchExecutor
  type ProcessingTimeExecutor = streaming.ProcessingTimeExecutor
  type SingleBatchExecutor = streaming.SingleBatchExecutor
  type StreamExecution = streaming.StreamExecution
  val StreamExecution = streaming.StreamExecution
  type StreamExecutionContext = streaming.StreamExecutionContext
  type StreamProgress = streaming.StreamProgress
  type StreamingRelation = streaming.StreamingRelation
  type TriggerExecutor = streaming.TriggerExecutor
  type WatermarkPropagator = streaming.WatermarkPropagator
  val WatermarkPropagator = streaming.WatermarkPropagator
  type WatermarkTracker = streaming.WatermarkTracker

  type FileStreamSink = streaming.FileStreamSink
  type FileStreamSinkLog = streaming.FileStreamSinkLog
  type SinkFileStatus = streaming.SinkFileStatus

  type FlatMapGroupsWithStateExec = streaming.FlatMapGroupsWithStateExec
  type FlatMapGroupsWithStateExecBase = streaming.FlatMapGroupsWithStateExecBase
  type SessionWindowStateStoreSaveExec = streaming.SessionWindowStateStoreSaveExec
  type StateStoreSaveExec = streaming.StateStoreSaveExec
  type StateStoreWriter = streaming.StateStoreWriter
  type StreamingDeduplicateExec = streaming.StreamingDeduplicateExec
  type StreamingDeduplicateWithinWatermarkExec = streaming.StreamingDeduplicateWithinWatermarkExec
  type StreamingGlobalLimitExec = streaming.StreamingGlobalLimitExec
  type StreamingSymmetricHashJoinExec = streaming.StreamingSymmetricHashJoinExec
}
