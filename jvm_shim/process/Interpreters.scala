package org.apache.spark.ckpt

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}

import org.apache.spark.SparkConf

/**
 * Which Python runs the coordinator, and which the agents: each the one that Spark itself uses at that place. On one machine they are the
 * same; with an environment that is shipped to the executors (`--archives`) they are not.
 *
 * @param launcher the Python that has started this JVM, where one has
 */
final class Interpreters(settings: String => Option[String], variables: String => Option[String], launcher: => Option[String]) {
  import Interpreters._

  // An empty one is none, as Spark's own scripts have it.
  private def conf(name: String): Option[String] = settings(name).filter(_.nonEmpty)
  private def env(name: String): Option[String] = variables(name).filter(_.nonEmpty)
  private val chosen = conf("spark.ckpt.python")
  private def workers = conf("spark.pyspark.python").orElse(env("PYSPARK_PYTHON"))

  /** The driver's own. Shells and notebooks (`PYSPARK_DRIVER_PYTHON=jupyter`) are none that could run a module. */
  def driver: String = chosen
    .orElse(conf("spark.pyspark.driver.python"))
    .orElse(env("PYSPARK_DRIVER_PYTHON").filterNot(isShell))
    .orElse(launcher)
    .orElse(workers)
    .getOrElse(Default)

  /** That of PySpark's workers. In a local master these are the driver's machine, and the agent is a child of the driver. */
  def executors: String =
    chosen.orElse(if (conf("spark.master").exists(Local.matches)) Some(driver) else workers).getOrElse(Default)
}

object Interpreters {
  private val Default = "python3"
  private val Local = "local(\\[.*\\])?".r
  private val Shells = Seq("jupyter", "ipython")
  private val Name = "(python|pypy)[0-9.]*".r
  /** PySpark tells a JVM that it starts where to leave its port. */
  private val LaunchedByPython = "_PYSPARK_DRIVER_CONN_INFO_PATH"

  def apply(conf: SparkConf): Interpreters = new Interpreters(conf.getOption, sys.env.get, launcher)

  private def isShell(program: String): Boolean = Shells.exists(Paths.get(program).getFileName.toString.startsWith)

  private def isPython(program: String): Boolean = Name.matches(Paths.get(program).getFileName.toString)

  private def launcher: Option[String] =
    if (!sys.env.contains(LaunchedByPython)) None
    else {
      val parent = ProcessHandle.current().parent()
      if (parent.isPresent) programOf(Paths.get(s"/proc/${parent.get.pid()}"), sys.env.getOrElse("PATH", "")) else None
    }

  /** As it was called, by the process whose folder in /proc this is: a virtual environment's Python is a link, which must not be followed. */
  def programOf(process: Path, searched: String): Option[String] =
    try {
      val called = new String(Files.readAllBytes(process.resolve("cmdline")).takeWhile(_ != 0), UTF_8)
      val places =
        if (called.contains('/')) Seq(process.resolve("cwd").toRealPath().resolve(called))
        else searched.split(':').toSeq.filter(_.nonEmpty).map(Paths.get(_, called))
      places.find(Files.isExecutable(_)).map(_.toString).filter(isPython)
    } catch { case _: IOException | _: RuntimeException => None } // gone, or another user's, or its title is no path
}
