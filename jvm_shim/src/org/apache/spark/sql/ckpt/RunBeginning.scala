package org.apache.spark.sql.ckpt

import org.apache.spark.ckpt.{DriverSide, DriverStream}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent

/** Claims a stream for a query, and puts into the checkpointLocation what the query goes on from. Runs in the query thread. */
class RunBeginning(query: MicroBatchExecution, stream: DriverStream, event: QueryStartedEvent) {
  // The sink is asked before it is wrapped.
  private val sink = query.sink
  private val (shape, needs) = (JobShapes.of(query), SourcesAndSink.of(query))

  /** Each call begins a run: the first when the query starts, another when it has to go back to a checkpoint. */
  def apply(): RecordedEpochs = {
    val files = new CheckpointFolder(stream.root, query.sparkSession.sessionState.newHadoopConf())
    val begun = stream.start(event.id.toString, shape, needs, files.present(), SchemaPreflight(query, _))
    files.replace(begun.files)
    begun.files.values.foreach(_.discard())
    SinkLogBeginning(sink, begun.files.keys)
    stream.barrier.foreach { barrier =>
      DriverSide.runBegan(
        barrier, event.id.toString, event.runId.toString, Option(event.name).getOrElse(""), stream.background, () => OperatorNames.of(query))
      DriverSide.setBarrier(barrier)
    }
    new RecordedEpochs(query, begun.planned)
  }
}
