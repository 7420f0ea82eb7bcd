package org.apache.spark.sql.ckpt

import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, TransformWithState, TransformWithStateInPySpark}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{TransformWithStateExec, TransformWithStateExecBase}

/** transformWithState, in Scala and in Python. */
object TransformWithStates {
  def unapply(plan: SparkPlan): Boolean = plan.isInstanceOf[TransformWithStateExecBase]

  def isOne(plan: LogicalPlan): Boolean = plan.isInstanceOf[TransformWithState] || plan.isInstanceOf[TransformWithStateInPySpark]

  /** The operator's id, if it begins with a state that was given. */
  def begun(plan: SparkPlan): Option[Long] = plan match {
    case t: TransformWithStateExec if t.hasInitialState => Some(t.getStateInfo.operatorId)
    case t: TransformWithStateInPySparkExec if t.hasInitialState => Some(t.getStateInfo.operatorId)
    case _ => None
  }
}
