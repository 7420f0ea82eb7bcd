package org.apache.spark.ckpt

import java.util.Properties
import java.util.concurrent.{ExecutionException, Future, LinkedBlockingQueue, ThreadPoolExecutor, TimeUnit, TimeoutException}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import org.apache.spark.SparkContext

/** A call of a hook that failed, or has not returned in time. */
final class HookFailure(message: String) extends Exception(message)

/**
 * A registered hook, and the thread in which all its calls come one after another. Nothing can end a call that hangs: it keeps the thread,
 * and as long as it does no other call is made, also at a later start of the query.
 */
final class HookThread(val name: String, hook: CheckpointHook) {
  import HookThread._

  // A thread without work goes after a while. It is born in the query's, and would have the properties of that: what a hook runs would be in
  // the job group that ends with the query, and taken for its tasks.
  private val executor = new ThreadPoolExecutor(1, 1, IdleS, TimeUnit.SECONDS, new LinkedBlockingQueue[Runnable](), (task: Runnable) => {
    val thread = new Thread(() => {
      SparkContext.getActive.foreach(_.setLocalProperties(new Properties))
      task.run()
    }, s"checkpoint-hook-$name")
    thread.setDaemon(true)
    thread
  })
  executor.allowCoreThreadTimeOut(true)
  @volatile private var running: Option[Running] = None
  @volatile private var completed = new Completed

  /** `call`: as it is told to people. */
  def begin[T](call: => String)(body: CheckpointHook => T): HookCall[T] = new HookCall(this, call, executor.submit(() => {
    running = Some(Running(call, System.nanoTime()))
    try body(hook) finally running = None
  }))

  /** The newest epoch covers the others: while a call waits for its turn there is no second one. */
  def beginCompleted(epoch: Long): Option[HookCall[Unit]] = {
    val ofRun = completed
    ofRun.newest.accumulateAndGet(epoch, math.max(_, _))
    Option.when(ofRun.waits.compareAndSet(false, true))(begin(s"completed(${ofRun.newest.get})") { h =>
      ofRun.waits.set(false)
      h.completed(ofRun.newest.get)
    })
  }

  /** Another run of the query begins: what it completes is told after its restore. */
  def forgetCompleted(): Unit = completed = new Completed

  /** What the hook is at, if that has taken longer than this. */
  def stuck(timeoutMs: Long): Option[HookFailure] =
    running.filter(r => System.nanoTime() - r.sinceNs > TimeUnit.MILLISECONDS.toNanos(timeoutMs)).map(r => late(r.call, timeoutMs))

  def close(): Unit = executor.shutdown()

  private[ckpt] def late(call: String, timeoutMs: Long): HookFailure = {
    val other = running.map(_.call).filter(_ != call).map(at => s", behind $at").getOrElse("")
    new HookFailure(s"the hook '$name' has not returned from $call$other within $timeoutMs ms (spark.ckpt.hooks.timeout)")
  }

  private[ckpt] def giveUp(call: Future[_]): Unit = {
    call.cancel(false)
    executor.purge()
  }
}

object HookThread {
  private val IdleS = 60L

  private final case class Running(call: String, sinceNs: Long)

  /** Of one run of a query. */
  private final class Completed {
    val newest = new AtomicLong(Long.MinValue)
    val waits = new AtomicBoolean
  }
}

final class HookCall[T](thread: HookThread, call: => String, future: Future[T]) {

  def isDone: Boolean = future.isDone

  /** Its result, waited for until then (`System.nanoTime`). One that is late is not made any more, if it still waits for its turn. Throws a HookFailure. */
  def result(deadlineNs: Long, timeoutMs: Long): T =
    try future.get(math.max(0L, deadlineNs - System.nanoTime()), TimeUnit.NANOSECONDS)
    catch {
      case e: ExecutionException => throw new HookFailure(s"the hook '${thread.name}' failed in $call: ${e.getCause}")
      case _: TimeoutException =>
        val failure = thread.late(call, timeoutMs)
        thread.giveUp(future)
        throw failure
      case e: InterruptedException =>
        thread.giveUp(future)
        throw e
    }
}
