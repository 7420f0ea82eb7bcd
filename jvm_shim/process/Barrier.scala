package org.apache.spark.ckpt

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.{SparkContext, TaskContext}
import org.apache.spark.ckpt.Json.Fields

/** The checkpoint barrier as a task sees it: which stream, run and epoch its commit belongs to, and what is already durable. */
final case class Barrier(text: String) {
  private val node: JsonNode = Json.parse(text)
  val root: String = node.str("root")
  val stream: String = node.str("stream")
  val run: Long = node.long("run")
  val epoch: Long = node.long("epoch")
  val base: JsonNode = node.get("base")
  val timeMs: Long = node.long("time_ms")
  /** Does the epoch's end belong to a checkpoint, so that what is committed is to be uploaded at once? */
  val checkpoint: Boolean = node.path("checkpoint").asBoolean(true)
  /** An earlier epoch that was made a checkpoint after it had ended. */
  val late: Option[Long] = node.optLong("late")
  /** Packs of which little is needed any more: the agent's affair. */
  val sparse: Option[JsonNode] = Option(node.get("sparse")).filterNot(_.isEmpty)
  /** Where the epoch has a new number: the version under which the checkpoint holds the state that it begins with, 0 for no state. */
  val version: Option[Long] = node.optLong("version")
  /** Operators that the checkpoint has no state of, since the query has changed: in this epoch they begin empty. */
  val begins: Set[Long] = node.path("begins").elements().asScala.map(_.asLong()).toSet
}

object Barrier {
  private val Property = "spark.ckpt.barrier"

  /** Runs in the query thread: every task of the jobs it starts from now on carries the barrier. */
  def set(sc: SparkContext, text: String): Unit = sc.setLocalProperty(Property, text)

  /** The barrier of the running task, if it belongs to the stream at `root`. */
  def ofTask(root: String): Option[Barrier] =
    Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(Property))).map(parsed).filter(_.root == root)

  /** The stream of the running task. */
  def rootOfTask: Option[String] = Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(Property))).map(parsed(_).root)

  // All tasks of an epoch carry the same one.
  @volatile private var last: Option[Barrier] = None

  private def parsed(text: String): Barrier = last.filter(_.text == text).getOrElse {
    val barrier = Barrier(text)
    last = Some(barrier)
    barrier
  }
}
