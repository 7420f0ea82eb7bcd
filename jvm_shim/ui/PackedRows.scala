package org.apache.spark.ckpt.ui

import java.io.ByteArrayOutputStream

/**
 * Rows of whole numbers in as few bytes as their digits need: some 14 for a partition, where arrays of objects would take 100. A thousand
 * checkpoints of a thousand partitions have to stay in the driver's memory.
 */
final class PackedRows private (bytes: Array[Byte], columns: Int, val size: Int) {
  def byteCount: Int = bytes.length

  def rows: Seq[Array[Long]] = {
    var at = 0
    def next(): Long = {
      var (value, shift, more) = (0L, 0, true)
      while (more) {
        val b = bytes(at)
        at += 1
        value |= (b & 0x7fL) << shift
        shift += 7
        more = b < 0
      }
      (value >>> 1) ^ -(value & 1)
    }
    Seq.fill(size)(Array.fill(columns)(next()))
  }
}

object PackedRows {
  val Empty: PackedRows = new PackedRows(Array.emptyByteArray, 0, 0)

  /** Rows of another length than the first are left out: they were written by another release. */
  def apply(rows: Array[Array[Long]]): PackedRows =
    if (rows == null || rows.isEmpty) Empty
    else {
      val columns = rows.head.length
      val kept = rows.filter(r => r != null && r.length == columns)
      val out = new ByteArrayOutputStream(kept.length * columns * 2)
      kept.foreach(_.foreach { number =>
        var rest = (number << 1) ^ (number >> 63)
        while ((rest & ~0x7fL) != 0) {
          out.write(((rest & 0x7f) | 0x80).toInt)
          rest >>>= 7
        }
        out.write(rest.toInt)
      })
      new PackedRows(out.toByteArray, columns, kept.length)
    }
}
