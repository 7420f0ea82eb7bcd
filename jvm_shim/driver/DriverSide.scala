package org.apache.spark.ckpt

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{NullNode, ObjectNode}

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.ckpt.Json.Fields
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.TaskSchedulerImpl
import org.apache.spark.util.Utils

/** The driver's coordinator process and the streams it serves. */
object DriverSide extends Logging {
  private val FarewellMs = 15000L
  private val TroubleNs = TimeUnit.SECONDS.toNanos(10)
  private val OnStop = "spark.ckpt.onStop"
  // What Spark Connect gives to all that a client's command starts (`ExecuteJobTag`); threads inherit it.
  private val JobTags = "spark.job.tags"
  private val TagOfClients = "SparkConnect_OperationTag"
  private val LookNs = TimeUnit.MILLISECONDS.toNanos(ExecutorSide.ReportMs)

  @volatile private var sc: SparkContext = _
  @volatile private var coordinator: PythonChild = _
  // Locations that queries have been analysed with; by location, the start of a query that Spark has accepted last; and all by Spark's run id.
  private val looked = ConcurrentHashMap.newKeySet[String]()
  /** The streams' folders for files that are too large for the coordinator's pipe. */
  @volatile private var files: File = _
  private val streams = new ConcurrentHashMap[String, DriverStream]()
  private val running = new ConcurrentHashMap[String, DriverStream]()
  // Executors: Spark gives nobody else the id of one that is lost.
  private val gone = ConcurrentHashMap.newKeySet[String]()
  // When each kind of trouble of a stream was told last.
  private val troubles = new ConcurrentHashMap[String, Long]()
  @volatile private var lookedAt = System.nanoTime()
  @volatile private var made = Map.empty[String, String]
  @volatile private var executors: JsonNode = _
  @volatile private var hookLimits: HookLimits = _

  /** Start the coordinator; it checks the configuration and says which of Spark's settings to make. A refusal ends the application's start. */
  def start(context: SparkContext): Unit = synchronized {
    stop() // another plugin's init may have failed after this one's, and nobody has shut it down
    val conf = context.conf
    sc = context
    forgetStreams()
    gone.clear()
    troubles.clear()
    files = Utils.createTempDir(Utils.getLocalDir(conf), "checkpointed-files")
    val greeting = Json.obj(
      "type" -> "hello", "conf" -> CheckpointPlugin.options(conf), "spark" -> usersOwn(conf),
      "jar" -> Versions.jar, "spark_version" -> context.version, "host" -> hostName)
    val child = new PythonChild("spark_ckpt.coordinator", Interpreters(conf).driver, greeting, heard,
      tell => {
        if (coordinator != null) CheckpointFeed.coordinatorReplaced(context)
        streams.values().asScala.foreach(_.retell(tell))
        // Else it would wait for the snapshots of executors that were lost before its time.
        if (!gone.isEmpty) tell(executorsLostLine(gone.asScala.toSeq))
      })
    try {
      val answer = child.start()
      CheckpointFeed.begin(answer)
      executors = answer.get("limits")
      hookLimits = HookLimits(answer.get("hooks").long("timeout_ms"), answer.get("hooks").get("fails").asBoolean())
      made = answer.get("set").properties().asScala.map(e => e.getKey -> e.getValue.asText()).toMap
      made.foreach { case (name, value) => conf.set(name, value) }
    } catch {
      case e: Throwable =>
        child.close(0L)
        removeFiles()
        throw e
    }
    coordinator = child
  }

  /** What the executors are to keep to, as Python has read it from the options: an ExecutorLimits as JSON. */
  def limits: JsonNode = executors

  /** Whose runs are claimed from here: for other applications that meet them. Not known before the context is complete. */
  def application: JsonNode = Option(sc).map(c => Json.obj("id" -> c.applicationId, "name" -> c.appName, "user" -> c.sparkUser)).orNull

  /** The hooks of a query that starts. */
  def hooksOf(root: String, queryName: Option[String]): QueryHooks = {
    val hooks = CheckpointHooks.of(root, queryName, hookLimits, other => running.values().asScala.exists(_.root == other))
    if (!hooks.isEmpty) logInfo(s"the query at $root has the hooks ${hooks.names.mkString(", ")}")
    hooks
  }

  def storage: String = Option(sc).flatMap(_.getConf.getOption(CheckpointPlugin.Prefix + "storage")).getOrElse("")

  /** The consumer group that is to follow completed checkpoints. */
  def kafkaGroup: Option[String] = Option(sc).flatMap(_.getConf.getOption(CheckpointPlugin.Prefix + "kafka.group")).map(_.trim).filter(_.nonEmpty)

  /** Of the query that runs at this location; asks nobody who is slow. */
  def sourceLags(root: String): Seq[SourceLag] = Option(streams.get(root)).map(_.ends.lags()).getOrElse(Nil)

  /** The Spark settings that the plugin has made. */
  def settings: Map[String, String] = made

