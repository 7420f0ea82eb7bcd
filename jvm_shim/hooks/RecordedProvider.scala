package org.apache.spark.sql.ckpt

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.ckpt.{Content, InMessage}
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider

/**
 * The state store provider that `offsets/N` names beside an epoch's offsets. Where a query goes on, Spark takes it over from there, whatever
 * the session has, and the state would be looked for in the checkpointLocation. Spark's own stands in what a batch of stock Spark has left,
 * and in what `rescale` once made of an epoch that was planned.
 */
object RecordedProvider {
  private val Sparks = s""""${classOf[RocksDBStateStoreProvider].getName}""""
  private val Ours = s""""${RealTime.Ours}""""

  /** The same offsets, with our provider in the place of Spark's. */
  def ours[K](offsets: Map[K, Content]): Map[K, Content] = offsets.map { case (key, content) =>
    val text = new String(content.bytes, UTF_8)
    // Behind the second line stands what sources have written.
    key -> (text.split("\n", 3) match {
      case Array(version, metadata, rest) if metadata.contains(Sparks) => InMessage(s"$version\n${metadata.replace(Sparks, Ours)}\n$rest".getBytes(UTF_8))
      case _ => content
    })
  }
}
