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
final class StateQuestions(tell: ObjectNode => Unit) extends Logging {
  private class Question(val line: ObjectNode) {
    /** Whether whoever holds it is to hand it over. */
    var handsOver = false
  }

  private val open = mutable.LinkedHashMap.empty[String, Question]
  private val answers = mutable.Map.empty[String, ObjectNode]
  private val takingPart = mutable.LinkedHashSet.empty[String]

  /** An executor is about to commit in the run, or to ask. */
  def joined(executor: String): Unit = synchronized(takingPart += executor)

  def lost(executor: String): Unit = synchronized(takingPart -= executor)

  /** Those that take part in the run, less those that are lost. */
  def executors: Seq[String] = synchronized(takingPart.toSeq)

  /** What is known so far: `handles`, `lost`, `declined`, or nothing of these. */
  def ask(message: JsonNode): ObjectNode = {
    val uid = message.str("uid")
    val (answer, isNew) = synchronized {
      val answer = answers.remove(uid)
      val isNew = answer.isEmpty && !open.contains(uid)
      if (isNew) open(uid) = new Question(message.asInstanceOf[ObjectNode])
      (answer, isNew)
    }
    if (isNew) {
      logInfo(s"a task needs state store ${message.str("op")}/${message.str("part")}/${message.str("store")}, version ${message.str("version")}, " +
        "which another executor has and no checkpoint yet")
      tell(toCoordinator(message))
    }
    answer.getOrElse(StateQuestions.Unknown)
  }

  /** The coordinator wants whoever holds it to hand it over. */
  def handOver(uid: String): Unit = synchronized(open.get(uid).foreach(_.handsOver = true))

  def answered(message: JsonNode): Unit = synchronized {
    val uid = message.str("uid")
    if (open.remove(uid).nonEmpty || answers.contains(uid))
      answers(uid) = Json.obj("handles" -> message.get("handles"), "lost" -> message.get("lost"), "declined" -> message.get("declined"))
  }

  /** Whether the coordinator has still to answer, and may wait for reports. */
  def isOpen: Boolean = synchronized(open.nonEmpty)

  /** What an executor that holds these commits is to hand over. Either of the two may be thousands: the smaller one is walked. */
  def of(held: Set[String]): Seq[ObjectNode] = synchronized {
    val asked = if (held.size < open.size) held.toSeq.flatMap(open.get) else open.collect { case (uid, question) if held(uid) => question }.toSeq
    asked.filter(_.handsOver).map(question => Json.obj(StateQuestions.Names.map(name => name -> question.line.get(name)): _*))
  }

  /** To a coordinator that takes another one's place. */
  def retell(say: ObjectNode => Unit): Unit = synchronized {
    open.values.foreach(question => say(toCoordinator(question.line)))
  }

  /** The tasks that asked are gone. */
  def clear(): Unit = synchronized {
    open.clear()
    answers.clear()
  }

  /** Another run begins: none has committed in it. */
  def begin(): Unit = synchronized {
    clear()
    takingPart.clear()
  }

  private def toCoordinator(message: JsonNode): ObjectNode =
    Json.obj("type" -> "want", "root" -> message.get("root"), "uid" -> message.get("uid"), "version" -> message.get("version"), "executors" -> executors)
}

object StateQuestions {
  private val Names = Seq("root", "op", "part", "store", "uid")
  private def Unknown: ObjectNode = Json.obj("handles" -> None, "lost" -> false, "declined" -> None)

  def declined(why: String): ObjectNode = Unknown.put("declined", why)
}
