package org.apache.spark.sql.ckpt

import scala.util.Try

import org.apache.spark.ckpt.CheckpointFailure
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext}

/**
 * What an epoch's failure means where a Kafka source is its cause: which rows are lost, or who is not let in, and what there is to choose.
 * The brokers are asked only then.
 */
object KafkaTrouble {
  private val Refused = Seq(
    "SaslAuthenticationException", "SslAuthenticationException", "TopicAuthorizationException", "GroupAuthorizationException",
    "ClusterAuthorizationException")
  private val TopicGone = Seq("UnknownTopicOrPartitionException", "PARTITIONS_DELETED", "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS")
  private val RowsGone = Seq("KAFKA_DATA_LOSS", "OffsetOutOfRangeException")
  private val MaxCauses = 50
  private val MaxNamed = 10

  def explained(e: Throwable, query: MicroBatchExecution, ctx: MicroBatchExecutionContext): Option[CheckpointFailure] =
    Try {
      val sources = QueryHook.sources(query)._1.filter(KafkaClient.isKafka)
      if (sources.isEmpty || CheckpointFailure.isOne(e)) None
      else {
        val chain = Iterator.iterate(e)(_.getCause).takeWhile(_ != null).take(MaxCauses).toSeq
        // What happened on an executor is text.
        def says(words: Seq[String]): Option[Throwable] = chain.reverse.find(t => words.exists(t.toString.contains))
        says(Refused).map(refused(_, sources))
          .orElse(says(RowsGone ++ TopicGone).map(_ => lost(e, query, ctx, sources, topicGone = says(TopicGone).isDefined)))
      }
    }.toOption.flatten.map { case (kind, sentence) => new CheckpointFailure(kind, sentence, e) }

  private def refused(why: Throwable, sources: Seq[SparkDataStream]): (String, String) = {
    val servers = sources.flatMap(s => Try(KafkaClient.of(s).map(_.servers)).toOption.flatten).distinct.mkString(", ")
    val said = why.getMessage.linesIterator.next()
    CheckpointFailure.Config -> (s"Kafka at $servers does not let ${sources.mkString(", ")} in ($said); correct the kafka.* options of the source, or what " +
      "that user may do, and start the query again: it goes on from its newest checkpoint")
  }

  private def lost(
      e: Throwable, query: MicroBatchExecution, ctx: MicroBatchExecutionContext, sources: Seq[SparkDataStream], topicGone: Boolean): (String, String) = {
    val found = sources.flatMap(source => Try(missing(source, ctx)).getOrElse(Nil))
    val gone = found.collect { case (p, None) => s"all of $p" }
    val cut = found.collect { case (p, Some((from, to))) => s"offsets $from to ${to - 1} of $p" }
    val what = gone ++ cut match {
      case Nil => if (topicGone) s"a topic of ${sources.mkString(", ")} is gone" else s"rows of ${sources.mkString(", ")} are gone"
      case named => named.take(MaxNamed).mkString(", ") + (if (named.size > MaxNamed) s" and of ${named.size - MaxNamed} more partitions" else "")
    }
    val why = if (topicGone || gone.nonEmpty) "the topic was deleted" else "retention has deleted it"
    CheckpointFailure.Unusable -> (s"epoch ${ctx.batchId} was to read what Kafka does not have any more: $what ($why); to go on without those rows set the " +
      s"source's option failOnDataLoss=false, to keep them bring them back under the same offsets, or go on from a checkpoint or savepoint " +
      s"that holds them (spark.ckpt.restore.path)")
  }

  /** Of what comes next: partitions that are not there, and ranges (from, until) that are not. */
  private def missing(source: SparkDataStream, ctx: MicroBatchExecutionContext): Seq[(KafkaPartition, Option[(Long, Long)])] =
    ctx.startOffsets.get(source).toSeq.flatMap { start =>
      val read = KafkaClient.partitions(start.json())
      KafkaClient.of(source).toSeq.flatMap { client =>
        try {
          val begins = client.bounds(read.keys, latest = false)
          read.toSeq.sortBy { case (p, _) => (p.topic, p.partition) }.collect {
            case (p, _) if !begins.contains(p) => p -> None
            case (p, next) if begins(p) > next => p -> Some((next, begins(p)))
          }
        } finally client.close()
      }
    }
}
