package org.apache.spark.sql.ckpt

import scala.util.Try

import org.apache.spark.ckpt.{DriverSide, DriverStream}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.ckpt.SparkStreaming.StreamExecution
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

/**
 * Begins and ends a run. `onQueryStarted` runs in the query thread, before the query reads its logs. An exception thrown here is
 * swallowed by Spark's listener bus, so a refusal is left with the stream, whose files then cannot be listed.
 */
class QueryRunListener extends StreamingQueryListener with Logging {

  override def onQueryStarted(event: QueryStartedEvent): Unit = {
    val query = QueryHook.ofThread()
    var stream = Option.empty[DriverStream]
    try {
      if (!Refusals.unseen(query)) {
        stream = DriverSide.accepted(query.resolvedCheckpointRoot, event.runId.toString)
        stream.foreach { accepted =>
          try begin(query, accepted, event)
          catch { case e: Throwable => accepted.failure = Some(e) }
        }
      }
    } catch { case _: InterruptedException => Thread.currentThread().interrupt() }
    finally heed(stream)
  }

  /**
   * Spark removes a listener for good that is interrupted, or whose thread is when it returns (`ListenerBus.postToAll`): no later query would
   * be seen. A query that is interrupted is stopped already, also one that is none of ours.
   */
  private def heed(stream: Option[DriverStream]): Unit =
    if (Thread.interrupted()) stream.filter(_.failure.isEmpty).foreach(_.failure = Some(new InterruptedException("the query was stopped while it began")))

  override def onQueryProgress(event: QueryProgressEvent): Unit = ()

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit =
    DriverSide.runEnded(event.runId.toString, event.exception.isDefined)

  private def begin(query: StreamExecution, stream: DriverStream, event: QueryStartedEvent): Unit = {
    val batches = Refusals.microBatches(query)
    stream.hooks = DriverSide.hooksOf(stream.root, Option(event.name))
    val beginning = new RunBeginning(batches, stream, event)
    val planned = beginning()
    QueryHook.wrapSink(batches)
    // The query makes its trigger executor together with its logical plan, so the plan is made now; the files that it reads are in place.
    // Where it cannot be made, the query does not go on: Spark tries once more, and a source that is away for a moment would leave it
    // without ours.
    QueryHook.makePlan(batches)
    batches.triggerExecutor = new EpochRunner(batches, stream, beginning, planned)
    Try(KafkaSources.of(batches, DriverSide.kafkaGroup).foreach(stream.ends.follow)).failed.foreach(e => logWarning("what Kafka's consumer groups are to know cannot be told", e))
  }
}
