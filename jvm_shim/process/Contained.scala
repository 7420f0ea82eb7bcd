package org.apache.spark.ckpt

import org.apache.spark.internal.Logging

/**
 * For what only shows checkpoints: whatever goes wrong in it ends there. Spark's listener bus contains most exceptions itself, but stops the
 * application over an error that it takes for fatal, a LinkageError for example.
 */
trait Contained extends Logging {
  protected def contained(what: String)(body: => Unit): Unit =
    try body
    catch {
      case e: InterruptedException => throw e
      case e: Throwable => logWarning(s"$what could not be shown; nothing but that is concerned", e)
    }
}
