package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.ckpt.{Barrier, Content, DriverSide, DriverStream, ExecutorSide, InMessage}
import org.apache.spark.sql.ckpt.SparkStreaming.{MicroBatchExecution, OffsetSeqMetadata}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent

/** Claims a stream for a query, and puts into the checkpointLocation what the query goes on from. Runs in the query thread. */
class RunBeginning(query: MicroBatchExecution, stream: DriverStream, event: QueryStartedEvent) {
  // The sink is asked before it is wrapped.
  private val sink = query.sink
  private val (shape, needs) = (JobShapes.of(query), SourcesAndSink.of(query))
  val realTime = new RealTime(query, stream)

  /** Each call begins a run: the first when the query starts, another when it has to go back to a checkpoint. */
  def apply(): PlannedEpochs = {
    val files = new CheckpointFolder(stream.root, query.sparkSession.sessionState.newHadoopConf())
    stream.mark.look()
    val begun = stream.start(event.id.toString, shape, needs, files.present(), new SchemaPreflight(query))
    stream.barrier.foreach(text => ExecutorSide.readAhead(Barrier(text)))
    stream.mark.put(DriverSide.storage, begun.claim, DriverSide.application)
    files.replace(materialised(begun.files), Some(stream.mark))
    begun.files.values.foreach(_.discard())
    SinkLogBeginning(sink, begun.files.keys)
    stream.hooks.restore(stream.barrier.fold("")(Barrier(_).stream), begun.claim, begun.hooks, Some(stream.origin).filter(_ >= 0))
    stream.barrier.foreach { barrier =>
      DriverSide.runBegan(
        barrier, event.id.toString, event.runId.toString, Option(event.name).getOrElse(""), stream.background, realTime.batchMs,
        () => OperatorNames.of(query))
      DriverSide.setBarrier(barrier)
    }
    realTime.prepare()
    new PlannedEpochs(query, RecordedProvider.ours(begun.planned))
  }

  /**
   * Epochs that never were stand before the first of a stream that begins anew under numbers that go on. Their offsets have no metadata: of
   * settings that it does not name, Spark would take the oldest formats of state, so it gets those of the session, as a new query would.
   * The number of partitions is in the session under another name, once the query has begun. And after such an epoch Spark refuses a
   * stateful query whose folder `state` is empty; names that are no numbers it does not read.
   */
  private def materialised(files: Map[String, Content]): Map[String, Content] = {
    val never = files.collect { case (path, InMessage(WithoutMetadata(version, offsets))) if path.startsWith("offsets/") =>
      val session = QuerySession.of(query).conf
      val partitions = SQLConf.SHUFFLE_PARTITIONS.key
      val known = OffsetSeqMetadata(0L, 0L, session).conf.filter(_._2 != null)
      val metadata = OffsetSeqMetadata(0L, 0L, Map(partitions -> session.get(partitions)) ++ known)
      path -> InMessage(s"$version\n${metadata.json}\n$offsets".getBytes(UTF_8))
    }
    val begins = never.nonEmpty && !files.keys.exists(_.startsWith("state/"))
    val recorded = RecordedProvider.ours((files ++ never).filter(_._1.startsWith("offsets/")))
    files ++ recorded ++ (if (begins) Seq("state/_anew" -> InMessage(Array.empty[Byte])) else Nil)
  }

  private object WithoutMetadata {
    def unapply(content: Array[Byte]): Option[(String, String)] = new String(content, UTF_8).split("\n", 3) match {
      case Array(version, "", offsets) => Some((version, offsets))
      case _ => None
    }
  }
}
