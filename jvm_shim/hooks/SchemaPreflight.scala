package org.apache.spark.sql.ckpt

import java.nio.file.Files

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.SparkThrowable
import org.apache.spark.ckpt.{CheckpointFailure, Comparison}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, MicroBatchExecution, StreamingRelation, WatermarkPropagator}
import org.apache.spark.util.Utils

/**
 * Whether a query fits the state of a checkpoint that a person chose, before anything is changed. It is Spark's own comparison: the
 * epoch after the checkpoint is planned, without rows, over a copy of the small files that Spark would find.
 */
object SchemaPreflight extends Logging {

  /** Runs in the query thread. Throws for what Spark says of state that does not fit; what else planning may throw, the query will say itself. */
  def apply(query: MicroBatchExecution, comparison: Comparison): Unit = {
    val folder = Files.createTempDirectory("spark-ckpt-preflight-").toFile // the owner's alone
    try plan(query, comparison, new Path(folder.toURI).toString)
    catch {
      case e: SparkThrowable if Option(e.getCondition).exists(c => Conditions.exists(c.startsWith)) =>
        throw new CheckpointFailure(CheckpointFailure.Conflict,
          s"spark.ckpt.restore.path=${comparison.path} does not fit this query: ${e.getMessage.linesIterator.map(_.trim).filter(_.nonEmpty).mkString(" ")}")
      case NonFatal(e) => logInfo("the state's schemas could not be compared before the start", e)
    } finally Utils.deleteRecursively(folder)
  }

  private def plan(query: MicroBatchExecution, comparison: Comparison, root: String): Unit = {
    val session = query.sparkSessionForStream.cloneSession()
    // When Spark plans an epoch, its offsets are there (`OperatorStateMetadataV2Reader` asks for them).
    val next = comparison.files.get(s"offsets/${comparison.epoch}").map(s"offsets/${comparison.epoch + 1}" -> _)
    new CheckpointFolder(root, session.sessionState.newHadoopConf()).replace(comparison.files ++ next, mark = None)
    val recorded = new OffsetSeqLog(session, new Path(root, "offsets").toString).get(comparison.epoch).flatMap(_.metadataOpt)
    recorded.foreach { metadata =>
      session.withActive {
        new IncrementalExecution(
          session, withoutRows(query.analyzedPlan), query.outputMode, new Path(root, "state").toString, query.id, query.runId,
          comparison.epoch + 1, Some(metadata), metadata, WatermarkPropagator.noop(), true).executedPlan
      }
    }
  }

  private def withoutRows(plan: LogicalPlan): LogicalPlan = plan.transform {
    case s: StreamingRelation => LocalRelation(s.output, isStreaming = true)
    case s: StreamingRelationV2 => LocalRelation(s.output, isStreaming = true)
  }

  private val Conditions = Seq("STATE_STORE_", "STREAMING_STATEFUL_OPERATOR_")
}
