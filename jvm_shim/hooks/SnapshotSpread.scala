package org.apache.spark.sql.execution.streaming.state.ckpt

import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/**
 * After how many commits a store takes a full snapshot at the earliest. Spark has one number for all stores, and those of a query have
 * begun together: in every tenth epoch all of them would flush their memory tables at once, and the epoch would wait for it. Here it is a
 * few more than Spark's number, in each partition others than in the next.
 */
object SnapshotSpread {
  def apply(conf: RocksDBConf, partition: Int): RocksDBConf =
    conf.copy(minDeltasForSnapshot = commits(conf.minDeltasForSnapshot, partition))

  /** `least`: Spark's number. */
  def commits(least: Int, partition: Int): Int = math.min(least.toLong + partition % math.max(1, least / 2), Int.MaxValue).toInt
}