  def stop(): Unit = synchronized {
    if (coordinator != null) {
      coordinator.close(FarewellMs)
      coordinator = null
      CheckpointHooks.clear()
      removeFiles()
      forgetStreams()
      sc = null
    }
  }

  // For people. A machine that cannot resolve its own name runs Spark all the same.
  private def hostName: String = Try(java.net.InetAddress.getLocalHost.getHostName).getOrElse(Utils.localCanonicalHostName())

  private def forgetStreams(): Unit = {
    running.values().asScala.foreach(_.ends.end())
    looked.clear()
    streams.clear()
    running.clear()
  }

  private def removeFiles(): Unit =
    try Utils.deleteRecursively(files)
    catch { case e: IOException => logWarning(s"the folder $files could not be removed: ${e.getMessage}") }

  /**
   * A query's checkpointLocation is created or opened, while the query is analysed: the query id that the storage knows, if any. Spark may
   * still refuse the start, because another query has the same name or location: whatever runs there is not touched.
   */
  def look(root: String, localQueryId: Option[String]): Option[String] = {
    val known = ask(Json.obj("type" -> "open", "root" -> root, "query_id" -> localQueryId)).optStr("query_id")
    looked.add(root)
    Option(streams.get(root)).foreach(_.contested = true)
    known
  }

  /** Spark has accepted this start of a query, and stopped any other at its location: the stream is its own from now on. */
  def accepted(root: String, runId: String): Option[DriverStream] = Option.when(looked.contains(root)) {
    val former = Option(streams.get(root)).map(_.ends)
    val stream = new DriverStream(root, runId, new FileTransfer(new File(files, runId)), former, ask, tell, relay)
    stream.ofClient = Option(sc).flatMap(context => Option(context.getLocalProperty(JobTags))).exists(_.contains(TagOfClients))
    running.put(runId, stream)
    streams.put(root, stream)
    stream
  }

  /** Is this path in a checkpointLocation that a query has been analysed with? */
  def isLocated(path: String): Boolean = looked.asScala.exists(holds(_, path))

  /** Is this the checkpointLocation that a query has been analysed with? */
  def isLooked(root: String): Boolean = looked.contains(root)

  /** The stream whose checkpointLocation holds this path; of locations within each other, the innermost. */
  def streamOf(path: String): Option[DriverStream] = streams.values().asScala.filter(s => holds(s.root, path)).maxByOption(_.root.length)

  private def holds(root: String, path: String): Boolean = path == root || path.startsWith(root + "/")

  /**
   * A start of a query has ended, however far it had come. The stream itself stays known until its next start: late writers below its
   * folder are still recognised.
   */
  def runEnded(runId: String, failed: Boolean): Unit = {
    val context = sc
    val alive = context != null && !context.isStopped
    Option(running.remove(runId)).foreach { s =>
      // With stopActiveRunOnRestart Spark stops the query in a person's way: what the next start goes on from must stay.
      val stopped = alive && !failed && !s.ended && !s.contested
      if (stopped && s.ofClient && context.getConf.get(OnStop, "").equalsIgnoreCase("DELETE"))
        logWarning(s"the checkpoints of the query at ${s.root} stay, although $OnStop=DELETE: a session of Spark Connect that expires, or whose " +
          "client is gone, ends its queries as a person does; delete the stream's folder when nobody needs it")
      try s.stop(failed, byPerson = stopped && !s.ofClient)
      catch { case _: CheckpointFailure if coordinator == null => () } // the application is stopping: the coordinator has seen its pipe close, and has ended
      finally {
        s.ends.end()
        if (streams.get(s.root) eq s) CheckpointFeed.ended(s.root)
      }
    }
  }

  /** A query's new run has its first barrier. `namesOf`: its operators by id, once it has executed an epoch. */
  def runBegan(
      barrier: String, queryId: String, runId: String, name: String, background: Boolean, batchMs: Long,
      namesOf: () => Map[Long, String]): Unit =
    CheckpointFeed.started(sc, Barrier(barrier), queryId, runId, name, background, batchMs, namesOf)

  def setBarrier(text: String): Unit = {
    Barrier.set(sc, text)
    CheckpointFeed.barrier(Barrier(text))
  }

  def post(event: JsonNode): Unit = {
    val context = sc
    if (context != null) CheckpointFeed.announced(context, event)
  }

  // Where executor and driver are one process, Spark may take the executor for lost after a long pause, and takes it back.
  def executorLost(executor: String): Unit = if (executor != SparkContext.DRIVER_IDENTIFIER && gone.add(executor)) {
    StorageCounters.executorLost(executor)
    streams.values().asScala.foreach(_.stateQuestions.lost(executor))
    tell(executorsLostLine(Seq(executor)))
  }

  // The event that Spark has lost an executor may be dropped from a listener's queue.
  private def lookWhoLives(): Unit = {
    val now = System.nanoTime()
    if (now - lookedAt >= LookNs) {
      lookedAt = now
      streams.values().asScala.flatMap(_.stateQuestions.executors).toSet[String].filterNot(isAlive).foreach(executorLost)
    }
  }

