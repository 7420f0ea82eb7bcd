package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.JobShape
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, StreamingRelation}

/** Tells one job from another by what its state depends on: stateful operators with their keys, and the kinds of its sources. */
object JobShapes {

  def of(query: MicroBatchExecution): JobShape = {
    val plan = query.analyzedPlan
    val operators = plan.collect {
      case a: Aggregate if a.isStreaming => s"aggregate(${names(a.groupingExpressions)})"
      case d: Deduplicate if d.isStreaming => s"deduplicate(${names(d.keys)})"
      case d: DeduplicateWithinWatermark if d.isStreaming => s"deduplicateWithinWatermark(${names(d.keys)})"
      case d: Distinct if d.isStreaming => "distinct"
      case j: Join if j.left.isStreaming && j.right.isStreaming => s"join(${j.joinType.sql.toLowerCase(java.util.Locale.ROOT)})"
      case l: GlobalLimit if l.isStreaming => "limit"
      case p if p.isStreaming && Stateful(p.nodeName) => p.nodeName
    }
    val sources = plan.collectLeaves().collect {
      case r: StreamingRelation => named(r.sourceName.takeWhile(_ != '['), r)
      case r: StreamingRelationV2 => named(r.sourceName, r)
    }
    JobShape(operators, sources, sinkName(query))
  }

  private val Stateful = Set(
    "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark", "TransformWithStateInPandas")

  private def named(kind: String, source: LogicalPlan): String = SourceNames.of(source).fold(kind)(name => s"$kind($name)")

  private def names(keys: Seq[org.apache.spark.sql.catalyst.expressions.Expression]): String =
    keys.flatMap(_.references.map(_.name)).distinct.mkString(", ")

  private def sinkName(query: MicroBatchExecution): String = query.sink.getClass.getSimpleName.stripSuffix("$")
}
