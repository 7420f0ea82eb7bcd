package org.apache.spark.sql.ckpt

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.HasStreamingSourceIdentifyingName

/** The name that a query gives to a source: by it Spark finds it again, wherever it stands (source evolution); else by its place. */
object SourceNames {
  def of(source: LogicalPlan): Option[String] = source match {
    case named: HasStreamingSourceIdentifyingName => named.sourceIdentifyingName.nameOpt
    case _ => None
  }
}
