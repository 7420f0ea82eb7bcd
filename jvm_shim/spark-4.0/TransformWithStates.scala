package org.apache.spark.sql.ckpt

import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, TransformWithState, TransformWithStateInPandas}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPandasExec
import org.apache.spark.sql.execution.streaming.TransformWithStateExec

/** transformWithState, in Scala and in Python. */
object TransformWithStates {
  def unapply(plan: SparkPlan): Boolean = plan.isInstanceOf[TransformWithStateExec] || plan.isInstanceOf[TransformWithStateInPandasExec]

  def isOne(plan: LogicalPlan): Boolean = plan.isInstanceOf[TransformWithState] || plan.isInstanceOf[TransformWithStateInPandas]

  /** The operator's id, if it begins with a state that was given. */
  def begun(plan: SparkPlan): Option[Long] = plan match {
    case t: TransformWithStateExec if t.hasInitialState => Some(t.getStateInfo.operatorId)
    case t: TransformWithStateInPandasExec if t.hasInitialState => Some(t.getStateInfo.operatorId)
    case _ => None
  }
}
