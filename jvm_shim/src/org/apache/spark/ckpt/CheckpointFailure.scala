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
}
