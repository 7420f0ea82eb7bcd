package org.apache.spark.sql.ckpt

import java.util.Locale

import org.apache.spark.sql.catalyst.expressions.{Expression, NamedExpression}
import org.apache.spark.sql.catalyst.plans.physical.{ClusteredDistribution, StatefulOpClusteredDistribution}
import org.apache.spark.sql.ckpt.SparkStreaming.{FlatMapGroupsWithStateExecBase, SessionWindowStateStoreSaveExec, StateStoreSaveExec, StateStoreWriter, StreamExecution, StreamingDeduplicateExec, StreamingDeduplicateWithinWatermarkExec, StreamingGlobalLimitExec, StreamingSymmetricHashJoinExec}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec

/** A stateful operator as a person would call it: its kind and its keys. */
object OperatorNames {

  /** By operator id, once the query has executed an epoch; empty before. */
  def of(query: StreamExecution): Map[Long, String] =
    Option(query.lastExecution).map(_.executedPlan.collect { case op: StateStoreWriter if op.stateInfo.isDefined => op.getStateInfo.operatorId -> name(op) }.toMap)
      .getOrElse(Map.empty)

  private def name(op: StateStoreWriter): String = op match {
    case a: StateStoreSaveExec => s"aggregate(${keys(a.keyExpressions)})"
    case a: BaseAggregateExec => s"aggregate(${keys(a.groupingExpressions)})" // in real time
    case s: SessionWindowStateStoreSaveExec => s"session windows(${keys(s.keyWithoutSessionExpressions)})"
    case d: StreamingDeduplicateExec => s"deduplicate(${keys(d.keyExpressions)})"
    case d: StreamingDeduplicateWithinWatermarkExec => s"deduplicate within watermark(${keys(d.keyExpressions)})"
    case j: StreamingSymmetricHashJoinExec => s"${j.joinType.sql.toLowerCase(Locale.ROOT)} join(${keys(j.leftKeys)} = ${keys(j.rightKeys)})"
    case f: FlatMapGroupsWithStateExecBase => s"groups with state(${clusteredBy(f)})"
    case t @ TransformWithStates() => s"transform with state(${clusteredBy(t)})"
    case _: StreamingGlobalLimitExec => "limit"
    case other => other.asInstanceOf[SparkPlan].nodeName
  }

  /** The keys that its input has to be partitioned by. */
  private def clusteredBy(op: SparkPlan): String = op.requiredChildDistribution.headOption match {
    case Some(d: StatefulOpClusteredDistribution) => keys(d.expressions)
    case Some(d: ClusteredDistribution) => keys(d.clustering)
    case _ => ""
  }

  private def keys(of: Seq[Expression]): String = of.map {
    case n: NamedExpression => n.name
    case e => e.references.map(_.name).mkString(" ")
  }.distinct.mkString(", ")
}
