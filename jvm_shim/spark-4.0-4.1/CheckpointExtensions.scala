package org.apache.spark.sql.ckpt

import org.apache.spark.sql.SparkSessionExtensions

/** What `spark.sql.extensions` is given on every line of Spark; this one asks no operator for the provider's name. */
class CheckpointExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = ()
}
