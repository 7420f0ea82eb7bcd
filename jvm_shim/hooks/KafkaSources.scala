package org.apache.spark.sql.ckpt

import java.io.{ByteArrayInputStream, InputStream}
import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicReference}

import scala.util.{Failure, Success, Try}

import org.apache.spark.ckpt.{SourceFollower, SourceLag}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, OffsetSeqLog}
import org.apache.spark.sql.connector.read.streaming.SparkDataStream

/**
 * A query's Kafka sources beside its completed checkpoints, as in Flink's `KafkaSource`: with a group, each checkpoint's end offsets are
 * committed to it once the checkpoint is complete, for people to look at, and nothing is ever read back; and whoever looks learns
 * how far a source's log goes beyond the newest completed checkpoint.
 *
 * One thread asks the brokers, and only it waits for them. Of checkpoints that are not committed yet only the newest is kept.
 */
class KafkaSources(query: MicroBatchExecution, group: Option[String]) extends SourceFollower with Logging {
  import KafkaSources._

  private val sources = OffsetEntries.sources(query)
  private val clients: Seq[(SparkDataStream, KafkaClient)] = sources.inOrder.flatMap(s => KafkaClient.of(s).map(s -> _))
  private val worker = new ScheduledThreadPoolExecutor(1, (task: Runnable) => {
    val thread = new Thread(task, "checkpoint-kafka")
    thread.setDaemon(true)
    clients.headOption.foreach { case (source, _) => thread.setContextClassLoader(source.getClass.getClassLoader) }
    thread
  })
  worker.setExecuteExistingDelayedTasksAfterShutdownPolicy(false)

  private val newest = new AtomicReference[Completed]
  private val commits = new NewestCommit[Completed](worker, checkpoint => commit(checkpoint))
  @volatile private var state: Committing = Untried
  /** They failed when they were last asked to commit. */
  @volatile private var failing: Seq[KafkaClient] = Nil
  @volatile private var ending = false
  @volatile private var known: Seq[SourceLag] = clients.map { case (source, _) => SourceLag(source.toString, None, None) }
  private val isLooking = new AtomicBoolean
  @volatile private var askedAt = System.nanoTime() - LookNs

  override def after(former: Runnable): Unit = worker.execute(former)

  override def completed(epoch: Long, offsets: Array[Byte]): Unit = {
    val checkpoint = Completed(epoch, offsets)
    newest.set(checkpoint)
    if (group.isDefined) commits.offer(checkpoint)
  }

  override def lags(): Seq[SourceLag] = {
    if (newest.get != null && System.nanoTime() - askedAt >= LookNs && isLooking.compareAndSet(false, true)) {
      askedAt = System.nanoTime()
      try worker.execute(() => try look() finally isLooking.set(false))
      catch { case _: java.util.concurrent.RejectedExecutionException => isLooking.set(false) }
    }
    known
  }

  override def end(): Unit =
    try {
      ending = true
      if (!worker.isShutdown) commits.last()
      worker.shutdown()
      if (clients.exists(c => !failing.contains(c._2))) worker.awaitTermination(FarewellMs, TimeUnit.MILLISECONDS)
    } finally {
      commits.forget()
      worker.shutdownNow()
      clients.foreach(_._2.close())
    }

  /** Throws what the client throws. */
  private def commit(checkpoint: Completed): Unit = {
    val name = group.mkString
    try {
      val ends = endsOf(checkpoint)
      val without = if (ending) failing else Nil
      // Who failed may let the others wait: such a client comes last, and in the end not at all.
      val (last, first) = clients.map { case (source, client) => client -> ends.getOrElse(source, Map.empty[KafkaPartition, Long]) }
        .partition(e => failing.contains(e._1))
      val failed = commitAll(name, first ++ last, without)
      failing = without ++ failed.map(_._1)
      failed.foreach(_._1.renew())
      failed.headOption.foreach(f => throw f._2)
      if (state != Working && without.isEmpty) logInfo(s"the end offsets of checkpoint ${checkpoint.epoch} are committed to the consumer group $name, and those of the next ones will be")
      state = Working
    } catch {
      case e: InterruptedException => throw e
      case e: Throwable =>
        if (state != Failing) logWarning(
          s"the end offsets of checkpoint ${checkpoint.epoch} could not be committed to the consumer group $name (${described(e)}); the query does not need that, it is tried again")
        state = Failing
        throw e
    }
  }

