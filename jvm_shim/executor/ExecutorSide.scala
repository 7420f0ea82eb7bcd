package org.apache.spark.ckpt

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ScheduledExecutorService, ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.{AtomicInteger, AtomicReference}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.{SparkConf, SparkContext, TaskContext}
import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.{NioFileManager, OwnerOnly}
import org.apache.spark.util.{ShutdownHookManager, Utils}

/** A store's folder in the spool, by the start of a query (Spark's run id) that has opened it last, and how many stores have it open. */
final case class Opened(query: String, times: Int)

/** This executor's spool and its agent. */
object ExecutorSide extends Logging {
  /** How often an executor tells the driver what it holds. */
  val ReportMs = 500L
  private val SpoolPrefix = "spark-ckpt-" // as in spark_ckpt/agent/spools.py
  private val IdlePolls = 10
  private val WantMs = 100L
  private val FarewellMs = 30000L
  /** How long an executor that goes waits until what it keeps is stored. */
  private val LeaveMs = 20000L
  private val Damage = Set("MISSING", "DAMAGED")
  /** The run in an agent's answer that it does not have what it is to hand over. */
  private val Nobodys = 0L

  @volatile private var context: PluginContext = _
  @volatile private var agent: PythonChild = _
  @volatile private var spool: File = _
  private val folders = new Object
  private var clock: ScheduledExecutorService = _
  @volatile private var limit: SpoolLimit = _
  @volatile private var handoverMs = 0L
  @volatile private var tasks = new StreamTasks
  // Of the task of this thread: who counted its beginning, and its stream. The plugin may be started anew while it runs.
  private val ofTask = new ThreadLocal[(StreamTasks, String)]
  @volatile private var held = new HeldCommits
  // What was passed on to the agent, once, of what the driver says again and again: unique ids to hand over, late checkpoints.
  private val passedOn = ConcurrentHashMap.newKeySet[String]()
  private val passedOnLate = new AtomicReference(Set.empty[JsonNode])
  // Runs (root, number) that the agent has heard of, and not yet that they are over.
  private val runs = ConcurrentHashMap.newKeySet[(String, Long)]()
  // Those of them of which the driver knows that this executor takes part in them.
  private val joined = mutable.Set.empty[(String, Long)]
  private val wanting = new AtomicInteger()
  // Who counts reports takes the next one for made when the last one was answered.
  private val reporting = new Object
  private var idle = 0
  @volatile private var barriers = new StreamBarriers(askedBarrier)
  // With the start of a query (Spark's run id) that opened them.
  private val open = new ConcurrentHashMap[File, Opened]()
  // Folders of runs that are over, and have stores which Spark has not closed yet.
  private val over = ConcurrentHashMap.newKeySet[File]()

  def start(plugin: PluginContext, python: String, limits: ExecutorLimits): Unit = synchronized {
    stop() // another plugin's init may have failed after this one's, and nobody has shut it down
    context = plugin
    handoverMs = limits.timeoutMs
    val conf = plugin.conf()
    spool = makeSpool(conf)
    limit = new SpoolLimit(limits)
    held = new HeldCommits
    barriers = new StreamBarriers(askedBarrier)
    // Two threads: a flush must not wait for the driver's answer to a report.
    val numbers = new AtomicInteger()
    val threads = new ScheduledThreadPoolExecutor(2, { body: Runnable =>
      val t = new Thread(body, s"checkpoint-agent-clock-${numbers.incrementAndGet()}")
      t.setDaemon(true)
      t
    })
    threads.setExecuteExistingDelayedTasksAfterShutdownPolicy(false)
    clock = threads
    tasks = new StreamTasks
    runs.clear()
    joined.synchronized(joined.clear())
    val child = new PythonChild(
      "spark_ckpt.agent", python,
      Json.obj("type" -> "hello", "jar" -> Versions.jar, "conf" -> CheckpointPlugin.options(conf), "executor" -> plugin.executorID(), "spool" -> spool.getPath),
      heard, { tell =>
        limit.set(0L)
        held.lines.foreach { case (_, commit) =>
          tell(commit)
          runs.add((commit.str("root"), commit.long("run"))) // that one is over may have been said to the dead one only
        }
        if (held.evacuatedAnew()) tell(Json.obj("type" -> "evacuate"))
        if (held.isUploading) tell(Json.obj("type" -> "flush", "root" -> None)) // the one that was meant for them may be lost
        passedOn.clear()
        passedOnLate.set(Set.empty)
      })
    agent = child
    child.begin()
    clock.scheduleWithFixedDelay(() => report(leaving = false), ReportMs, ReportMs, TimeUnit.MILLISECONDS)
  }

