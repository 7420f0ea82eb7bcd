package org.apache.spark.sql.ckpt

import java.lang.reflect.InvocationTargetException
import java.time.Duration
import java.util.{Collections, HashMap => JHashMap, List => JList, Map => JMap}
import java.util.concurrent.{ExecutionException, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.ckpt.Json
import org.apache.spark.sql.connector.read.streaming.SparkDataStream

final case class KafkaPartition(topic: String, partition: Int) {
  override def toString: String = s"$topic-$partition"
}

/**
 * The few calls of Kafka's own client that are made here, with the settings of one of the query's sources: whatever it needs to get in
 * stays in this JVM. By reflection: only a job that reads Kafka has these classes, and the JAR is compiled without them. Every call may
 * block for `AnswerMs`, and throws what the client throws.
 */
class KafkaClient(reader: AnyRef) {
  import KafkaClient._

  private val loader = reader.getClass.getClassLoader
  private val settings =
    call(Class.forName(s"$Connector.KafkaOffsetReader", true, loader), reader, "driverKafkaParams").asInstanceOf[JMap[String, AnyRef]]
  private val strategy = fieldOf(reader, s"$Connector.ConsumerStrategy").getOrElse(
    throw new NoSuchFieldException(s"${reader.getClass.getName} has no ConsumerStrategy"))
  private val strategyClass = Class.forName(s"$Connector.ConsumerStrategy", true, loader)
  private val partitionClass = named("common.TopicPartition")
  private val adminClass = named("clients.admin.Admin")

  // Its threads are daemons. It keeps the credentials that it was made with.
  private var admin = Option.empty[AnyRef]
  private var clusterId = Option.empty[String]
  private var closed = false

  def servers: String = String.valueOf(settings.get("bootstrap.servers"))

  /** What the brokers call their cluster, by whatever address they are asked. */
  def cluster: String = {
    val known = synchronized(clusterId)
    known.getOrElse {
      val answer = call(adminClass, open(), "describeCluster")
      val id = Option(get(call(named("clients.admin.DescribeClusterResult"), answer, "clusterId"))).map(_.toString).getOrElse(servers)
      synchronized { clusterId = Some(id) }
      id
    }
  }

  /** Asks for what the source reads, as the source does it: throws what it would get to see. */
  def look(): Unit =
    try call(strategyClass, strategy, "assignedTopicPartitions", adminClass -> open())
    catch { case e: ExecutionException if e.getCause != null => throw e.getCause }

  /**
   * Those of these partitions that do not exist. While brokers are started one after the other, one may not know a topic yet: it is asked for
   * again, and whatever has been known once exists.
   */
  def gone(of: Iterable[KafkaPartition]): Set[KafkaPartition] = {
    var left = of.toSet
    var asked = 0
    while (left.nonEmpty && asked < GoneAsks) {
      if (asked > 0) Thread.sleep(GoneAgainMs)
      left --= existing(left.map(_.topic))
      asked += 1
    }
    left
  }

  private def existing(topics: Set[String]): Set[KafkaPartition] = {
    val answer = call(adminClass, open(), "describeTopics", classOf[java.util.Collection[_]] -> new java.util.ArrayList[String](topics.asJava))
    val found = call(named("clients.admin.DescribeTopicsResult"), answer, "topicNameValues").asInstanceOf[JMap[String, AnyRef]].asScala
    val described = named("clients.admin.TopicDescription")
    val place = named("common.TopicPartitionInfo")
    found.toSeq.flatMap { case (topic, future) =>
      try {
        val its = call(described, get(future), "partitions").asInstanceOf[JList[AnyRef]].asScala.toSeq
        its.map(p => KafkaPartition(topic, call(place, p, "partition").asInstanceOf[Int]))
      } catch { case e: Exception if e.getClass.getSimpleName == "UnknownTopicOrPartitionException" => Nil }
    }.toSet
  }

  def commit(group: String, ends: Map[KafkaPartition, Long]): Unit = if (ends.nonEmpty) {
    val position = named("clients.consumer.OffsetAndMetadata").getConstructor(classOf[Long])
    val asked = new JHashMap[AnyRef, AnyRef]
    ends.foreach { case (partition, offset) => asked.put(theirs(partition), position.newInstance(Long.box(offset)).asInstanceOf[AnyRef]) }
    val result = call(adminClass, open(), "alterConsumerGroupOffsets", classOf[String] -> group, classOf[JMap[_, _]] -> asked)
    get(call(named("clients.admin.AlterConsumerGroupOffsetsResult"), result, "all"))
  }

  /** Where the log of each partition ends for this source (of what is committed, where it reads only that), or begins; not of those that are gone. */
  def bounds(of: Iterable[KafkaPartition], latest: Boolean): Map[KafkaPartition, Long] = {
    val spec = call(named("clients.admin.OffsetSpec"), null, if (latest) "latest" else "earliest")
    val asked = new JHashMap[AnyRef, AnyRef]
    of.foreach(partition => asked.put(theirs(partition), spec))
    val optionsClass = named("clients.admin.ListOffsetsOptions")
    val options = optionsClass.getConstructor(named("common.IsolationLevel")).newInstance(isolation).asInstanceOf[AnyRef]
    val result = call(adminClass, open(), "listOffsets", classOf[JMap[_, _]] -> asked, optionsClass -> options)
    val resultClass = named("clients.admin.ListOffsetsResult")
    val infoClass = named("clients.admin.ListOffsetsResult$ListOffsetsResultInfo")
    of.flatMap { partition =>
      try {
        val info = get(call(resultClass, result, "partitionResult", partitionClass -> theirs(partition)))
        Some(partition -> call(infoClass, info, "offset").asInstanceOf[Long])
      } catch { case e: Exception if e.getClass.getSimpleName == "UnknownTopicOrPartitionException" => None }
    }.toMap
  }

  /** When the first record at or after these places was written, as far as `within` milliseconds tell: the oldest, in ms since 1970. */
  def oldest(at: Map[KafkaPartition, Long], within: Long): Option[Long] = {
    val own = new JHashMap[String, AnyRef](call(strategyClass, strategy, "setAuthenticationConfigIfNeeded", classOf[JMap[_, _]] -> settings)
      .asInstanceOf[JMap[String, AnyRef]])
    Seq("group.id", "group.instance.id").foreach(own.remove)
    // One record of each partition is wanted; a fetch brings at least one batch.
    own.putAll(Map[String, AnyRef](
      "enable.auto.commit" -> "false", "max.poll.records" -> "1", "max.partition.fetch.bytes" -> "1", "auto.offset.reset" -> "earliest").asJava)
    val consumerClass = named("clients.consumer.KafkaConsumer")
    val consumer = consumerClass.getConstructor(classOf[JMap[_, _]]).newInstance(own).asInstanceOf[AnyRef]
    try {
      val waiting = mutable.Set.from(at.keys)
      val partitions = at.keys.map(p => p -> theirs(p)).toMap
      call(consumerClass, consumer, "assign", classOf[java.util.Collection[_]] -> partitions.values.toSeq.asJava)
      at.foreach { case (p, offset) => call(consumerClass, consumer, "seek", partitionClass -> partitions(p), classOf[Long] -> Long.box(offset)) }
      val recordsClass = named("clients.consumer.ConsumerRecords")
      val recordClass = named("clients.consumer.ConsumerRecord")
      val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(within)
      var found = Option.empty[Long]
      while (waiting.nonEmpty && System.nanoTime() < deadline) {
        val records = call(consumerClass, consumer, "poll", classOf[Duration] -> Duration.ofMillis(200))
        waiting.toSeq.foreach { p =>
          val first = call(recordsClass, records, "records", partitionClass -> partitions(p)).asInstanceOf[JList[AnyRef]].asScala.headOption
          first.foreach { record =>
            val written = call(recordClass, record, "timestamp").asInstanceOf[Long]
            if (written >= 0) found = Some(found.fold(written)(math.min(_, written)))
            waiting.remove(p)
            call(consumerClass, consumer, "pause", classOf[java.util.Collection[_]] -> Collections.singleton(partitions(p)))
          }
        }
      }
      found
    } finally call(consumerClass, consumer, "close", classOf[Duration] -> CloseWait)
  }

  /** After a failure: the next call comes in with the credentials of that moment. A delegation token ends, however often it is used. */
  def renew(): Unit = {
    val old = synchronized {
      val was = admin
      admin = None
      clusterId = None
      was
    }
    old.foreach(call(adminClass, _, "close", classOf[Duration] -> CloseWait))
  }

  def close(): Unit = {
    synchronized { closed = true }
    renew()
  }

  private def open(): AnyRef = synchronized {
    if (closed) throw new IllegalStateException(s"the client of $servers is closed")
    if (admin.isEmpty) admin = Some(call(strategyClass, strategy, "createAdmin", classOf[JMap[_, _]] -> settings))
    admin.get
  }

  private def isolation: AnyRef = {
    val committed = Option(settings.get("isolation.level")).exists(_.toString.equalsIgnoreCase("read_committed"))
    call(named("common.IsolationLevel"), null, "valueOf", classOf[String] -> (if (committed) "READ_COMMITTED" else "READ_UNCOMMITTED"))
  }

  private def theirs(p: KafkaPartition): AnyRef =
    partitionClass.getConstructor(classOf[String], classOf[Int]).newInstance(p.topic, Int.box(p.partition)).asInstanceOf[AnyRef]

  private def get(future: AnyRef): AnyRef =
    try call(named("common.KafkaFuture"), future, "get", classOf[Long] -> Long.box(AnswerMs), classOf[TimeUnit] -> TimeUnit.MILLISECONDS)
    catch { case e: ExecutionException if e.getCause != null => throw e.getCause }

  private def named(name: String): Class[_] = Class.forName(s"org.apache.kafka.$name", true, loader)
}

object KafkaClient {
  private val Connector = "org.apache.spark.sql.kafka010"
  private val AnswerMs = 30000L
  private val GoneAsks = 5
  private val GoneAgainMs = 1000L
  // Zero would mean: for ever.
  private val CloseWait = Duration.ofMillis(500)

  /** For a source that reads Kafka. */
  def of(source: SparkDataStream): Option[KafkaClient] =
    if (isKafka(source)) fieldOf(source, s"$Connector.KafkaOffsetReader").map(new KafkaClient(_)) else None

  def isKafka(source: SparkDataStream): Boolean = source.getClass.getName.startsWith(Connector + ".")

  /** Its option `failOnDataLoss`. */
  def failsOnLoss(source: SparkDataStream): Boolean =
    source.getClass.getDeclaredFields.find(_.getName.endsWith("failOnDataLoss")).forall { field =>
      field.setAccessible(true)
      field.getBoolean(source)
    }

  /** An offset of such a source. */
  def partitions(json: String): Map[KafkaPartition, Long] =
    (for (topic <- Json.parse(json).properties().asScala; p <- topic.getValue.properties().asScala)
      yield KafkaPartition(topic.getKey, p.getKey.toInt) -> p.getValue.asLong()).toMap

  private def fieldOf(owner: AnyRef, kind: String): Option[AnyRef] =
    owner.getClass.getDeclaredFields.find(_.getType.getName == kind).map { field =>
      field.setAccessible(true)
      field.get(owner)
    }

  private def call(of: Class[_], on: AnyRef, method: String, arguments: (Class[_], AnyRef)*): AnyRef =
    try of.getMethod(method, arguments.map(_._1): _*).invoke(on, arguments.map(_._2): _*)
    catch { case e: InvocationTargetException if e.getCause != null => throw e.getCause }
}
