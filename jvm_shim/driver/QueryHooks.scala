package org.apache.spark.ckpt

import java.util.Base64
import java.util.concurrent.{ConcurrentLinkedQueue, TimeUnit}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging

/** `timeoutMs`: of each call. `fails`: a hook that fails ends the query; else its epoch becomes no checkpoint, where that can be. */
final case class HookLimits(timeoutMs: Long, fails: Boolean)

/**
 * The hooks of one start of a query. `snapshot` and `restore` are waited for, in the query's thread: no data of the next epoch comes before
 * the state of this one is taken. The others are not: what goes wrong in them is met at the query's next step.
 */
final class QueryHooks(threads: Seq[HookThread], limits: HookLimits) extends Logging {
  import QueryHooks._

  // What the hooks are told and nobody waits for.
  private val underWay = new ConcurrentLinkedQueue[(HookThread, HookCall[Unit])]()
  // Of the query's thread.
  private var warned = Set.empty[String]
  // A coordinator that replaces another tells of the origin again, perhaps before the hooks know of the run.
  @volatile private var restored = false

  def names: Seq[String] = threads.map(_.name)

  def isEmpty: Boolean = threads.isEmpty

  /** A run of the stream at that URL begins, by the log entry `claim`: `origin` is the epoch of the checkpoint that it goes on from. Whether anybody was told that this one is complete nobody knows. */
  def restore(stream: String, claim: Long, states: Map[String, Array[Byte]], origin: Option[Long]): Unit = {
    underWay.clear()
    threads.foreach(_.forgetCompleted())
    await[Unit]("restore", t => h => { h.begin(stream, claim); h.restore(states.get(t.name).orNull) }).failures.foreach(fail)
    restored = true
    origin.foreach(completed)
  }

  /** What goes with the seal of the epoch, as JSON. `mayDecline`: the epoch can end without its checkpoint. */
  def snapshot(epoch: Long, mayDecline: Boolean): ObjectNode = {
    check()
    val taken = await[Option[Array[Byte]]](s"snapshot($epoch)", _ => h => sized(h.snapshot(epoch)))
    taken.failures.foreach { message =>
      if (limits.fails || !mayDecline) fail(message)
      logWarning(s"epoch $epoch becomes no checkpoint: $message")
    }
    Json.obj("states" -> taken.results.map { case (name, state) => name -> state.map(Base64.getEncoder.encodeToString) },
      "declined" -> taken.failures)
  }

  /** What comes before the first `restore` is told after it. */
  def completed(epoch: Long): Unit = if (restored) threads.foreach(t => t.beginCompleted(epoch).foreach(call => underWay.add(t -> call)))

  /** Of little use, hence not for a hook that hangs. */
  def aborted(epoch: Long): Unit = if (restored) threads.filter(_.stuck(limits.timeoutMs).isEmpty).foreach { t =>
    underWay.add(t -> t.begin(s"aborted($epoch)")(_.aborted(epoch)))
  }

  /** Meets what went wrong with what was told. Called between two steps of the query. */
  def check(): Unit = if (!isEmpty) {
    underWay.asScala.filter(_._2.isDone).toSeq.foreach { case entry @ (_, call) =>
      underWay.remove(entry)
      contained(call.result(System.nanoTime(), limits.timeoutMs))
    }
    val hanging = threads.flatMap(_.stuck(limits.timeoutMs))
    hanging.filterNot(f => warned.contains(f.getMessage)).foreach(failure => contained(throw failure))
    warned = hanging.map(_.getMessage).toSet
  }

  /** The query is about to end by itself: what was told is waited for. */
  def settle(): Unit = if (!isEmpty) {
    val deadline = deadlineNs
    Iterator.continually(underWay.poll()).takeWhile(_ != null).foreach { case (_, call) => contained(call.result(deadline, limits.timeoutMs)) }
  }

  private def contained(body: => Unit): Unit =
    try body
    catch {
      case e: HookFailure if !limits.fails => logWarning(s"${e.getMessage}; it is told again with the next checkpoint")
      case e: HookFailure => fail(e.getMessage)
    }

  private def fail(message: String): Nothing = throw new CheckpointFailure(CheckpointFailure.Declined,
    s"$message; its own code has to be mended, or spark.ckpt.hooks.timeout to be longer; the query goes on from its last checkpoint when it is started again")

  /** A hook that hangs is not asked. */
  private def await[T](call: String, body: HookThread => CheckpointHook => T): Taken[T] = {
    val deadline = deadlineNs
    val calls = threads.map(t => (t, t.stuck(limits.timeoutMs).toLeft(t.begin(call)(body(t)))))
    val results = calls.map { case (thread, begun) => thread.name -> begun.left.map(_.getMessage).flatMap { made =>
      try Right(made.result(deadline, limits.timeoutMs)) catch { case e: HookFailure => Left(e.getMessage) }
    } }
    Taken(results.collect { case (name, Right(value)) => name -> value }.toMap, results.collectFirst { case (_, Left(message)) => message })
  }

  private def deadlineNs: Long = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limits.timeoutMs)
}

object QueryHooks {
  /** Bytes: the states of all hooks go through one line of the coordinator's pipe. */
  private val MaxState = 1 << 20

  val none: QueryHooks = new QueryHooks(Nil, HookLimits(0L, fails = true))

  /** As the coordinator gives them. */
  def states(node: JsonNode): Map[String, Array[Byte]] =
    Option(node).toSeq.flatMap(_.properties().asScala).map(e => e.getKey -> Base64.getDecoder.decode(e.getValue.asText())).toMap

  private final case class Taken[T](results: Map[String, T], failures: Option[String])

  private def sized(state: Array[Byte]): Option[Array[Byte]] = Option(state).map { bytes =>
    if (bytes.length > MaxState) throw new IllegalArgumentException(
      s"its state has ${bytes.length} bytes, more than $MaxState; keep what is large elsewhere, and in the checkpoint its name")
    bytes
  }
}