  def stop(): Unit = synchronized {
    if (agent != null) {
      takeLeave()
      clock.shutdownNow()
      agent.close(FarewellMs)
      passedOn.clear()
      passedOnLate.set(Set.empty)
      open.clear()
      over.clear()
      agent = null
      context = null
      // Not left to the JVM's end: a Python process may go on with another session in this very JVM.
      try Utils.deleteRecursively(spool)
      catch { case e: java.io.IOException => logWarning(s"the spool $spool could not be removed: ${e.getMessage}") }
    }
  }

  /**
   * The executor goes. Where its queries go on, what it keeps is made durable first, and the driver hears of it: else the executors that take
   * over would lack the state that its tasks have left here. Spark's RPC still works: plugins are the first to be told of the end.
   */
  private def takeLeave(): Unit = if (!held.isEmpty && context.executorID() != SparkContext.DRIVER_IDENTIFIER) {
    val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LeaveMs)
    try {
      clock.submit((() => report(leaving = true)): Runnable).get(LeaveMs, TimeUnit.MILLISECONDS)
      while (held.isUploading && agent.failure.isEmpty && System.nanoTime() < deadline) Thread.sleep(WantMs)
    } catch {
      case e: Exception => logWarning(s"what executor ${context.executorID()} keeps could not be handed over before its end", e)
    }
  }

  /** Is this path in the spool of this executor? */
  def inSpool(path: String): Boolean = {
    val s = spool
    s != null && path.startsWith(s.getPath + File.separator)
  }

  /**
   * The folder that stands in for a store's folder in the checkpointLocation, named after the run in which the store was opened here.
   * A query that goes back to a checkpoint in place (`query`: its id of this start) keeps its stores: unique ids tell what belongs to which
   * line of versions, and what its epochs had left that run again goes (AbandonedVersions). The stores of a query that has ended stay open until Spark's maintenance closes them, and are not used any more.
   */
  def folder(barrier: Barrier, query: String, operator: Long, partition: Int, store: String): File = {
    val dir = new File(streamFolder(barrier.stream, barrier.run), s"$operator/$partition/$store")
    // Spark closes a store that has moved away long after another one was opened here in its place.
    open.merge(dir, Opened(query, 1), (before, now) => Opened(now.query, before.times + 1))
    if (!dir.isDirectory) opening(dir) {
      folders.synchronized(onDisk(Files.createDirectories(dir.toPath, OwnerOnly.folders(dir.toPath): _*)))
      val runs = Option(streamFolder(barrier.stream, barrier.run).getParentFile.listFiles()).toSeq.flatten
      // The last run may still be shutting down.
      val old = runs.filter(_.getName < f"run-${barrier.run - 1}%08d")
      val inUse = open.asScala.collect { case (dir, of) if of.query == query => dir.toPath }
      old.filterNot(run => inUse.exists(_.startsWith(run.toPath))).foreach(NioFileManager.deleteTree)
    }
    dir
  }

  /** Opens a store there, which has been counted; one that fails to open is never closed. */
  def opening[T](folder: File)(opens: => T): T =
    try opens
    catch {
      case e: Throwable =>
        closed(folder)
        throw e
    }

  /** A store has been closed: nothing reads or writes its folder any more. */
  def closed(folder: File): Unit = {
    open.computeIfPresent(folder, (_, of) => if (of.times > 1) of.copy(times = of.times - 1) else null)
    dropOver()
  }

  // A run's folder stays until Spark's maintenance has closed the last of its stores: until then a query that starts again links its files.
  private def dropOver(): Unit = folders.synchronized {
    over.asScala.filterNot(run => open.keySet.asScala.exists(_.toPath.startsWith(run.toPath))).foreach { run =>
      // One folder that cannot go keeps no other: a task that was late has just written there, or the system refuses. The next time.
      try NioFileManager.deleteTree(run) catch { case NonFatal(e) => logWarning(s"the folder $run of a run that is over could not be deleted", e) }
      if (!run.exists()) over.remove(run)
      run.getParentFile.delete() // of a stream that has other runs here it is not empty
    }
  }

  /** What writes to the spool; a full disk is told as what it is. */
  def onDisk[T](write: => T): T =
    try write
    catch {
      case e: IOException =>
        throw new CheckpointFailure("STORAGE",
          s"the state cannot be written to the spool $spool (${e.getMessage}); free some space there, or set spark.ckpt.spool.dir to a local disk that has it", e)
    }

  /** The barrier under which the running task opens a store for this start of a query (Spark's run id). None: the location has no stream. */
  def barrier(root: String, start: String): Option[Barrier] = barriers.opening(root, start)

  /** The barrier that the running task belongs to, which loads this version of a store. */
  def barrier(root: String, start: String, version: Long): Option[Barrier] = barriers.of(root, start, version)

  private def askedBarrier(root: String, start: Option[String]): Option[Barrier] = Option(context).flatMap { plugin =>
    val question = Json.obj("type" -> "barrier", "root" -> root, "query" -> start)
    Option(plugin.ask(Json.line(question)).asInstanceOf[String]).map(Barrier(_))
  }

  /** A store has been committed to the spool: from here on it is the agent's to make it durable. Waits only where the spool is full. */
  def committed(uid: String, commit: ObjectNode): Unit = {
    serving()
    join(commit.str("root"), commit.long("run"))
    held.add(uid, commit)
    countCommit(commit.str("root"), commit.long("epoch"))
    CommitLatencies.note(commit)
    agent.tell(commit, urgent = false) // the flush after the last task is
    // Noted last: where the run is over meanwhile, it is said once more, after this commit.
    runs.add((commit.str("root"), commit.long("run")))
    limit.admit()
  }

  /**
   * The driver hears that this executor takes part in a run before it can have committed in it: a state of the run that none of those has is
   * lost.
   */
  private def join(root: String, run: Long): Unit = joined.synchronized {
    if (!joined((root, run))) {
      askDriver(Json.obj("type" -> "joins", "executor" -> context.executorID(), "root" -> root, "run" -> run))
      joined += ((root, run))
      runs.add((root, run))
    }
  }

  /**
   * A run goes on from a completed checkpoint. Where there is no other executor than the driver's own, all of its state will be loaded here:
   * the agent reads it while Spark still plans.
   */
  def readAhead(barrier: Barrier): Unit = {
    barriers.began(barrier)
    val (plugin, child) = (context, agent)
    val local = plugin != null && child != null && plugin.executorID() == SparkContext.DRIVER_IDENTIFIER
    if (local && Option(barrier.base).exists(!_.isNull) && !barrier.version.contains(0L)) {
      val folder = streamFolder(barrier.stream, barrier.run)
      child.tell(Json.obj(
        "type" -> "ahead", "root" -> barrier.root, "stream" -> barrier.stream, "run" -> barrier.run, "base" -> barrier.base, "dir" -> folder.getPath))
      runs.add((barrier.root, barrier.run)) // that it is over has to be told, whether a task asks for anything or not
    }
  }

  /**
   * Have the files of a version brought into the spool; waits for them. What the completed checkpoint that the barrier names does not
   * hold lies with the executor that committed it.
   */
  def fetch(barrier: Barrier, request: ObjectNode): JsonNode = {
    serving()
    val version = request.long("version")
    request.put("run", barrier.run)
    join(barrier.root, barrier.run)
    try {
      if (completedBefore(barrier, version).nonEmpty) fetchStored(request) else fetchHandedOver(request)
    } finally runs.add((request.str("root"), barrier.run))
  }

  // Whatever was handed over: no checkpoint holds the version, the query goes back to one that is.
  private def fetchHandedOver(request: ObjectNode): JsonNode = {
    wanting.incrementAndGet()
    val handles = try handedOver(request) finally wanting.decrementAndGet()
    try fetchStored(request.set[ObjectNode]("handles", handles))
    catch {
      case e: CheckpointFailure if Damage(e.kind) =>
        throw new CheckpointFailure(CheckpointFailure.Lost, s"${named(request)} was handed over, but cannot be read: ${e.getMessage}", e)
    }
  }

  private def named(request: JsonNode): String =
    s"state store ${request.str("op")}/${request.str("part")}/${request.str("store")}, version ${request.str("version")}"

  private def handedOver(request: ObjectNode): JsonNode = {
    val want = request.deepCopy().put("type", "want")
    want.remove(java.util.Arrays.asList("stream", "run", "base", "dir"))
    val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(handoverMs)
    var answer = askDriver(want)
    while (answer.get("handles").isNull) {
      answer.optStr("declined").foreach(why => throw new CheckpointFailure(CheckpointFailure.Storage, s"${named(request)} could not be handed over: $why"))
      if (answer.get("lost").asBoolean()) {
        throw new CheckpointFailure(CheckpointFailure.Lost, s"${named(request)} was lost with its executor before it was durable")
      }
      if (System.nanoTime() > deadline) {
        throw new CheckpointFailure(CheckpointFailure.Lost, s"${named(request)} was not handed over within $handoverMs ms (spark.ckpt.timeout)")
      }
      Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
      Thread.sleep(WantMs)
      answer = askDriver(want)
    }
    answer.get("handles")
  }

  private def askDriver(message: ObjectNode): JsonNode = {
    val plugin = context
    if (plugin == null) throw new CheckpointFailure(CheckpointFailure.Internal, "this executor is shutting down")
    Json.parse(plugin.ask(Json.line(message)).asInstanceOf[String])
  }

  private def fetchStored(request: ObjectNode): JsonNode = {
    try agent.request(request)
    catch {
      // The driver has to know before the task's failure reaches it: the run must not be restarted from the same checkpoint.
      case e: CheckpointFailure if Damage(e.kind) =>
        val checkpoint = e.unread.checkpoint.map { case (run, epoch) => Json.obj("run" -> run, "epoch" -> epoch) }
        damaged(request.str("root"), e.unread.obj, checkpoint, e.getMessage)
        throw e
    }
  }

  /** A version that was fetched is not what a state store can have written. */
  def refused(barrier: Barrier, version: Long, why: String): Unit =
    damaged(barrier.root, None, completedBefore(barrier, version), why)

  private def damaged(root: String, obj: Option[String], checkpoint: Option[JsonNode], why: String): Unit =
    context.ask(Json.line(Json.obj("type" -> "damaged", "root" -> root, "object" -> obj, "checkpoint" -> checkpoint, "message" -> why)))

  /** The completed checkpoint that the barrier names, if the version is what it holds. */
  private def completedBefore(barrier: Barrier, version: Long): Option[JsonNode] =
    Option(barrier.base).filterNot(_.isNull).filter(_.long("epoch") + 1 == version)

  def taskStarted(): Unit = {
    val root = Barrier.rootOfTask.getOrElse(StreamTasks.Nobody)
    val now = tasks
    ofTask.set((now, root))
    now.started(root)
  }

  def taskEnded(): Unit = Option(ofTask.get()).foreach { case (counted, root) =>
    ofTask.remove()
    ended(counted, root)
  }

  /** A task that was counted for another stream, whose thread several queries share, is nobody's from here on. */
  private def countCommit(root: String, epoch: Long): Unit = {
    Option(ofTask.get()).filterNot { case (_, of) => of == root || of == StreamTasks.Nobody }.foreach { case (counted, of) =>
      counted.started(StreamTasks.Nobody)
      ofTask.set((counted, StreamTasks.Nobody))
      ended(counted, of)
    }
    tasks.committed(root, epoch)
  }

  /** Where no more snapshots are to be expected before those that wait are wanted, the agent is told to upload them. */
  private def ended(counted: StreamTasks, root: String): Unit = {
    counted.ended(root).filter(_ => held.isUploading).foreach { quiet =>
      val flush = Json.obj("type" -> "flush", "root" -> Some(quiet.root).filter(_ != StreamTasks.Nobody))
      if (quiet.forMs == 0) tellAgent(flush)
      else {
        try clock.schedule((() => if (counted.lasts(quiet)) tellAgent(flush)): Runnable, quiet.forMs, TimeUnit.MILLISECONDS)
        catch { case _: java.util.concurrent.RejectedExecutionException => } // shutting down
      }
    }
  }

  private def tellAgent(message: ObjectNode): Unit = {
    val child = agent
    if (child != null) child.tell(message)
  }

  private def serving(): Unit = {
    if (agent == null) throw new CheckpointFailure(CheckpointFailure.Internal, "this executor is shutting down")
    agent.failure.foreach(throw _)
  }

  private def streamFolder(stream: String, run: Long): File =
    new File(spool, f"${UUID.nameUUIDFromBytes(stream.getBytes(UTF_8))}/run-$run%08d")

  private def makeSpool(conf: SparkConf): File = conf.getOption("spark.ckpt.spool.dir") match {
    case Some(dir) =>
      try newFolder(Paths.get(dir).toAbsolutePath)
      catch {
        case e: IOException =>
          throw new CheckpointFailure(CheckpointFailure.Config,
            s"no folder can be made in spark.ckpt.spool.dir=$dir; give a local folder that exists or can be made, is writable and has free space", e)
      }
    case None => newFolder(Paths.get(Utils.getLocalDir(conf)))
  }

  // The owner's alone from its first moment: Files makes it so, Spark's Utils do not. It goes with the JVM at the latest.
  private def newFolder(parent: Path): File = {
    val folder = Files.createTempDirectory(Files.createDirectories(parent), SpoolPrefix).toFile
    ShutdownHookManager.registerShutdownDeleteDir(folder)
    folder
  }

  private def heard(message: JsonNode): Unit = message.optStr("type") match {
    case Some("acks") =>
      val plugin = context
      val acks = message.get("acks").elements().asScala.toSeq
      acks.foreach(ack => held.acknowledged(ack.str("uid"), ack))
      // Sent before a report can say that it is not held any more.
      try if (plugin != null) plugin.send(Json.line(message))
      finally acks.foreach { ack =>
        val uid = ack.str("uid")
        if (ack.long("run") == Nobodys) held.remove(uid) else if (ack.has("decline")) held.declined(uid) else held.settled(uid)
        passedOn.remove(uid)
      }
    case Some("spool") => limit.set(message.long("bytes"))
    case Some("storage" | "trouble") =>
      val plugin = context
      if (plugin != null) plugin.send(Json.line(message))
    case _ =>
  }

  // Nobody will ever make durable what is held: the driver must not wait for it.
  private def decline(plugin: PluginContext, why: CheckpointFailure): Unit = held.uploading.foreach { case (uid, commit) =>
    val names = Seq("run", "epoch", "op", "part", "store", "uid").map(name => name -> commit.get(name))
    val row = Json.obj(names :+ ("executor" -> plugin.executorID()) :+ ("decline" -> why.getMessage): _*)
    plugin.send(Json.line(Json.obj("type" -> "acks", "root" -> commit.str("root"), "acks" -> Seq(row))))
    held.remove(uid)
  }

  // The driver has to know what a live executor still holds, to tell a slow snapshot from a lost one; its answer says what it wants of it.
  private def report(leaving: Boolean): Unit = reporting.synchronized {
    try {
      val plugin = context
      if (plugin != null) agent.failure.foreach(decline(plugin, _))
      idle = if (held.isEmpty && wanting.get() == 0) idle + 1 else 0
      if (plugin != null && !runs.isEmpty && (leaving || idle % IdlePolls == 0)) {
        val known = runs.asScala.toSeq.map { case (root, run) => Json.obj("root" -> root, "run" -> run) }
        wished(askDriver(Json.obj(
          "type" -> "holding", "executor" -> plugin.executorID(), "held" -> held.uids, "bytes" -> limit.unstored, "runs" -> known, "leaving" -> leaving,
          "latencies" -> CommitLatencies.take())))
      }
    } catch {
      case e: Exception => logDebug("the driver could not be told what is held", e) // whatever is thrown would end the schedule
      case e: Throwable => logWarning("the driver could not be told what is held", e)
    }
  }

  private def wished(answer: JsonNode): Unit = {
    if (answer.get("evacuate").asBoolean() && held.evacuated()) agent.tell(Json.obj("type" -> "evacuate"))
    val late = answer.get("late").elements().asScala.toSet
    // Before it is said: a process that takes the place of the one that hears it begins with none passed on.
    late.diff(passedOnLate.getAndSet(late)).foreach { l =>
      held.wanted(l.str("root"), l.long("run"), l.long("epoch"))
      agent.tell(Json.obj("type" -> "late", "root" -> l.str("root"), "run" -> l.long("run"), "epoch" -> l.long("epoch")))
    }
    if (answer.get("soon").asBoolean()) idle = -1
    answer.get("wants").elements().asScala.foreach { want =>
      val uid = want.str("uid")
      if (held.contains(uid) && passedOn.add(uid)) {
        held.handedOver(uid)
        agent.tell(want.deepCopy[ObjectNode]().put("type", "handover"))
      }
    }
    answer.get("covered").elements().asScala.foreach { c =>
      val (root, run, epoch) = (c.str("root"), c.long("run"), c.optLong("epoch"))
      // In this order: a task of the run that is late is told of again.
      if (epoch.isEmpty && runs.remove((root, run))) {
        joined.synchronized(joined -= ((root, run)))
        agent.tell(Json.obj("type" -> "over", "root" -> root, "run" -> run))
        barriers.over(root, run)
        barriers.last(root).foreach(b => over.add(streamFolder(b.stream, run)))
      }
      held.covered(root, run, epoch)
    }
    dropOver()
  }
}
