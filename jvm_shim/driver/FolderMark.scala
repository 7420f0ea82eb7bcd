package org.apache.spark.ckpt

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, StandardCopyOption}
import java.util.UUID

import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.fs.{Path => HadoopPath}

import org.apache.spark.ckpt.Json.Fields

/**
 * A small file in a checkpointLocation on disk: which run has made its folders last. A driver hears from the stream's log that it is fenced
 * when it triggers its next epoch. What it writes until then would lie among the files of the run that took over, and Spark ends a query
 * that finds a file which it is about to write ("Concurrent update to the log").
 */
final class FolderMark(root: String) {
  private val file: Option[Path] = {
    val uri = new HadoopPath(root).toUri
    Option.when(Option(uri.getScheme).forall(_.equalsIgnoreCase("file")))(new File(uri.getPath, FolderMark.Name).toPath)
  }
  @volatile private var own: Option[String] = None

  /** A run has claimed the stream, and is about to make the folders. */
  def put(application: JsonNode): Unit = file.foreach { target =>
    val text = Json.line(Json.obj("mark" -> UUID.randomUUID().toString, "application" -> application))
    Files.createDirectories(target.getParent)
    val temp = target.resolveSibling(s"${FolderMark.Name}.${UUID.randomUUID()}.tmp")
    try {
      Files.write(temp, text.getBytes(UTF_8))
      Files.move(temp, target, StandardCopyOption.ATOMIC_MOVE)
    } finally Files.deleteIfExists(temp)
    own = Some(text)
  }

  /** Throws if another run has made the folders since. A folder without a mark is whoever's it was. */
  def check(): Unit = for (target <- file; mine <- own) {
    val found = try Some(new String(Files.readAllBytes(target), UTF_8)) catch { case _: NoSuchFileException => None }
    found.filter(_ != mine).foreach { text =>
      throw new CheckpointFailure(CheckpointFailure.Fenced,
        s"${FolderMark.writer(text)} took over the stream of $root: it has made the folder anew since this run began, and this run stops and " +
          "touches nothing; stop the one of the two that you do not want")
    }
  }
}

object FolderMark {
  val Name = ".spark-ckpt-run"

  private def writer(text: String): String = Try(Json.parse(text).get("application")).toOption.filter(a => a != null && a.isObject)
    .map(a => s"application ${a.optStr("id").mkString} (${a.optStr("name").mkString} of ${a.optStr("user").mkString})".filterNot(_.isControl))
    .getOrElse("another run")
}
