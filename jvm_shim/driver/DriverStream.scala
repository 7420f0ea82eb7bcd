package org.apache.spark.ckpt

import java.util.concurrent.ConcurrentLinkedQueue

import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{NullNode, ObjectNode}

import org.apache.spark.ckpt.Json.Fields

/** What a query is made of, as the claim in the log records it. */
final case class JobShape(operators: Seq[String], sources: Seq[String], sink: String) {
  def json: ObjectNode = Json.obj("operators" -> operators, "sources" -> sources, "sink" -> sink)
}

/**
 * What is to be in the checkpointLocation's four folders before the query reads them. The epoch that runs next is among them if it was
 * planned before; `planned` are those after it that were planned too, epoch -> content of `offsets/N`. `hooks`: their states, by name.
 */
final case class Materialised(claim: Long, files: Map[String, Content], planned: Map[Long, Content], hooks: Map[String, Array[Byte]])

/** What is to be gone on from, by the name `path`: the small files of that checkpoint. Its state's schemas are to be compared with the query's. */
final case class Comparison(path: String, epoch: Long, files: Map[String, Content])

/** A query, planned as a new one: what Spark writes below `state/`, and the numbers of operators that have an initial state. */
final case class PlannedAnew(files: Map[String, Array[Byte]], initial: Seq[Long])

/** Spark's planning, before anything is changed. `compare` throws if the query does not fit; `plan` has the settings of that checkpoint. */
trait Preflight {
  def compare(comparison: Comparison): Unit
  def plan(comparison: Comparison): PlannedAnew
}

/** What a query reads from and writes to, where that decides how it can be run. */
final case class JobNeeds(forgetful: Seq[String], sinkSeen: Option[Long], fromZero: Boolean, realTime: Boolean)

/** `commits/N` may be written: the checkpoint that is complete now, if any, and how far durable state is behind. */
final case class SealAnswer(checkpoint: Option[JsonNode], lag: Option[JsonNode])

/** A person asked for the end of the query in that run; with `drain` the watermark goes to its end first. Two that ask for the same are two. */
final class StopRequest(val run: Long, val drain: Boolean)

/**
 * One start of a query, which Spark knows by `runId`: its side of the conversation with the coordinator about its stream. It remembers what
 * a coordinator that replaces a dead one must be told: how the run began, the epoch in hand and its acknowledgements, the newest commits.
 * `transfer`: the way of large files. `former`: whoever followed the checkpoints of the location's start before this one.
 */
