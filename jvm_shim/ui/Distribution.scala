package org.apache.spark.ckpt.ui

/** Minimum, average, maximum and percentiles by the nearest rank, as the protocol's `stats.py` takes them. */
final case class Distribution(min: Long, avg: Long, max: Long, p50: Long, p90: Long, p95: Long, p99: Long, p999: Long)

object Distribution {
  val Empty: Distribution = Distribution(0, 0, 0, 0, 0, 0, 0, 0)

  def of(values: Iterable[Long]): Distribution = {
    val ordered = values.toArray
    java.util.Arrays.sort(ordered)
    def rank(perMille: Long): Long = ordered((((perMille * ordered.length + 999) / 1000) - 1).toInt)
    if (ordered.isEmpty) Empty
    else Distribution(
      ordered.head, Math.round(ordered.map(_.toDouble).sum / ordered.length), ordered.last, rank(500), rank(900), rank(950), rank(990), rank(999))
  }

  /** As it is told where the values themselves are not: see `CheckpointOperator.distributions`. */
  def fromRow(row: Array[Long]): Distribution =
    if (row.length == 8) Distribution(row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)) else Empty
}
