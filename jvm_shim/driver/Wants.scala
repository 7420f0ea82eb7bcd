package org.apache.spark.ckpt

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging

/**
 * One stream's questions for state that other executors have committed, on their way between tasks and coordinator, which decides what
 * becomes of them. A task's executor asks again and again: the coordinator is asked once, and what it says is kept until it is fetched.
 */
final class Wants(tell: ObjectNode => Unit) extends Logging {
  private class Want(val line: ObjectNode) {
    /** Whether whoever holds it is to hand it over. */
    var wanted = false
    var answer: Option[ObjectNode] = None
  }

  private val wants = mutable.LinkedHashMap.empty[String, Want]
  private val part = mutable.LinkedHashSet.empty[String]

  /** An executor is about to commit in the run, or to ask. */
  def joined(executor: String): Unit = synchronized(part += executor)

  def lost(executor: String): Unit = synchronized(part -= executor)

  /** Those that take part in the run, less those that are lost. */
  def executors: Seq[String] = synchronized(part.toSeq)

  /** What is known so far: `handles`, `lost`, `declined`, or nothing of these. */
  def ask(message: JsonNode): ObjectNode = {
    val uid = message.str("uid")
    val (answer, isNew) = synchronized {
      val known = wants.get(uid)
      val answer = known.flatMap(_.answer)
      if (answer.nonEmpty) wants.remove(uid)
      else if (known.isEmpty) wants(uid) = new Want(message.asInstanceOf[ObjectNode])
      (answer, known.isEmpty)
    }
    if (isNew) {
      logInfo(s"a task needs state store ${message.str("op")}/${message.str("part")}/${message.str("store")}, version ${message.str("version")}, " +
        "which another executor has and no checkpoint yet")
      tell(question(message))
    }
    answer.getOrElse(Wants.Unknown)
  }

  /** The coordinator wants whoever holds it to hand it over. */
  def handOver(uid: String): Unit = synchronized(wants.get(uid).foreach(_.wanted = true))

  def answered(message: JsonNode): Unit = synchronized {
    wants.get(message.str("uid")).foreach(
      _.answer = Some(Json.obj("handles" -> message.get("handles"), "lost" -> message.get("lost"), "declined" -> message.get("declined"))))
  }

  /** Whether the coordinator has still to answer, and may wait for reports. */
  def isOpen: Boolean = synchronized(wants.values.exists(_.answer.isEmpty))

  /** What an executor that holds these commits is to hand over. */
  def of(held: Set[String]): Seq[ObjectNode] = synchronized {
    wants.toSeq.collect { case (uid, want) if want.wanted && want.answer.isEmpty && held(uid) =>
      Json.obj(Wants.Names.map(name => name -> want.line.get(name)): _*)
    }
  }

  /** To a coordinator that takes another one's place. */
  def retell(say: ObjectNode => Unit): Unit = synchronized {
    wants.values.filter(_.answer.isEmpty).foreach(want => say(question(want.line)))
  }

  /** The tasks that asked are gone. */
  def clear(): Unit = synchronized(wants.clear())

  /** Another run begins: none has committed in it. */
  def begin(): Unit = synchronized {
    wants.clear()
    part.clear()
  }

  private def question(message: JsonNode): ObjectNode =
    Json.obj("type" -> "want", "root" -> message.get("root"), "uid" -> message.get("uid"), "version" -> message.get("version"), "executors" -> executors)
}

object Wants {
  private val Names = Seq("root", "op", "part", "store", "uid")
  private def Unknown: ObjectNode = Json.obj("handles" -> None, "lost" -> false, "declined" -> None)
}
