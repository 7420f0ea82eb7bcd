package org.apache.spark.sql.ckpt

import org.apache.spark.sql.ckpt.SparkStreaming.StreamExecution
import org.apache.spark.sql.classic.SparkSession

/** The session that a query runs in, a clone of the user's: here only the query itself may ask for it. */
object QuerySession {
  def of(query: StreamExecution): SparkSession =
    classOf[StreamExecution].getMethod("sparkSessionForStream").invoke(query).asInstanceOf[SparkSession]
}
