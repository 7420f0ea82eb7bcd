package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.File
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.TaskContext
import org.apache.spark.ckpt.{Barrier, CheckpointFailure, ExecutorSide, Json}
import org.apache.spark.sql.ckpt.OperatorMetrics
import org.apache.spark.sql.ckpt.SparkStreaming.StreamExecution
import org.apache.spark.sql.execution.streaming.state._

/**
 * Spark's RocksDB state store with the node's spool in the place of the checkpointLocation. A query without a stream (no
 * checkpointLocation of its own, an offline read) is served as Spark would.
 */
class BarrierStateStoreProvider extends HookedProvider {

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = super.supportedCustomMetrics ++ OperatorMetrics.All

  override protected def engine(parts: EngineParts): Option[RocksDB] = {
    val id = stateStoreId
    val root = new Path(id.checkpointRootLocation).getParent.toString
    val start = parts.hadoopConf.get(StreamExecution.RUN_ID_KEY, "")
    ExecutorSide.barrier(root, start).map { barrier =>
      val store = StoreFolder(root, start, id.operatorId, id.partitionId, id.storeName,
        ExecutorSide.folder(barrier, start, id.operatorId, id.partitionId, id.storeName))
      ExecutorSide.opening(store.dir)(new BarrierRocksDB(store, parts.copy(conf = SnapshotSpread(SpoolVersions(parts.conf), id.partitionId))))
    }
  }
}

/**
 * How many versions of a store lie in the spool. Spark keeps a hundred (`spark.sql.streaming.minBatchesToRetain`), because its folder is
 * the only place that has them; here they are in the storage, and the spool is a disk that must not fill up.
 */
object SpoolVersions {
  private val Most = 10

  def apply(conf: RocksDBConf): RocksDBConf =
    conf.copy(minVersionsToRetain = math.min(conf.minVersionsToRetain, Most), minVersionsToDelete = 0L)
}

/** One state store, the start of the query (Spark's run id) that has opened it, and the spool folder that is its "DFS". */
final case class StoreFolder(root: String, start: String, operator: Long, partition: Int, store: String, dir: File) {
  def has(version: Long, uid: String): Boolean =
    new File(dir, s"${version}_$uid.changelog").exists() || new File(dir, s"${version}_$uid.zip").exists()
}

/** A task, the version that it has loaded, and the barrier that it belongs to. */
private final case class Bound(attempt: Long, version: Long, at: Barrier)

/** Spark's engine over a spool folder: what a version needs is there before it is loaded, what is committed is handed to the agent. */
class BarrierRocksDB(store: StoreFolder, parts: EngineParts) extends HookedRocksDB(new Path(store.dir.toURI).toString, parts) {

  private var loadedAtMs = 0L
  @volatile private var bound = Option.empty[Bound]
  private val isClosed = new AtomicBoolean
  // Held while a full snapshot is written: one at a time, and none of a store that is closed.
  private val snapshots = new Object
  private val chain = new LoadedChain(store.dir, store.partition)
  @volatile private var mayOwe = false
  // Counts up where a commit begins and where it ends: odd in between.
  private val commitSteps = new AtomicLong

  override protected def loads(version: Long, uid: Option[String], readOnly: Boolean, empty: Boolean): RocksDB = {
    val before = commitSteps.get
    val fromFiles = !isLoaded(version, uid)
    if (fromFiles) settle()
    val at = barrier(version)
    abandoned.loads(at.run, version)
    uid.filterNot(id => isLoaded(version, Some(id))).foreach { id =>
      at.version.filter(_ => version == at.epoch) match {
        case Some(stored) => renumber(at, stored, version, id)
        case None => bring(at, version, id)
      }
    }
    val loaded =
      try sparkLoads(version, uid, readOnly, empty || (uid.isEmpty && begins(at, version)))
      catch {
        case e: Exception =>
          CheckpointFailure.ofKind(CheckpointFailure.Damaged, e).foreach(ExecutorSide.refused(at, version, _))
          throw e
      }
    if (before % 2 != 0 || commitSteps.get != before) settleOthers()
    if (fromFiles) chain.loaded(lineage)
    loadedAtMs = System.currentTimeMillis()
    loaded
  }

  /** The stream begins anew, its numbers go on; or the operator is new in the query: the first epoch's state is empty, whatever its number. */
  private def begins(at: Barrier, version: Long): Boolean =
    version > 0 && version == at.epoch && (at.version.contains(0L) || at.begins(store.operator))

  /**
   * The state of a checkpoint goes on under a new number. The engine is told that what it has loaded is the version that is asked for, and
   * its own `load` finds nothing left to do but to begin a changelog. Files on both sides of the gap make no chain: the next commit has to
   * be a full snapshot.
   */
  private def renumber(at: Barrier, stored: Long, version: Long, uid: String): Unit = {
    bring(at, stored, uid)
    sparkLoads(stored, Some(uid), readOnly = true, empty = false)
    loadedVersion = version
    lineageManager.resetLineage(Array(LineageItem(version, uid)))
    logInfo(s"${parts.loggingId} goes on from version $stored under the number $version")
  }

