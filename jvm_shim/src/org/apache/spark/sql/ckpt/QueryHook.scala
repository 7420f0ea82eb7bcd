package org.apache.spark.sql.ckpt

import scala.collection.mutable
import scala.util.Try

import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

/** The private parts of a running query that have to be reached, each by reflection and each named here once. */
object QueryHook {

  /** The query that the current thread runs: its thread is an inner class of StreamExecution. */
  def ofThread(): StreamExecution = {
    val outer = Thread.currentThread().getClass.getDeclaredField("$outer")
    outer.setAccessible(true)
    outer.get(Thread.currentThread()).asInstanceOf[StreamExecution]
  }

  /** Spark's own unique ids of the state stores that the next epoch starts from: operator -> partition -> store. */
  def stateIds(query: MicroBatchExecution): mutable.Map[Long, Array[Array[String]]] = {
    val field = classOf[MicroBatchExecution].getDeclaredField("currentStateStoreCkptId")
    field.setAccessible(true)
    field.get(query).asInstanceOf[mutable.Map[Long, Array[Array[String]]]]
  }

  /** The query's sources, in the order of the offset log's lines, and by the names that newer offset logs use. */
  def sources(query: MicroBatchExecution): (Seq[SparkDataStream], Map[String, SparkDataStream]) = (
    classOf[MicroBatchExecution].getMethod("sources").invoke(query).asInstanceOf[Seq[SparkDataStream]],
    classOf[MicroBatchExecution].getMethod("sourceIdMap").invoke(query).asInstanceOf[Map[String, SparkDataStream]])

  def wrapSink(query: StreamExecution): Unit = query.sink match {
    case _: StateKeepingSink =>
    case sink: Sink =>
      val field = classOf[StreamExecution].getDeclaredField("sink")
      field.setAccessible(true)
      field.set(query, new StateKeepingSink(sink))
    case _ =>
  }

  /**
   * The query makes its trigger executor together with its logical plan, so the plan is made now; the files that it reads are in place.
   * Where it cannot be made, the query is about to say so itself.
   */
  def wrapTrigger(query: MicroBatchExecution, recorded: RecordedEpochs): Unit = {
    val planned = Try(query.sparkSessionForStream.withActive(query.logicalPlan))
    if (planned.isSuccess) query.triggerExecutor = EpochRunner(query, query.triggerExecutor, recorded)
  }
}
