package org.apache.spark.sql.ckpt

import org.apache.spark.sql.execution.streaming.{checkpointing, runtime, sinks}
import org.apache.spark.sql.execution.streaming.operators.stateful
import org.apache.spark.sql.execution.streaming.operators.stateful.{flatmapgroupswithstate, join}

/** The classes of Spark's streaming engine, which lines of Spark have in different packages. */
object SparkStreaming {
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  val CheckpointFileManager = checkpointing.CheckpointFileManager
  type CancellableFSDataOutputStream = checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
  type HDFSMetadataLog[T <: AnyRef] = checkpointing.HDFSMetadataLog[T]
  type OffsetSeq = checkpointing.OffsetSeq
  type OffsetSeqLog = checkpointing.OffsetSeqLog
  type OffsetSeqMetadata = checkpointing.OffsetSeqMetadata
  val OffsetSeqMetadata = checkpointing.OffsetSeqMetadata

  type AsyncProgressTrackingMicroBatchExecution = runtime.AsyncProgressTrackingMicroBatchExecution
  type CompactibleFileStreamLog[T <: AnyRef] = runtime.CompactibleFileStreamLog[T]
  val CompactibleFileStreamLog = runtime.CompactibleFileStreamLog
  type IncrementalExecution = runtime.IncrementalExecution
  type MicroBatchExecution = runtime.MicroBatchExecution
  type MicroBatchExecutionContext = runtime.MicroBatchExecutionContext
  type MultiBatchExecutor = runtime.MultiBatchExecutor
  type ProcessingTimeExecutor = runtime.ProcessingTimeExecutor
  type SingleBatchExecutor = runtime.SingleBatchExecutor
  type StreamExecution = runtime.StreamExecution
  val StreamExecution = runtime.StreamExecution
  type StreamExecutionContext = runtime.StreamExecutionContext
  type StreamProgress = runtime.StreamProgress
  type StreamingRelation = runtime.StreamingRelation
  type TriggerExecutor = runtime.TriggerExecutor
  type WatermarkPropagator = runtime.WatermarkPropagator
  val WatermarkPropagator = runtime.WatermarkPropagator
  type WatermarkTracker = runtime.WatermarkTracker

  type FileStreamSink = sinks.FileStreamSink
  type FileStreamSinkLog = sinks.FileStreamSinkLog
  type SinkFileStatus = sinks.SinkFileStatus

  type FlatMapGroupsWithStateExec = flatmapgroupswithstate.FlatMapGroupsWithStateExec
  type FlatMapGroupsWithStateExecBase = flatmapgroupswithstate.FlatMapGroupsWithStateExecBase
  type SessionWindowStateStoreSaveExec = stateful.SessionWindowStateStoreSaveExec
  type StateStoreSaveExec = stateful.StateStoreSaveExec
  type StateStoreWriter = stateful.StateStoreWriter
  type StreamingDeduplicateExec = stateful.StreamingDeduplicateExec
  type StreamingDeduplicateWithinWatermarkExec = stateful.StreamingDeduplicateWithinWatermarkExec
  type StreamingGlobalLimitExec = stateful.StreamingGlobalLimitExec
  type StreamingSymmetricHashJoinExec = join.StreamingSymmetricHashJoinExec
}
