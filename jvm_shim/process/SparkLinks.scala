package org.apache.spark.ckpt

import java.lang.invoke.{MethodHandle, MethodHandles, MethodType}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.SPARK_VERSION

/**
 * Whether the Spark that runs has what this JAR calls of it. What is missing would else be noticed where it is called first: in a task, as a
 * NoSuchMethodError. The list comes from the compiled classes (jvm_shim/class_files.py).
 */
object SparkLinks {
  private val Named = 3

  /** Once in a JVM; of the very Spark that the JAR was compiled against nothing has to be looked for. Throws a CheckpointFailure. */
  lazy val checked: Unit = if (SPARK_VERSION != Versions.compiledFor) {
    refusal(SPARK_VERSION, Versions.compiledFor, listing).foreach(why => throw new CheckpointFailure(CheckpointFailure.Config, why))
  }

  private def listing: String = {
    val in = getClass.getResourceAsStream("/META-INF/spark-ckpt-links.txt")
    try new String(in.readAllBytes(), UTF_8) finally in.close()
  }

  def refusal(running: String, compiled: String, listing: String): Option[String] =
    if (line(running) != line(compiled)) Some(
      s"this JAR is for Spark ${line(compiled)}, and the Spark that runs is $running; take the JAR that `spark-ckpt jar` prints beside that Spark")
    else missing(listing) match {
      case Seq() => None
      case lost => Some(
        s"Spark $running lacks what the JAR of spark-ckpt ${Versions.jar}, compiled against Spark $compiled, calls (${lost.take(Named).mkString(", ")}" +
          s"${if (lost.size > Named) s" and ${lost.size - Named} more" else ""}); use Spark $compiled, or a spark-ckpt that knows Spark $running")
    }

  private def line(version: String): String = version.split("[^0-9]").take(2).mkString(".")

  /** Of a listing (class, then a line with a blank before each of its members): what is not there, for people. */
  def missing(listing: String): Seq[String] = {
    var owner = Option.empty[Class[_]]
    listing.linesIterator.flatMap { entry =>
      if (entry.startsWith(" ")) {
        val Array(name, descriptor) = entry.trim.split(" ", 2)
        owner.filterNot(has(_, name, descriptor)).map(of => s"${plain(of.getName)}.$name")
      } else {
        owner = load(entry.replace('/', '.'))
        if (owner.isEmpty) Some(plain(entry.replace('/', '.'))) else None
      }
    }.toSeq.distinct
  }

  private def plain(className: String): String = className.substring(className.lastIndexOf('.') + 1)

  private def load(name: String): Option[Class[_]] =
    try Some(Class.forName(name, false, getClass.getClassLoader)) catch { case _: ClassNotFoundException | _: LinkageError => None }

  // One by one, as the JVM itself would: all methods of a class can be listed only where the classes of all their arguments are there.
  private def has(of: Class[_], name: String, descriptor: String): Boolean =
    try {
      val found = MethodHandles.privateLookupIn(of, MethodHandles.lookup())
      val isField = !descriptor.startsWith("(")
      val described = MethodType.fromMethodDescriptorString(if (isField) s"()$descriptor" else descriptor, getClass.getClassLoader)
      if (isField) either(found.findGetter(of, name, described.returnType), found.findStaticGetter(of, name, described.returnType))
      else if (name == "<init>") found.findConstructor(of, described)
      else either(found.findVirtual(of, name, described), found.findStatic(of, name, described))
      true
    } catch { case _: ReflectiveOperationException | _: TypeNotPresentException | _: LinkageError => false }

  private def either(ofObject: => MethodHandle, ofClass: => MethodHandle): MethodHandle =
    try ofObject catch { case _: ReflectiveOperationException | _: LinkageError => ofClass }
}
