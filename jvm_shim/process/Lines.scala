package org.apache.spark.ckpt

import java.io.{ByteArrayOutputStream, InputStream}
import java.nio.charset.StandardCharsets.UTF_8

import scala.annotation.tailrec

/**
 * The lines of a stream, UTF-8; of one of more than `max` bytes the beginning only, which is no JSON. For one thread.
 *
 * @param cut whether a last line without its end is one
 */
class Lines(in: InputStream, max: Int, cut: Boolean) {
  private val buffer = new Array[Byte](1 << 16)
  private var from, until = 0

  /** None at the end. */
  def next(): Option[String] = collect(new ByteArrayOutputStream, whole = true)

  @tailrec private def collect(line: ByteArrayOutputStream, whole: Boolean): Option[String] = {
    if (from == until) {
      from = 0
      until = math.max(0, in.read(buffer))
    }
    if (until == 0) Option.when(cut && line.size > 0)(new String(beginning(line, whole), UTF_8))
    else {
      var stop = from
      while (stop < until && buffer(stop) != '\n') stop += 1 // Scala's indexOf would box every byte
      val fits = whole && line.size + (stop - from) <= max
      if (fits) line.write(buffer, from, stop - from)
      val ended = stop < until
      from = if (ended) stop + 1 else until
      if (ended) Some(new String(beginning(line, fits), UTF_8)) else collect(line, fits)
    }
  }

  private def beginning(line: ByteArrayOutputStream, whole: Boolean): Array[Byte] = {
    val bytes = line.toByteArray
    if (whole) bytes else bytes.take(Lines.Shown)
  }
}

object Lines {
  private val Shown = 200
}
