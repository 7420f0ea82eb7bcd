package org.apache.spark.sql.ckpt

import scala.collection.immutable.HashSet
import scala.util.control.NonFatal

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExecBase
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider

/** Spark 4.2 and 4.3 compare the provider's name before transformWithState runs; this admits ours, a subclass of the one they know. */
class CheckpointExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectColumnar(_ => new ColumnarRule {
      override def preColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
        override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
          case op: TransformWithStateExecBase =>
            if (op.exists(_.getClass.getSimpleName == "RealTimeStreamScanExec")) AdmitProviderExec.allowInRealTime()
            AdmitProviderExec(op)
        }
      }
    })
}

/** Passes rows through. Its child may be copied by any later rule, so the child is changed when it executes, not before. */
case class AdmitProviderExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    child.foreach {
      case op: TransformWithStateExecBase =>
        val field = classOf[TransformWithStateExecBase].getDeclaredField("SUPPORTED_STATE_STORE_PROVIDERS")
        field.setAccessible(true)
        field.set(op, Set(classOf[RocksDBStateStoreProvider].getName, classOf[BarrierStateStoreProvider].getName))
      case _ =>
    }
    child.execute()
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}

object AdmitProviderExec {
  private val Allowlist = "org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist$"

  /**
   * Spark compares names here too: in real time it refuses a plan with an operator that its list does not have. The list is a constant, so
   * what is changed is the set. Where a Spark keeps it otherwise, its own refusal names this operator, and the option to go on with.
   */
  def allowInRealTime(): Unit =
    try {
      val (names, root) = (Class.forName(Allowlist).getDeclaredField("allowedOperators"), classOf[HashSet[_]].getDeclaredField("rootNode"))
      names.setAccessible(true)
      root.setAccessible(true)
      names.get(null) match {
        case allowed: HashSet[String @unchecked] => root.set(allowed, root.get(allowed + classOf[AdmitProviderExec].getName))
        case _ =>
      }
    } catch { case NonFatal(_) | _: LinkageError => }
}