  private def executorsLostLine(executors: Seq[String]): ObjectNode = Json.obj("type" -> "executors_lost", "executors" -> executors)

  /** A message of an executor's agent; the answer goes back to it. */
  def receive(line: String): AnyRef = {
    val message = Json.parse(line)
    message.str("type") match {
      case "barrier" =>
        val (root, start) = (message.str("root"), message.optStr("query"))
        start.map(id => Option(running.get(id)).filter(_.root == root)).getOrElse(Option(streams.get(root))).flatMap(_.barrier).orNull
      case "acks" =>
        Option(streams.get(message.str("root"))).foreach(_.acknowledged(line))
        CheckpointFeed.acknowledged(message)
        null
      case "storage" =>
        StorageCounters.take(message.str("root"), message, gone.contains)
        RestoreLog.look(message.str("root"))
        null
      case "trouble" =>
        troubled(message)
        null
      case "holding" =>
        val held = message.get("held").elements().asScala.map(_.asText()).toSet
        val leaves = goesBeforeItsTime(message)
        lookWhoLives()
        CheckpointFeed.committed(message.get("latencies"))
        val runs = message.get("runs").elements().asScala.toSeq
        // One that is lost may still say something on its way out.
        if (!gone.contains(message.str("executor"))) tell(message.deepCopy[ObjectNode]().without[ObjectNode](java.util.Arrays.asList("runs", "latencies", "leaving")))
        val all = streams.values().asScala.toSeq
        Json.line(Json.obj("evacuate" -> leaves, "late" -> all.flatMap(_.lateWish), "wants" -> all.flatMap(_.stateQuestions.of(held)),
          "soon" -> all.exists(_.stateQuestions.isOpen), "covered" -> runs.flatMap(covered)))
      case "joins" =>
        Option(streams.get(message.str("root"))).foreach(_.joined(message.long("run"), message.str("executor")))
        Json.line(Json.obj())
      case "want" =>
        Json.line(Option(streams.get(message.str("root"))).map(_.ask(message)).getOrElse(
          throw new IllegalStateException(s"the stream of ${message.str("root")} is not known to this application")))
      case "damaged" =>
        tell(message.asInstanceOf[ObjectNode])
        null
      case other => throw new IllegalArgumentException(s"not a message of a checkpoint agent: $other")
    }
  }

  // An executor in this JVM has logged it here itself. With many executors it is the same trouble for all.
  private def troubled(message: JsonNode): Unit = {
    val (executor, now) = (message.str("executor"), System.nanoTime())
    if (executor != SparkContext.DRIVER_IDENTIFIER) {
      val told = troubles.merge(s"${message.str("of")} ${message.str("root")}", now, (last, at) => if (at - last >= TroubleNs) at else last)
      if (told == now) logWarning(s"executor $executor: ${message.str("message")}")
    }
  }

  /** An executor that is decommissioned, scaled down or ended, in an application that goes on. */
  private def goesBeforeItsTime(report: JsonNode): Boolean = {
    val context = sc
    context != null && !context.isStopped &&
    (report.path("leaving").asBoolean() || context.taskScheduler.getExecutorDecommissionState(report.str("executor")).isDefined)
  }

  // One that is decommissioned gets no more tasks, and so is not "alive" to the scheduler; it still hands over what it holds, until it is gone.
  // The scheduler remembers its decommission for minutes after that.
  private def isAlive(executor: String): Boolean = Option(sc).forall { context =>
    context.taskScheduler match {
      case scheduler: TaskSchedulerImpl =>
        scheduler.isExecutorAlive(executor) ||
        (scheduler.getExecutorDecommissionState(executor).isDefined && context.getExecutorIds().contains(executor))
      case _ => true // of another kind of cluster: what it has lost is heard as an event
    }
  }

  private def covered(run: JsonNode): Option[JsonNode] =
    Option(streams.get(run.str("root"))).map(_.covered(run.long("run"))).getOrElse(
      Some(run.deepCopy[ObjectNode]().set[ObjectNode]("epoch", NullNode.instance)))

  private def ask(message: ObjectNode): JsonNode = {
    val child = coordinator
    if (child == null) throw new CheckpointFailure(CheckpointFailure.Internal, "the application is stopping")
    child.request(message)
  }

  private def tell(message: ObjectNode): Unit = {
    val child = coordinator
    if (child != null) child.tell(message)
  }

  private def relay(line: String): Unit = {
    val child = coordinator
    if (child != null) child.relay(line)
  }

  private def heard(message: JsonNode): Unit = {
    message.optStr("root").flatMap(root => Option(streams.get(root))).foreach(_.heard(message))
    if (message.optStr("type").contains("event")) post(message)
  }

  // What the plugin may set or contradict.
  private def usersOwn(conf: SparkConf): Map[String, String] = conf.getAll.filter { case (name, _) =>
    name == "spark.sql.extensions" || name.startsWith("spark.sql.streaming.") || name.startsWith("spark.shuffle.sort.")
  }.toMap
}