  /**
   * What is loaded is about to be left: the last full snapshot of it that the engine has taken is written now, if it still has to be.
   * Spark would write it later, and then drop all versions below it from the lineage of what is loaded by then (`RocksDB.uploadSnapshot`):
   * (1) a store commits version 10 with a full snapshot; (2) its query goes back to version 6, or the task of version 10 runs again;
   * (3) version 7 is committed; (4) the snapshot is written; (5) the changelog of version 8 names no version before it, and loads nowhere.
   */
  private def settle(): Unit = if (mayOwe) {
    mayOwe = false
    try writeSnapshot() catch { case NonFatal(e) => logWarning(s"${parts.loggingId}: a full snapshot of what is left could not be written", e) }
  }

  /**
   * Spark 4.0 gives a task the engine in the middle of its `load`, and not before as later lines do: another task may have committed while
   * this one looked what there is to settle, and waited. What is loaded by now keeps its lineage.
   */
  private def settleOthers(): Unit = snapshots.synchronized {
    val kept = lineage
    mayOwe = true
    settle()
    lineageManager.resetLineage(kept)
  }

  private def bring(at: Barrier, version: Long, uid: String): Unit = if (!isLoaded(version, Some(uid)) && !store.has(version, uid)) fetch(at, version, uid)

  override protected def commits(full: Boolean): (Long, StateStoreCheckpointInfo) = {
    val at = barrier(loadedVersion)
    val started = System.nanoTime()
    mayOwe = true
    commitSteps.incrementAndGet()
    val result =
      try ExecutorSide.onDisk(sparkCommits(full || at.version.nonEmpty || at.begins(store.operator) || chain.endsNow(lineage)))
      finally {
        mayOwe = true // another task may have settled meanwhile, before there was anything
        commitSteps.incrementAndGet()
      }
    val syncMs = (System.nanoTime() - started) / 1e6
    val (version, info) = result
    val uid = info.stateStoreCkptId.get
    abandoned.committed(at.run, uid)
    val message = about("commit", at, version, uid)
    Json.put(message, "run", at.run)
    Json.put(message, "epoch", at.epoch)
    Json.put(message, "base_uid", info.baseStateStoreCkptId)
    Json.put(message, "sync_ms", syncMs)
    Json.put(message, "start_delay_ms", math.max(0L, loadedAtMs - at.timeMs).toDouble)
    Json.put(message, "commit_delay_ms", math.max(0L, System.currentTimeMillis() - at.timeMs).toDouble)
    Json.put(message, "checkpoint", at.checkpoint)
    Json.put(message, "late", at.late)
    at.sparse.foreach(Json.put(message, "sparse", _))
    Json.put(message, "num_keys", if (parts.conf.trackTotalNumberOfRows) metricsOpt.map(_.numUncommittedKeys) else None)
    ExecutorSide.committed(uid, message)
    if (chain.committed(lineage, metricsOpt.map(_.totalSSTFilesBytes).getOrElse(0L)).isTooDear) SnapshotTurns.ask(this)
    result
  }

  private def lineage: Array[LineageItem] = lineageManager.getLineageForCurrVersion()

  override protected def maintains(): Unit = snapshots.synchronized(sparkMaintains())

  /** Spark's maintenance would, in its time. Nothing happens if the engine has taken no snapshot since the last one. */
  def writeSnapshot(): Unit = snapshots.synchronized(if (!isClosed.get) ExecutorSide.onDisk(sparkMaintains()))

  private def abandoned: AbandonedVersions = fileManager match { case files: SpoolFiles => files.abandoned }

  override def close(): Unit = snapshots.synchronized {
    try super.close() finally if (isClosed.compareAndSet(false, true)) ExecutorSide.closed(store.dir)
  }

  // Engine and store outlive the epoch they were opened in: what is loaded already needs no file at all.
  private def isLoaded(version: Long, uid: Option[String]): Boolean = loadedVersion == version && loadedStateStoreCkptId == uid

  private def fetch(at: Barrier, version: Long, uid: String): Unit = {
    val began = System.nanoTime()
    val answer = ExecutorSide.fetch(at, about("fetch", at, version, uid))
    logInfo(s"fetched version $version of ${parts.loggingId} from ${at.stream}: ${answer.get("files").asLong()} files, ${answer.get("bytes").asLong()} bytes; " +
      s"${answer.get("linked").asLong()} files were on this machine, in ${(System.nanoTime() - began) / 1000000} ms")
  }

  /** Of the epoch that loads this version, and commits the next one. A task keeps the one that it has loaded under. */
  private def barrier(version: Long): Barrier = {
    val attempt = Option(TaskContext.get()).map(_.taskAttemptId())
    bound.filter(before => attempt.contains(before.attempt) && before.version == version).map(_.at).getOrElse {
      val found = ExecutorSide.barrier(store.root, store.start, version).getOrElse(
        throw new IllegalStateException(s"the stream of ${store.root} has ended; its state store ${store.operator}/${store.partition} cannot go on"))
      bound = attempt.map(Bound(_, version, found))
      found
    }
  }

  private def about(kind: String, at: Barrier, version: Long, uid: String) = Json.obj(
    "type" -> kind, "root" -> store.root, "stream" -> at.stream, "base" -> at.base, "op" -> store.operator,
    "part" -> store.partition, "store" -> store.store, "version" -> version, "uid" -> uid, "dir" -> store.dir.getPath)
}
