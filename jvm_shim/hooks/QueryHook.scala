package org.apache.spark.sql.ckpt

import java.lang.reflect.InvocationTargetException
import java.util.concurrent.locks.{Condition, ReentrantLock}

import scala.collection.mutable

import org.apache.spark.sql.ckpt.SparkStreaming.{CompactibleFileStreamLog, FileStreamSink, FileStreamSinkLog, HDFSMetadataLog, MicroBatchExecution, StreamExecution, StreamExecutionContext, WatermarkPropagator, WatermarkTracker}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.streaming.Trigger

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

  /** The query's sources, in the order of the offset log's lines. */
  def sources(query: MicroBatchExecution): Seq[SparkDataStream] =
    classOf[MicroBatchExecution].getMethod("sources").invoke(query).asInstanceOf[Seq[SparkDataStream]]

  def wrapSink(query: StreamExecution): Unit = query.sink match {
    case _: StateKeepingSink =>
    case sink: Sink =>
      val field = classOf[StreamExecution].getDeclaredField("sink")
      field.setAccessible(true)
      field.set(query, new StateKeepingSink(sink))
    case _ =>
  }

  def setTrigger(query: StreamExecution, trigger: Trigger): Unit = {
    val field = classOf[StreamExecution].getDeclaredField("trigger")
    field.setAccessible(true)
    field.set(query, trigger)
  }

  /** Makes the query's logical plan, and with it its sources and its trigger executor. Runs in the query thread. */
  def makePlan(query: MicroBatchExecution): Unit = QuerySession.of(query).withActive(query.logicalPlan)

  /**
   * Makes the query forget what it has read and run, as if it had just been made: sources list what they have seen, logs keep what they
   * have read, and plan and first offsets are lazy values. The next `makePlan` and `runActivatedStream` read all of it from the files.
   */
  def forgetProgress(query: MicroBatchExecution): Unit = {
    classOf[StreamExecution].getMethod("stopSources").invoke(query)
    stateIds(query).clear()
    forgetWatermarks(query)
    val lazies = classOf[MicroBatchExecution].getDeclaredField("bitmap$0")
    lazies.setAccessible(true)
    lazies.setByte(query, 0)
    // Else the context of the newest epoch stays: Spark takes over one with a lower number only if there is none.
    val latest = classOf[MicroBatchExecution].getDeclaredField("latestExecutionContext")
    latest.setAccessible(true)
    latest.get(query).asInstanceOf[StreamExecutionContext].batchId = -1L
    val cache = classOf[HDFSMetadataLog[_]].getDeclaredField("batchCache")
    cache.setAccessible(true)
    Seq[AnyRef](query.offsetLog, query.commitLog).foreach(log => cache.get(log).asInstanceOf[java.util.Map[_, _]].clear())
  }

  /** What a query does when it has started: it reads its logs, then hands its epochs to the trigger executor. */
  def runActivatedStream(query: MicroBatchExecution): Unit =
    try classOf[MicroBatchExecution].getMethod("runActivatedStream", classOf[SparkSession]).invoke(query, QuerySession.of(query))
    catch { case e: InvocationTargetException => throw e.getCause }

  def watermarkTracker(query: MicroBatchExecution): WatermarkTracker =
    classOf[MicroBatchExecution].getMethod("watermarkTracker").invoke(query).asInstanceOf[WatermarkTracker]

  /** Spark keeps the watermark of every epoch it has looked at, and refuses another one for the same number. */
  def forgetWatermarks(query: MicroBatchExecution): Unit = {
    val propagator = classOf[MicroBatchExecution].getDeclaredMethod("watermarkPropagator")
    propagator.setAccessible(true)
    propagator.invoke(query).asInstanceOf[WatermarkPropagator].purge(Long.MaxValue)
  }

  /** Whoever waits until all that is there has been read (`processAllAvailable`) waits no longer. */
  def nothingNew(query: StreamExecution): Unit = {
    val of = classOf[StreamExecution]
    val lock = of.getMethod("awaitProgressLock").invoke(query).asInstanceOf[ReentrantLock]
    lock.lock()
    try {
      of.getMethod("noNewData_$eq", classOf[Boolean]).invoke(query, Boolean.box(true))
      of.getMethod("awaitProgressLockCondition").invoke(query).asInstanceOf[Condition].signalAll()
    } finally lock.unlock()
  }

  /** What the file sink remembers. */
  def sinkLog(sink: FileStreamSink): FileStreamSinkLog = {
    val field = classOf[FileStreamSink].getDeclaredField("fileLog")
    field.setAccessible(true)
    field.get(sink).asInstanceOf[FileStreamSinkLog]
  }

  /** How many batches of the file sink's log make one compacted entry. */
  def compactInterval(log: FileStreamSinkLog): Int =
    classOf[CompactibleFileStreamLog[_]].getMethod("compactInterval").invoke(log).asInstanceOf[Int]
}