final class DriverStream(
    val root: String, val runId: String, transfer: FileTransfer, former: Option[EpochEnds], ask: ObjectNode => JsonNode, tell: ObjectNode => Unit,
    relay: String => Unit) {
  import DriverStream._

  @volatile private var current: Option[String] = None
  private var begun: Option[ObjectNode] = None
  private var epoch = -1L
  private var begunFrom = -1L
  private var sealedEpoch = -1L
  private var barrierGiven = -1L
  private val commits = mutable.SortedMap.empty[Long, JsonNode]
  // In real time no plan has them when a coordinator comes that takes the place of one that died.
  private val reads = mutable.SortedMap.empty[Long, JsonNode]
  private val changed = mutable.LinkedHashMap.empty[String, Option[JsonNode]]
  private var changedBytes = 0
  // What went with a seal is in no plan until the next trigger is answered: a coordinator that comes meanwhile knows it from nobody else. In
  // real time nor is what went with a trigger, and both only when the epoch after the next one may begin. With the epoch that it went with.
  private val unplanned = mutable.LinkedHashMap.empty[String, (Long, JsonNode)]
  // As they came: there may be a hundred thousand, of many files each, and as trees they would be several times as large.
  private val acks = mutable.ArrayBuffer.empty[String]
  private var late: Option[(Long, Long)] = None
  private var lates = 0L
  private var completed: Option[JsonNode] = None
  // Those that wait, the oldest first: one with a drain is met by no end without one.
  private val asked = new ConcurrentLinkedQueue[StopRequest]
  /** Why the query must not go on: thrown at its next step, since a listener's own exceptions are swallowed by Spark. */
  @volatile var failure: Option[Throwable] = None
  /** Do checkpoints complete while the query goes on? */
  @volatile var background = false
  /** Is this a run in real time? Its epochs get their barrier before they begin, and say what they have read when they end. */
  @volatile var realTime = false
  /** Ends what the query does at the moment; called when it is to fail. */
  @volatile var interrupt: () => Unit = () => ()
  /** Has another start looked at this location since Spark has accepted this one? */
  @volatile var contested = false
  /** Was it started by a client of Spark Connect? A session that expires ends its queries as a person does. */
  @volatile var ofClient = false
  /** Does the plan that is asked for next drain the query? */
  @volatile var draining = false
  /** Did the query end by itself, or on a person's request that has been met? */
  @volatile var ended = false
  /** Told of this start's checkpoints. */
  @volatile var hooks: QueryHooks = QueryHooks.none
  private var sealedHooks: Option[ObjectNode] = None
  val stateQuestions = new StateQuestions(tell)
  val mark = new FolderMark(root)
  val ends = new EpochEnds(former)

  /** What this run began from: the checkpoint's epoch, or -1. */
  def origin: Long = synchronized(begunFrom)

  /** The barrier of the epoch in hand. */
  def barrier: Option[String] = current

  /** A run begins: claim the stream, learn what it goes on from. Where `preflight` throws nothing is changed. */
  def start(
      queryId: String, job: JobShape, needs: JobNeeds, present: Seq[String], preflight: Preflight): Materialised = {
    transfer.clear()
    val message = Json.obj(
      "folder" -> transfer.path, "type" -> "start", "root" -> root, "query_id" -> queryId, "run_id" -> runId, "job" -> job.json,
      "forgetful" -> needs.forgetful, "sink_seen" -> needs.sinkSeen, "from_zero" -> needs.fromZero, "files" -> present,
      "again" -> synchronized(begun.nonEmpty), "application" -> DriverSide.application, "compared" -> false, "hooks" -> hooks.names,
      "real_time" -> needs.realTime)
    val answer = transfer.whole(asked(message, ask(message), preflight))
    synchronized {
      message.remove("planned")
      realTime = answer.path("real_time").asBoolean(false)
      begun = Some(message.deepCopy().put("type", "resume").put("run", answer.long("run")).put("claim", answer.long("claim"))
        .put("real_time", realTime))
      barrierGiven = -1L
      reads.clear()
      epoch = answer.long("epoch")
      begunFrom = Option(answer.get("origin")).filterNot(_.isNull).map(_.long("epoch")).getOrElse(-1L)
      sealedEpoch = begunFrom
      commits.clear()
      answer.get("files").properties().asScala.foreach { e =>
        Commit.findFirstMatchIn(e.getKey).foreach(m => remember(commits, m.group(1).toLong, transfer.send(transfer.taken(e.getValue).bytes)))
      }
      takeChanged()
      unplanned.clear()
      acks.clear()
      late = None
      sealedHooks = None
    }
    stateQuestions.begin()
    // One of this run may have been heard already.
    asked.removeIf(_.run != answer.long("run"))
    background = answer.optStr("gate").contains("BACKGROUND")
    ended = false
    current = Some(answer.str("barrier"))
    val planned = answer.get("planned").elements().asScala.toSeq
    val files = filesIn(answer.get("files"))
    ends.begin(origin, answer.long("epoch"), files)
    Materialised(answer.long("claim"), files,
      planned.map(p => p.long("epoch") -> transfer.taken(p.get("offsets"))).toMap, QueryHooks.states(answer.get("hooks")))
  }

  /** Each round is answered with what is still to be found out, the last one with what the run begins with. */
  @tailrec private def asked(message: ObjectNode, answer: JsonNode, preflight: Preflight): JsonNode = Option(answer.get("compare")) match {
    case None => answer
    case Some(c) =>
      val comparison = Comparison(c.str("path"), c.long("epoch"), filesIn(c.get("files")))
      if (c.path("plan").asBoolean(false)) {
        val planned = preflight.plan(comparison)
        Json.put(message, "planned", planned.files.map { case (path, content) => path -> transfer.send(content) })
        Json.put(message, "initial", planned.initial.map(_.toString))
      } else {
        preflight.compare(comparison)
        message.put("compared", true)
      }
      asked(message, ask(message), preflight)
  }

  /** A small file of the driver was written, or deleted (None). */
  def changed(path: String, content: Option[Array[Byte]]): Unit = synchronized {
    changedBytes += content.map(_.length).getOrElse(0)
    changed.put(path, content.map(transfer.send(_, small = changedBytes <= FileTransfer.Together)))
  }

  /** `offsets/N` is about to be written: returns the barrier once the plan of epoch N is durable. */
  def trigger(n: Long, offsets: Array[Byte]): String = {
    val text = barrierOf(n, offsets)
    ends.plan(n, offsets)
    text
  }

  /** Epoch `n` of a run in real time is about to begin: returns its barrier. */
  def begin(n: Long): String = barrierOf(n, Array.empty)

  /** `offsets/N` is about to be written, in real time: what the epoch has read goes with its seal. */
  def hasRead(n: Long, offsets: Array[Byte]): Unit = {
    val content = transfer.send(offsets)
    synchronized(remember(reads, n, content))
    ends.plan(n, offsets)
  }

  private def barrierOf(n: Long, offsets: Array[Byte]): String = {
    val content = transfer.send(offsets)
    val message = synchronized {
      epoch = n
      acks.clear()
      val files = takeChanged()
      if (realTime) keep(n, files)
      Json.obj("type" -> "trigger", "root" -> root, "epoch" -> n, "offsets" -> content, "files" -> files, "drain" -> draining)
    }
    val text = try ask(message).str("barrier") finally transfer.discard(content)
    synchronized {
      barrierGiven = n
      planned(if (realTime) n - Unrecorded else n)
    }
    stateQuestions.clear()
    current = Some(text)
    text
  }

  /** `commits/N` is about to be written: returns once it may be. In the every-epoch mode checkpoint N is complete then. */
  def seal(n: Long, commit: Array[Byte]): SealAnswer = {
    val taken = Option.unless(hooks.isEmpty)(hooks.snapshot(n, mayDecline = background))
    val content = transfer.send(commit)
    val message = synchronized {
      val files = takeChanged()
      keep(n, files)
      Json.obj("type" -> "seal", "root" -> root, "epoch" -> n, "commit" -> content, "files" -> files, "hooks" -> taken,
        "offsets" -> reads.get(n))
    }
    try {
      val answer = ask(message)
      synchronized {
        sealedEpoch = n
        sealedHooks = taken
        remember(commits, n, content)
        SealAnswer(Option(answer.get("checkpoint")).filterNot(_.isNull).orElse(completed), Option(answer.get("lag")).filterNot(_.isNull))
      }
    } catch {
      case e: CheckpointFailure if e.kind == CheckpointFailure.Lost =>
        synchronized(acks.clear())
        throw e
    }
  }

  def acknowledged(line: String): Unit = {
    if (!background) synchronized(acks += line)
    relay(line)
  }

  /**
   * No more epochs follow: returns once the newest one is in a completed checkpoint, and with `stopping` once the savepoint is stored that
   * was asked for; its URL. `drained`: the query has been, as it was asked to.
   */
  def finish(stopping: Boolean, drained: Boolean = false): Option[String] = {
    ask(Json.obj("type" -> "finish", "root" -> root, "stopping" -> stopping, "drained" -> drained)).optStr("savepoint")
  }

  /** What a person asked for and has not been met or refused yet. */
  def stopRequest: Option[StopRequest] = Option(asked.peek)

  /** The coordinator has taken these up so far, and an end for the sake of this one answers them all: see `finish`. */
  def metWith(request: StopRequest): Seq[StopRequest] = asked.asScala.filter(request.drain || !_.drain).toSeq

  /** These are answered; those that have come since are not. */
  def refuse(requests: Seq[StopRequest]): Unit = requests.foreach(request => asked.remove(request))

  def stop(failed: Boolean, byPerson: Boolean): Unit = {
    synchronized {
      begun = None
      late = None
    }
    current = None
    stateQuestions.clear()
    try ask(Json.obj("type" -> "stop", "root" -> root, "run_id" -> runId, "failed" -> failed, "by_person" -> byPerson))
    finally {
      transfer.remove()
      // A stream stays known when its query has ended for good; what that was made of does not.
      interrupt = () => ()
      hooks = QueryHooks.none
      synchronized {
        acks.clearAndShrink()
        Seq(commits, reads, changed, unplanned).foreach(_.clear())
        completed = None
        sealedHooks = None
      }
    }
  }

  /** A one-way message of the coordinator. */
  def heard(message: JsonNode): Unit = message.str("type") match {
    case "failed" =>
      failure = Some(new CheckpointFailure(message.str("kind"), message.str("message")))
      interrupt()
    case "stopping" => asked.add(new StopRequest(message.long("run"), message.get("drain").asBoolean()))
    case "late" => synchronized {
      late = message.optLong("epoch").map(epoch => (message.long("run"), epoch))
      lates += 1
    }
    case "event" => message.str("event") match {
      case "TRIGGERED" => if (isMine(message)) ends.trigger(message.long("epoch"))
      case "ABORTED" => if (isMine(message)) ends.abort(message.long("epoch"))
      case "COMPLETED" =>
        synchronized { completed = Some(message) }
        if (isMine(message)) ends.complete(message.long("epoch"))
      case "STANDS" => if (isMine(message)) {
        synchronized { if (!completed.exists(c => c.long("run") == message.long("run") && c.long("epoch") >= message.long("epoch"))) completed = Some(message) }
        ends.complete(message.long("epoch"))
      }
      case _ =>
    }
    case "handover" => stateQuestions.handOver(message.str("uid"))
    case "wanted" => stateQuestions.answered(message)
    case "hooks" =>
      message.optLong("completed").foreach(hooks.completed)
      message.optLong("aborted").foreach(hooks.aborted)
    case _ =>
  }

  private def isMine(message: JsonNode): Boolean = synchronized(begun.exists(_.long("run") == message.long("run")))

  /** The epoch that is to be made durable though it was no checkpoint; the number tells two such wishes apart. */
  def lateWish: Option[ObjectNode] =
    synchronized(late.map { case (run, epoch) => Json.obj("root" -> root, "run" -> run, "epoch" -> epoch, "number" -> lates) })

  /** An executor is about to commit in that run, or to ask. */
  def joined(run: Long, executor: String): Unit =
    if (synchronized(begun.exists(_.long("run") == run))) stateQuestions.joined(executor)

  /** A task's question for state; where no run goes on nobody answers it. */
  def ask(message: JsonNode): ObjectNode =
    if (synchronized(begun.nonEmpty)) stateQuestions.ask(message) else StateQuestions.declined("the query is not running")

  /** Up to which epoch a completed checkpoint holds what that run has committed; None: nothing yet. */
  def covered(run: Long): Option[ObjectNode] = synchronized {
    if (!begun.exists(_.long("run") == run)) Some(Json.obj("root" -> root, "run" -> run, "epoch" -> None))
    else completed.filter(_.long("run") == run).map(c => Json.obj("root" -> root, "run" -> run, "epoch" -> c.long("epoch")))
  }

  /**
   * A new coordinator has taken over: tell it where this stream stands. Unanswered requests follow by themselves. It tells people whose
   * requests the other one had taken up to ask again: what waits of them is not met any more.
   */
  def retell(say: ObjectNode => Unit): Unit = synchronized {
    asked.clear()
    begun.foreach { message =>
      val resume = message.deepCopy().put("epoch", epoch).put("sealed", sealedEpoch).put("running", barrierGiven == epoch && epoch > sealedEpoch)
      Json.put(resume, "sealed_hooks", sealedHooks)
      val numbered = commits.map { case (n, content) => s"commits/$n" -> content } ++ reads.map { case (n, content) => s"offsets/$n" -> content }
      Json.put(resume, "files", unplanned.map { case (path, (_, file)) => path -> file }.toMap ++ numbered)
      say(resume)
      acks.foreach(line => say(Json.parse(line).asInstanceOf[ObjectNode]))
      stateQuestions.retell(say)
    }
  }

  private def keep(n: Long, files: Map[String, Option[JsonNode]]): Unit = files.foreach { case (path, file) =>
    unplanned.put(path, n -> file.map(transfer.kept).getOrElse(NullNode.instance)).foreach { case (_, before) => transfer.discard(before) }
  }

  /** What went with epochs up to this one is in the log. */
  private def planned(upTo: Long): Unit = {
    val stored = unplanned.toSeq.filter { case (_, (n, _)) => n <= upTo }
    stored.foreach { case (path, (_, file)) =>
      unplanned.remove(path)
      transfer.discard(file)
    }
  }

  private def remember(newest: mutable.SortedMap[Long, JsonNode], n: Long, content: JsonNode): Unit = {
    newest(n) = content
    while (newest.size > Kept) newest.remove(newest.head._1).foreach(transfer.discard)
  }

  private def takeChanged(): Map[String, Option[JsonNode]] = {
    val files = changed.toMap
    changed.clear()
    changedBytes = 0
    files
  }

  private def filesIn(node: JsonNode): Map[String, Content] =
    node.properties().asScala.map(e => e.getKey -> transfer.taken(e.getValue)).toMap
}

object DriverStream {
  private val Commit = "^commits/(\\d+)$".r
  private val Kept = 2
  // Of so many epochs the record may be on its way when one begins in real time: `Claim.ahead`.
  private val Unrecorded = 2
}
