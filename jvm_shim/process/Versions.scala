package org.apache.spark.ckpt

import java.util.Properties

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.ckpt.Json.Fields

/** JAR and Python package come from one build; what each of them says is understood by the other one of the same version only. */
object Versions {
  private lazy val said = {
    val in = getClass.getResourceAsStream("/META-INF/spark-ckpt.properties")
    val said = new Properties()
    try said.load(in) finally in.close()
    said
  }

  /** Of the package that this JAR was built with. */
  def jar: String = said.getProperty("version")

  /** Of the Spark that this JAR was compiled against. */
  def compiledFor: String = said.getProperty("spark.version")

  /** The other half, which is told `jar` in the greeting, refuses a wrong one itself; one that is too old to know of that is refused here. */
  def check(answer: JsonNode, python: String): Unit = {
    val package_ = answer.optStr("version")
    if (!package_.contains(jar)) {
      throw new CheckpointFailure(CheckpointFailure.Config,
        s"the JAR is of spark-ckpt $jar, the package that $python has is ${package_.getOrElse("older")}; install spark-ckpt $jar for it, " +
          "or take the JAR that its `spark-ckpt jar` prints")
    }
  }
}
