package org.apache.spark.ckpt

import java.util.concurrent.{ArrayBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong
import java.util.function.Consumer

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd, SparkListenerEvent}
import org.apache.spark.util.JsonProtocol

/**
 * Hands checkpoint events to a `spark_ckpt.CheckpointListener`, through the callback server that PySpark itself has for
 * `StreamingQueryListener`. A thread of its own calls Python; a listener that is slow or hangs loses events (which is logged), and holds
 * up nobody.
 */
class ListenerBridge(sc: SparkContext, python: Consumer[String]) extends SparkListener with Logging {
  import ListenerBridge._

  private val waiting = new ArrayBlockingQueue[CheckpointEvent](Capacity)
  private val lost = new AtomicLong()
  @volatile private var open = true

  def start(): Unit = {
    val thread = new Thread(() => serve(), "checkpoint-listener")
    thread.setDaemon(true)
    thread.start()
    sc.listenerBus.addToQueue(this, "checkpoints")
  }

  /** What has been noticed so far is still handed over. */
  def stop(): Unit = {
    sc.listenerBus.removeListener(this)
    open = false
  }

  def isOpen: Boolean = open

  /** Nothing follows: the thread must not keep the context alive for as long as the JVM lives. */
  override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = open = false

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case e: CheckpointEvent if !waiting.offer(e) =>
      if (lost.getAndIncrement() == 0) logWarning(s"a CheckpointListener is more than $Capacity events behind; it misses some")
    case _ =>
  }

  private def serve(): Unit =
    while (open || !waiting.isEmpty) {
      val event = waiting.poll(PollMs, TimeUnit.MILLISECONDS)
      if (event != null) {
        try python.accept(JsonProtocol.sparkEventToJsonString(event))
        catch { case e: Throwable => logWarning(s"a CheckpointListener failed at ${event.getClass.getSimpleName} of epoch ${event.epoch}", e) }
      }
    }
}

object ListenerBridge {
  private val Capacity = 1000
  private val PollMs = 200L
}