  private def look(): Unit =
    try Option(newest.get).foreach { checkpoint =>
      val ends = endsOf(checkpoint)
      known = clients.map { case (source, client) =>
        val (records, ms) = behind(client, ends.getOrElse(source, Map.empty[KafkaPartition, Long]))
        SourceLag(source.toString, records, ms)
      }
    } catch {
      case e: InterruptedException => throw e
      case e: Throwable =>
        logDebug(s"how far the newest checkpoint is behind Kafka is not known: ${described(e)}")
        known = known.map(_.copy(records = None, ms = None))
    }

  /** Records and milliseconds. A cluster that does not answer hides nothing of another one. */
  private def behind(client: KafkaClient, read: Map[KafkaPartition, Long]): (Option[Long], Option[Long]) =
    try {
      val behind = client.bounds(read.keys, latest = true).map { case (p, end) => p -> math.max(0L, end - read(p)) }.filter(_._2 > 0)
      val since = if (behind.isEmpty) None else client.oldest(behind.keys.map(p => p -> read(p)).toMap, OldestMs)
      val ms = if (behind.isEmpty) Some(0L) else since.map(written => math.max(0L, System.currentTimeMillis() - written))
      (Some(behind.values.sum), ms)
    } catch {
      case e: InterruptedException => throw e
      case e: Throwable =>
        logDebug(s"how far the newest checkpoint is behind Kafka at ${client.servers} is not known: ${described(e)}")
        client.renew()
        (None, None)
    }

  private def endsOf(checkpoint: Completed): Map[SparkDataStream, Map[KafkaPartition, Long]] =
    OffsetEntries.progress(deserialize(query.offsetLog, checkpoint.offsets), sources).toMap
      .collect { case (source, offset) if KafkaClient.isKafka(source) => source -> KafkaClient.partitions(offset.json()) }
}

object KafkaSources {
  private final case class Completed(epoch: Long, offsets: Array[Byte])

  private sealed trait Committing
  private case object Untried extends Committing
  private case object Working extends Committing
  private case object Failing extends Committing

  private val FarewellMs = 5000L
  private val OldestMs = 2000L
  private val LookNs = TimeUnit.SECONDS.toNanos(2)

  /** In a group's name: the query's name, else its id. */
  private val QueryName = "{query}"

  /** None: the query reads no Kafka. */
  def of(query: MicroBatchExecution, group: Option[String]): Option[KafkaSources] =
    if (QueryHook.sources(query).exists(KafkaClient.isKafka)) {
      val name = Option(query.name).filter(_.nonEmpty).getOrElse(query.id.toString)
      Some(new KafkaSources(query, group.map(_.replace(QueryName, name))))
    } else None

  /**
   * Commits to each cluster what its sources have been read to: one that is away, or refuses, holds up no other. Returns who failed, and of
   * what. Two sources may read the same partition of the same cluster: the group has one place, and what both have is at the lesser. So these
   * partitions come last, when the clusters have said which ones they are; nothing is said of one that is also read from a cluster that
   * has not. Nobody is asked for what only those of `without` read.
   */
  def commitAll(
      group: String, ends: Seq[(KafkaClient, Map[KafkaPartition, Long])], without: Seq[KafkaClient]): Seq[(KafkaClient, Throwable)] = {
    val shared = ends.flatMap(_._2.keys).groupMapReduce(identity)(_ => 1)(_ + _).filter(_._2 > 1).keySet
    val own = ends.filterNot(e => without.contains(e._1)).map { case (client, read) => (client, read, Try(client.commit(group, read -- shared))) }
    val asked = own.collect { case (client, read, Success(_)) if read.keys.exists(shared) => (client, read, Try(client.cluster)) }
    val known = asked.collect { case (client, read, Success(cluster)) => (client, read, cluster) }
    val clear = shared -- ends.filterNot(e => known.exists(_._1 eq e._1)).flatMap(_._2.keys)
    val both = known.groupBy(_._3).values.map { same =>
      val merged = same.flatMap(_._2).groupMapReduce(_._1)(_._2)(math.min)
      (same.head._1, Try(same.head._1.commit(group, merged.filter(e => clear(e._1)))))
    }
    val done = own.map(o => o._1 -> o._3) ++ asked.map(a => a._1 -> a._3) ++ both
    done.collect { case (client, Failure(e)) => client -> e }
  }

  // Public in the class file, protected in Scala.
  private def deserialize(log: OffsetSeqLog, content: Array[Byte]): OffsetEntries.Entry =
    classOf[OffsetSeqLog].getMethod("deserialize", classOf[InputStream]).invoke(log, new ByteArrayInputStream(content)).asInstanceOf[OffsetEntries.Entry]

  /** With the class: some of Kafka's exceptions have no message. */
  private def described(e: Throwable): String = s"${e.getClass.getSimpleName}: ${e.getMessage}"
}
