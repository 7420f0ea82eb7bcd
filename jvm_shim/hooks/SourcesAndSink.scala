package org.apache.spark.sql.ckpt

import java.util.Locale

import org.apache.spark.ckpt.JobNeeds
import org.apache.spark.sql.catalyst.plans.logical.{FlatMapGroupsWithState, LogicalPlan}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.ckpt.SparkStreaming.{FileStreamSink, MicroBatchExecution, StreamingRelation}
import org.apache.spark.sql.execution.datasources.FileFormat

/**
 * Which sources can give an epoch's rows once more after it was committed, what the sink remembers by batch id, and whether the query can begin with
 * another epoch than 0. */
object SourcesAndSink {
  private val Replaying = Set("kafka", "rate", "rate-micro-batch", "delta")

  def of(query: MicroBatchExecution): JobNeeds = JobNeeds(
    query.analyzedPlan.collectLeaves().filter(_.isStreaming).flatMap(forgetful).distinct,
    query.sink match {
      case sink: FileStreamSink => QueryHook.sinkLog(sink).getLatestBatchId()
      case _ => None
    },
    query.analyzedPlan.exists {
      // An initial state is loaded in epoch 0 and in no other, and in any other Spark looks for the metadata that an earlier one wrote.
      case f: FlatMapGroupsWithState => f.hasInitialState
      case other => TransformWithStates.isOne(other)
    },
    RealTime.isTrigger(query.trigger))

  private def forgetful(source: LogicalPlan): Option[String] = source match {
    case s: StreamingRelation if classOf[FileFormat].isAssignableFrom(s.dataSource.providingClass) =>
      val cleaning = s.dataSource.options.collectFirst { case (name, value) if name.equalsIgnoreCase("cleanSource") => value }
      cleaning.filterNot(_.equalsIgnoreCase("off")).map(how => s"${plain(s.sourceName)} with cleanSource=$how")
    case s: StreamingRelation => unlessReplaying(plain(s.sourceName))
    case s: StreamingRelationV2 => unlessReplaying(s.sourceName)
    case other => Some(other.nodeName)
  }

  private def unlessReplaying(name: String): Option[String] = Some(name).filterNot(n => Replaying(n.toLowerCase(Locale.ROOT)))

  private def plain(sourceName: String): String = sourceName.takeWhile(_ != '[')
}
