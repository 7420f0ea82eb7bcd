package pooled

import java.nio.file.{Files, Path}
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.{DataFrame, Dataset, Row}
import org.apache.spark.sql.streaming.DataStreamWriter

/** A `foreachBatch` that leaves its work to a thread which all queries and epochs share: it was made in the first epoch of the first one. */
object Batches {
  private val pool = Executors.newFixedThreadPool(1, { body: Runnable =>
    val thread = new Thread(body, "writes")
    thread.setDaemon(true)
    thread
  })

  // So many batches are still to fail, whosever they are.
  private val failures = new AtomicInteger

  def failing(times: Int): Unit = failures.set(times)

  /** To `output`/batch-<epoch>.json, a row a line, `pauseMs` after they were there. */
  def keeping(writer: DataStreamWriter[Row], output: String, pauseMs: Int): DataStreamWriter[Row] = {
    val folder = Files.createDirectories(Path.of(output))
    val write: (DataFrame, Long) => Unit = (rows: Dataset[Row], epoch: Long) => {
      val lines = pool.submit(() => rows.toJSON.collect()).get()
      Thread.sleep(pauseMs)
      if (failures.getAndDecrement() > 0) throw new IllegalStateException("the sink is away for a moment")
      Files.writeString(folder.resolve(s"batch-$epoch.json"), lines.map(_ + "\n").mkString)
    }
    writer.foreachBatch(write)
  }
}
