package org.apache.spark.ckpt

/**
 * What coordinator or agent answered instead of a result. `kind` is an ErrorKind of spark_ckpt/errors.py; the message names the thing
 * and the way out and is shown to the user as it is.
 */
class CheckpointFailure(val kind: String, message: String, cause: Throwable = null) extends RuntimeException(message, cause) {

  /** With the kind: a failure of an executor reaches the driver, and Python, as the text of its trace (spark_ckpt/causes.py). */
  override def toString: String = s"${getClass.getName}[$kind]: $getMessage"
}

object CheckpointFailure {
  val Lost = "LOST"
  val Internal = "INTERNAL"
  val Config = "CONFIG"
  val Storage = "STORAGE"

  /** Is this, or what it was caused by, a failure of that kind? One that happened on an executor is known by its trace's text only. */
  def isOf(kind: String, error: Throwable): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MaxCauses).exists {
      case failure: CheckpointFailure => failure.kind == kind
      case other => Option(other.getMessage).exists(_.contains(s"${classOf[CheckpointFailure].getName}[$kind]"))
    }

  private val MaxCauses = 50
}
