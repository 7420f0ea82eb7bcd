package org.apache.spark.ckpt

import java.util.{Map => JMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkContext, TaskFailedReason}
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.ckpt.ui.CheckpointsTab
import org.apache.spark.sql.execution.streaming.state.ckpt.SnapshotVersion
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}

/** What `spark.plugins` names: it alone switches checkpoints on, for driver and executors. */
class CheckpointPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = {
    SparkLinks.checked
    new CheckpointDriverPlugin
  }

  override def executorPlugin(): ExecutorPlugin = {
    SparkLinks.checked
    new CheckpointExecutorPlugin
  }
}

class CheckpointDriverPlugin extends DriverPlugin with Contained {

  /** Runs before any session exists: what it sets on the context's configuration is what every session sees. */
  override def init(sc: SparkContext, context: PluginContext): JMap[String, String] = {
    DriverSide.start(sc)
    // A queue of its own: Spark drops events of a queue whose listeners are slow.
    sc.listenerBus.addToQueue(new SparkListener {
      override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = DriverSide.executorLost(removed.executorId)
    }, "checkpoint-executors")
    contained("the Checkpoints tab")(CheckpointsTab.attach(sc))
    // The driver knows which Python the workers run (PYSPARK_PYTHON of its environment, too); an executor may not.
    JMap.of(CheckpointPlugin.Python, Interpreters(sc.conf).executors, CheckpointPlugin.Limits, Json.line(DriverSide.limits))
  }

  override def receive(message: Any): AnyRef = message match {
    case line: String => DriverSide.receive(line)
    case other => throw new IllegalArgumentException(s"not a message of a checkpoint agent: $other")
  }

  override def shutdown(): Unit = DriverSide.stop()
}

class CheckpointExecutorPlugin extends ExecutorPlugin {
  override def init(context: PluginContext, extra: JMap[String, String]): Unit = {
    SnapshotVersion.pin()
    ExecutorSide.start(context, extra.get(CheckpointPlugin.Python), ExecutorLimits(Json.parse(extra.get(CheckpointPlugin.Limits))))
  }
  override def onTaskStart(): Unit = ExecutorSide.taskStarted()
  override def onTaskSucceeded(): Unit = ExecutorSide.taskEnded()
  override def onTaskFailed(reason: TaskFailedReason): Unit = ExecutorSide.taskEnded()
  override def shutdown(): Unit = ExecutorSide.stop()
}

object CheckpointPlugin {
  val Prefix = "spark.ckpt."
  val Python = "python"
  val Limits = "limits"

  def options(conf: SparkConf): Map[String, String] = conf.getAll.filter(_._1.startsWith(Prefix)).toMap
}
