package org.apache.spark.ckpt

/**
 * What coordinator or agent answered instead of a result. `kind` is an ErrorKind of spark_ckpt/errors.py; the message names the thing
 * and the way out and is shown to the user as it is.
 */
class CheckpointFailure(val kind: String, message: String, cause: Throwable = null, val unread: Unread = Unread()) extends RuntimeException(message, cause) {

  /** With the kind: a failure of an executor reaches the driver, and Python, as the text of its trace (spark_ckpt/api/causes.py). */
  override def toString: String = s"${getClass.getName}[$kind]: $getMessage"
}

/** What could not be read, where known: the object's key in the stream's storage, and the run and epoch of the checkpoint it was read for. */
final case class Unread(obj: Option[String] = None, checkpoint: Option[(Long, Long)] = None)

object CheckpointFailure {
  val Lost = "LOST"
  val Internal = "INTERNAL"
  val Config = "CONFIG"
  val Fenced = "FENCED"
  val Conflict = "CONFLICT"
  val Damaged = "DAMAGED"
  val Storage = "STORAGE"
  val Declined = "DECLINED"
  val Unusable = "UNUSABLE"
  val Source = "SOURCE"

  /** The message, if this, or what it was caused by, is a failure of that kind. One that happened on an executor is text in a trace. */
  def ofKind(kind: String, error: Throwable): Option[String] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MaxCauses).flatMap {
      case failure: CheckpointFailure => Option.when(failure.kind == kind)(failure.getMessage)
      case other =>
        val marker = s"${classOf[CheckpointFailure].getName}[$kind]: "
        Option(other.getMessage).filter(_.contains(marker)).map(m => m.substring(m.indexOf(marker) + marker.length).linesIterator.next())
    }.nextOption()

  /** Is this, or what it was caused by, a failure that says itself what there is to do? */
  def isOne(error: Throwable): Boolean = Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MaxCauses)
    .exists(e => e.isInstanceOf[CheckpointFailure] || Option(e.getMessage).exists(_.contains(classOf[CheckpointFailure].getName)))

  private val MaxCauses = 50
}
