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
 *
 * A run may come late with its mark: (1) it claims the stream, and is suspended or busy; (2) another run claims it, puts its mark and begins;
 * (3) the first one goes on. It finds a mark that was not there when it looked, of a later claim, and ends. Claims alone do not tell: where
 * the storage has been emptied, they begin anew below those of the folder's mark.
 */
final class FolderMark(root: String) {
  import FolderMark._

  private val file: Option[Path] = {
    val uri = new HadoopPath(root).toUri
    Option.when(Option(uri.getScheme).forall(_.equalsIgnoreCase("file")))(new File(uri.getPath, Name).toPath)
  }
  @volatile private var before: Option[Mark] = None
  @volatile private var own: Option[Mark] = None

  /** Before the stream is claimed: whose folders are these? */
  def look(): Unit = before = file.flatMap(read)

  /** A run has claimed the stream, and is about to make the folders. Throws if a later one has begun to since `look`. */
  def put(claim: Long, application: JsonNode): Unit = file.foreach { target =>
    val mark = Mark(Json.line(Json.obj(
      "mark" -> UUID.randomUUID().toString, "claim" -> claim, "replaces" -> before.flatMap(_.id), "application" -> application)))
    read(target).filterNot(before.contains).filter(_.isLaterThan(mark)).foreach(fenced)
    Files.createDirectories(target.getParent)
    write(target, mark)
    own = Some(mark)
  }

  /** Throws if another run has made the folders since. A folder without a mark is whoever's it was. */
  def check(): Unit = for (target <- file; mine <- own; found <- read(target) if found != mine) {
    if (found.isLaterThan(mine)) fenced(found)
    write(target, mine) // of a run that claimed the stream earlier, and saw no mark of this one when it put its own: it ends
  }

  private def fenced(by: Mark): Nothing = throw new CheckpointFailure(CheckpointFailure.Fenced,
    s"${by.writer} took over the stream of $root: it has made the folder anew since this run began, and this run stops and touches nothing; " +
      "stop the one of the two that you do not want")
}

object FolderMark {
  val Name = ".spark-ckpt-run"

  /** What the file holds. */
  private case class Mark(text: String) {
    private lazy val fields: Option[JsonNode] = Try(Json.parse(text)).toOption.filter(_.isObject)

    def id: Option[String] = fields.flatMap(_.optStr("mark"))

    /** One that says nothing of its claim is another release's, or damaged: in doubt the folder is somebody else's. */
    def isLaterThan(mine: Mark): Boolean = claim.forall(c => mine.claim.exists(c > _)) || (replaces.isDefined && replaces == mine.id)

    def writer: String = fields.map(_.get("application")).filter(a => a != null && a.isObject)
      .map(a => s"application ${a.optStr("id").mkString} (${a.optStr("name").mkString} of ${a.optStr("user").mkString})".filterNot(_.isControl))
      .getOrElse("another run")

    private def claim: Option[Long] = fields.map(_.get("claim")).filter(c => c != null && c.isIntegralNumber).map(_.asLong())
    private def replaces: Option[String] = fields.flatMap(_.optStr("replaces"))
  }

  private def read(target: Path): Option[Mark] =
    try Some(Mark(new String(Files.readAllBytes(target), UTF_8))) catch { case _: NoSuchFileException => None }

  private def write(target: Path, mark: Mark): Unit = {
    val temp = target.resolveSibling(s"$Name.${UUID.randomUUID()}.tmp")
    try {
      Files.write(temp, mark.text.getBytes(UTF_8))
      Files.move(temp, target, StandardCopyOption.ATOMIC_MOVE)
    } finally Files.deleteIfExists(temp)
  }
}
