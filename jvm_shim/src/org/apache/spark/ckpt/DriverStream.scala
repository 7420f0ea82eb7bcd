package org.apache.spark.ckpt

import java.util.Base64

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.ckpt.Json.Fields

/** What a query is made of, as the claim in the log records it. */
final case class JobShape(operators: Seq[String], sources: Seq[String], sink: String) {
  def json: ObjectNode = Json.obj("operators" -> operators, "sources" -> sources, "sink" -> sink)
}

/**
 * What is to be in the checkpointLocation's four folders before the query reads them. The epoch that runs next is among them if it was
 * planned before; `planned` are the recorded epochs after it, epoch -> content of `offsets/N`.
 */
final case class Materialised(files: Map[String, Array[Byte]], planned: Map[Long, Array[Byte]])

/**
 * One stream's side of the conversation with the coordinator. It remembers what a coordinator that replaces a dead one must be told:
 * how the run began, the epoch in hand and its acknowledgements.
 */
final class DriverStream(val root: String, ask: ObjectNode => JsonNode, tell: ObjectNode => Unit) {

  private var known: Option[String] = None
  @volatile private var current: Option[String] = None
  private var begun: Option[ObjectNode] = None
  private var epoch = -1L
  private val changed = mutable.LinkedHashMap.empty[String, Option[Array[Byte]]]
  private val acks = mutable.ArrayBuffer.empty[ObjectNode]
  /** Why the query must not go on: thrown at its next step, since a listener's own exceptions are swallowed by Spark. */
  @volatile var failure: Option[Throwable] = None

  def queryId: Option[String] = known

  def runId: Option[String] = synchronized(begun.map(_.str("run_id")))

  /** The barrier of the epoch in hand. */
  def barrier: Option[String] = current

  def open(localQueryId: Option[String]): Unit =
    known = ask(Json.obj("type" -> "open", "root" -> root, "query_id" -> localQueryId)).optStr("query_id")

  /** A run begins: claim the stream, learn what it goes on from. */
  def start(queryId: String, runId: String, name: String, job: JobShape, present: Seq[String]): Materialised = {
    val message = Json.obj(
      "type" -> "start", "root" -> root, "query_id" -> queryId, "run_id" -> runId, "name" -> name, "job" -> job.json, "files" -> present)
    val answer = ask(message)
    synchronized {
      begun = Some(message.deepCopy().put("type", "resume").put("run", answer.long("run")).put("claim", answer.long("claim")))
      epoch = answer.long("epoch")
      changed.clear()
      acks.clear()
    }
    current = Some(answer.str("barrier"))
    val planned = answer.get("planned").elements().asScala.toSeq
    // A file source reads its whole log when it is made: what it had listed for the epochs still to come belongs there from the start.
    val listed = planned.flatMap(p => filesIn(p.get("files"))).filter(_._1.startsWith("sources/"))
    Materialised(filesIn(answer.get("files")) ++ listed, planned.map(p => p.long("epoch") -> decoded(p.get("offsets"))).toMap)
  }

  /** A small file of the driver was written, or deleted (None). */
  def changed(path: String, content: Option[Array[Byte]]): Unit = synchronized { changed.put(path, content) }

  /** `offsets/N` is about to be written: returns the barrier once the plan of epoch N is durable. */
  def trigger(n: Long, offsets: Array[Byte]): String = {
    val message = synchronized {
      epoch = n
      acks.clear()
      Json.obj("type" -> "trigger", "root" -> root, "epoch" -> n, "offsets" -> base64(offsets), "files" -> takeChanged())
    }
    val text = ask(message).str("barrier")
    current = Some(text)
    text
  }

  /** `commits/N` is about to be written: returns the summary of checkpoint N once it is complete. */
  def seal(n: Long, commit: Array[Byte]): JsonNode = {
    val message = synchronized(
      Json.obj("type" -> "seal", "root" -> root, "epoch" -> n, "commit" -> base64(commit), "files" -> takeChanged()))
    try ask(message).get("checkpoint")
    catch {
      case e: CheckpointFailure if e.kind == CheckpointFailure.Lost =>
        synchronized(acks.clear())
        throw e
    }
  }

  def acknowledged(message: JsonNode): Unit = {
    val line = message.asInstanceOf[ObjectNode]
    synchronized(acks += line)
    tell(line)
  }

  def stop(failed: Boolean): Unit = {
    synchronized { begun = None }
    current = None
    ask(Json.obj("type" -> "stop", "root" -> root, "failed" -> failed))
  }

  /** A new coordinator has taken over: tell it where this stream stands. Unanswered requests follow by themselves. */
  def retell(say: ObjectNode => Unit): Unit = synchronized {
    begun.foreach { message =>
      say(message.deepCopy().put("epoch", epoch))
      acks.foreach(say)
    }
  }

  private def takeChanged(): Map[String, Any] = {
    val files = changed.map { case (path, content) => path -> content.map(base64) }.toMap
    changed.clear()
    files
  }

  private def filesIn(node: JsonNode): Map[String, Array[Byte]] =
    node.properties().asScala.filterNot(_.getValue.isNull).map(e => e.getKey -> decoded(e.getValue)).toMap

  private def decoded(node: JsonNode): Array[Byte] = Base64.getDecoder.decode(node.asText())

  private def base64(bytes: Array[Byte]): String = Base64.getEncoder.encodeToString(bytes)
}
