package org.apache.spark.sql.ckpt

import scala.util.Try

import org.apache.spark.ckpt.CheckpointFailure
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, MicroBatchExecutionContext}

/**
 * A Kafka source as it stood when an epoch failed: what that epoch was to read begins at `next`; empty: it had read nothing before.
 * `failsOnLoss`: whether what is gone can be why; else the source goes on without.
 */
final case class KafkaReading(source: String, next: Map[KafkaPartition, Long], client: KafkaClient, failsOnLoss: Boolean)

/**
 * What an epoch's failure means where a Kafka source is its cause: which rows are lost, or who is not let in, and what there is to choose.
 *
 * An error of Kafka may be one of the sink or of the user's own clients, or pass. So it is only the occasion to ask the brokers, as the
 * source, and what is told is what they say then. Whatever they do not confirm stays Spark's own error.
 */
object KafkaTrouble {
  private val Refused = Seq(
    "SaslAuthenticationException", "SslAuthenticationException", "TopicAuthorizationException", "GroupAuthorizationException",
    "ClusterAuthorizationException")
  private val Gone = Seq(
    "UnknownTopicOrPartitionException", "PARTITIONS_DELETED", "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException")
  private val MaxCauses = 50
  private val MaxNamed = 10

  def explained(e: Throwable, query: MicroBatchExecution, ctx: MicroBatchExecutionContext): Option[CheckpointFailure] =
    Try {
      if (!says(e, Refused ++ Gone) || CheckpointFailure.isOne(e)) None
      else explained(e, ctx.batchId, QueryHook.sources(query).flatMap(source => KafkaClient.of(source).map { client =>
        val next = ctx.startOffsets.get(source).map(start => KafkaClient.partitions(start.json())).getOrElse(Map.empty[KafkaPartition, Long])
        KafkaReading(source.toString, next, client, KafkaClient.failsOnLoss(source))
      }))
    }.toOption.flatten

  /** Asks the brokers of each source; closes the clients. */
  def explained(e: Throwable, epoch: Long, sources: Seq[KafkaReading]): Option[CheckpointFailure] =
    if (!says(e, Refused ++ Gone) || CheckpointFailure.isOne(e)) None
    else {
      val answers = sources.map(source => source -> asked(source))
      val lost = answers.flatMap { case (_, answer) => answer.getOrElse(Nil) }
      if (lost.nonEmpty) Some(new CheckpointFailure(CheckpointFailure.Unusable, lostMessage(epoch, lost), e))
      else answers.collectFirst { case (source, Left(why)) if says(why, Refused) =>
        new CheckpointFailure(CheckpointFailure.Source, refusedMessage(source, why), e)
      }
    }

  // What happened on an executor is text.
  private def says(e: Throwable, words: Seq[String]): Boolean =
    Iterator.iterate(e)(_.getCause).takeWhile(_ != null).take(MaxCauses).exists(t => words.exists(t.toString.contains))

  private def refusedMessage(source: KafkaReading, why: Throwable): String = {
    val said = Option(why.getMessage).flatMap(_.linesIterator.nextOption()).getOrElse(why.getClass.getSimpleName)
    s"Kafka at ${source.client.servers} does not let ${source.source} in ($said); correct the kafka.* options of the source, or what " +
      "that user may do: started again, the query goes on from its newest checkpoint"
  }

  private def lostMessage(epoch: Long, lost: Seq[Missing]): String = {
    val (cut, gone) = lost.partition(_.range.nonEmpty)
    val all = gone ++ cut
    val what = all.take(MaxNamed).mkString(", ") + (if (all.size > MaxNamed) s" and of ${all.size - MaxNamed} more partitions" else "")
    val why = if (gone.nonEmpty) "the topic was deleted" else "retention has deleted it"
    s"epoch $epoch was to read what Kafka does not have any more: $what ($why); to go on without those rows set the " +
      "source's option failOnDataLoss=false, to keep them bring them back under the same offsets, or go on from a checkpoint or savepoint " +
      "that holds them (spark.ckpt.restore.path)"
  }

  /** Of what was to be read: a partition that does not exist, or offsets of it, from and until, that are not there any more. */
  private final case class Missing(partition: KafkaPartition, range: Option[(Long, Long)]) {
    override def toString: String = range.fold(s"all of $partition") { case (from, until) => s"offsets $from to ${until - 1} of $partition" }
  }

  /** Left: how the brokers did not answer. */
  private def asked(source: KafkaReading): Either[Throwable, Seq[Missing]] =
    try Right(if (source.failsOnLoss) missing(source) else { source.client.look(); Nil })
    catch {
      case e: InterruptedException => throw e
      case e: Throwable => Left(e)
    } finally Try(source.client.close())

  private def missing(source: KafkaReading): Seq[Missing] = {
    val gone = source.client.gone(source.next.keys)
    val there = source.next.keySet.diff(gone)
    val begins = if (there.isEmpty) Map.empty[KafkaPartition, Long] else source.client.bounds(there, latest = false)
    val found = source.next.toSeq.sortBy { case (p, _) => (p.topic, p.partition) }.collect {
      case (p, _) if gone(p) => Missing(p, None)
      case (p, next) if begins.get(p).exists(_ > next) => Missing(p, Some((next, begins(p))))
    }
    if (found.isEmpty) source.client.look()
    found
  }
}
