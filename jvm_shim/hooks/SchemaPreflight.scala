package org.apache.spark.sql.ckpt

import java.io.File
import java.nio.file.Files

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.SparkThrowable
import org.apache.spark.ckpt.{CheckpointFailure, Comparison, Content, PlannedAnew, Preflight}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.ckpt.SparkStreaming.{FlatMapGroupsWithStateExec, IncrementalExecution, MicroBatchExecution, OffsetSeqLog, OffsetSeqMetadata, StreamingRelation, WatermarkPropagator}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.util.Utils

/**
 * What Spark makes of a query and a checkpoint, before anything is changed: an epoch is planned, without rows, over a folder of its own. Runs
 * in the query thread.
 */
class SchemaPreflight(query: MicroBatchExecution) extends Preflight with Logging {
  import SchemaPreflight._

  /**
   * Whether the query fits that state, by Spark's own comparison: the epoch after the checkpoint is planned over a copy of the small files
   * that Spark would find. Throws for what Spark says of state that does not fit; what else planning may throw, the query will say itself.
   */
  override def compare(comparison: Comparison): Unit = inFolder { root =>
    try plan(comparison, comparison.files, comparison.epoch + 1, root)
    catch {
      case e: SparkThrowable if Option(e.getCondition).exists(c => Conditions.exists(c.startsWith)) =>
        throw new CheckpointFailure(CheckpointFailure.Conflict,
          s"${comparison.path} does not fit this query: ${e.getMessage.linesIterator.map(_.trim).filter(_.nonEmpty).mkString(" ")}")
      case NonFatal(e) => logInfo("the state's schemas could not be compared before the start", e)
    }
  }

  /** Epoch 0 is planned over the checkpoint's offsets alone, which have the settings that count. Throws what planning throws. */
  override def plan(comparison: Comparison): PlannedAnew = inFolder { root =>
    val planned = plan(comparison, comparison.files.filter(_._1.startsWith("offsets/")), 0L, root)
    val folder = new File(new Path(root).toUri.getPath)
    val written = new CheckpointFolder(root, query.sparkSession.sessionState.newHadoopConf()).present().filter(_.startsWith("state/"))
    PlannedAnew(
      written.map(name => name -> Files.readAllBytes(new File(folder, name).toPath)).toMap,
      planned.toSeq.flatMap(_.flatMap {
        case f: FlatMapGroupsWithStateExec if f.hasInitialState => Some(f.getStateInfo.operatorId)
        case other => TransformWithStates.begun(other)
      }))
  }

  private def inFolder[A](use: String => A): A = {
    val folder = Files.createTempDirectory("spark-ckpt-preflight-").toFile // the owner's alone
    try use(new Path(folder.toURI).toString)
    finally Utils.deleteRecursively(folder)
  }

  private def plan(comparison: Comparison, files: Map[String, Content], epoch: Long, root: String): Option[SparkPlan] = {
    val session = QuerySession.of(query).cloneSession()
    // When Spark plans an epoch, its offsets are there (`OperatorStateMetadataV2Reader` asks for them).
    val next = comparison.files.get(s"offsets/${comparison.epoch}").map(s"offsets/$epoch" -> _)
    new CheckpointFolder(root, session.sessionState.newHadoopConf()).replace(files ++ next, mark = None)
    val recorded = new OffsetSeqLog(session, new Path(root, "offsets").toString).get(comparison.epoch).flatMap(OffsetEntries.metadata(_))
    recorded.map { metadata =>
      OffsetSeqMetadata.setSessionConf(metadata, session.sessionState.conf) // as Spark does when a query goes on: formats of state are among them
      session.withActive {
        new IncrementalExecution(
          session, withoutRows(query.analyzedPlan), query.outputMode, new Path(root, "state").toString, query.id, query.runId,
          epoch, Some(metadata), metadata, WatermarkPropagator.noop(), true).executedPlan
      }
    }
  }

  private def withoutRows(plan: LogicalPlan): LogicalPlan = plan.transform {
    case s: StreamingRelation => LocalRelation(s.output, isStreaming = true)
    case s: StreamingRelationV2 => LocalRelation(s.output, isStreaming = true)
  }
}

object SchemaPreflight {
  private val Conditions = Seq("STATE_STORE_", "STREAMING_STATEFUL_OPERATOR_")
}
