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
 * A run ends when it finds another one's mark. But that one may only have come late: (1) A claims the stream, and is suspended or busy; (2) B
 * claims it, and puts its mark; (3) A goes on, finds a mark that was not there when it looked, of a later claim, and ends. Where the claims
 * are not of one storage, whoever comes second ends. If A is suspended between the last look of `put` and its rename, it replaces B's mark:
 * hence marks have numbers, each one more than that of the mark that was there, and B puts its own again where it finds a lower one, or its
 * own number with an earlier claim. Claims alone would not tell: in a storage that was emptied they begin anew. Nor would numbers: in a folder
 * that was emptied they do, and get another `line`.
 */
final class FolderMark(root: String) {
  import FolderMark._

  private val file: Option[Path] = {
    val uri = new HadoopPath(root).toUri
    Option.when(Option(uri.getScheme).forall(_.equalsIgnoreCase("file")))(new File(uri.getPath, Name).toPath)
  }
  private var before: Option[Mark] = None
  private var own: Option[Mark] = None

  /**
   * Before the stream is claimed: whose folders are these? Throws if another run has made them since this one did, which goes back in place:
   * the stream's log does not tell where that run has another storage.
   */
  def look(): Unit = synchronized {
    check()
    before = file.flatMap(read)
  }

  /** A run has claimed the stream in this storage, by the claim of that number, and is about to make the folders. Throws if it comes late. */
  def put(storage: String, claim: Long, application: JsonNode): Unit = for (target <- file) synchronized {
    val found = read(target)
    def anew = UUID.randomUUID().toString
    val mark = Mark(Json.line(Json.obj("mark" -> anew, "line" -> found.flatMap(_.line).getOrElse(anew),
      "number" -> (found.flatMap(_.number).getOrElse(0L) + 1L), "storage" -> storage, "claim" -> claim, "application" -> application)))
    found.filterNot(before.contains).filterNot(mark.isClaimedAfter).foreach(fenced)
    Files.createDirectories(target.getParent)
    write(target, mark)
    own = Some(mark)
  }

  /** Throws if another run has made the folders since. A folder without a mark is whoever's it was. */
  def check(): Unit = for (target <- file) synchronized {
    for (mine <- own; found <- read(target) if found != mine) if (found.cameLateFor(mine)) write(target, mine) else fenced(found)
  }

  private def fenced(by: Mark): Nothing = throw new CheckpointFailure(CheckpointFailure.Fenced,
    s"${by.writer} took over the stream of $root: it has made the folder anew since this run began, and this run stops and touches nothing; " +
      "stop the one of the two that you do not want")
}

object FolderMark {
  val Name = ".spark-ckpt-run"

  /** What the file holds. In doubt, where it is damaged or another release's, it is that of another run which has taken over. */
  private case class Mark(text: String) {
    private lazy val fields: Option[JsonNode] = Try(Json.parse(text)).toOption.filter(_.isObject)

    def number: Option[Long] = long("number")

    def line: Option[String] = fields.flatMap(_.optStr("line"))

    def isClaimedAfter(other: Mark): Boolean =
      storage.isDefined && storage == other.storage && claim.exists(mine => other.claim.exists(mine > _))

    /** Its run saw no mark of `later`'s when it put its own. Of two with the same number one came late. */
    def cameLateFor(later: Mark): Boolean = line.isDefined && line == later.line && number.exists(mine => later.number.exists { theirs =>
      mine < theirs || (mine == theirs && (later.isClaimedAfter(this) || (!isClaimedAfter(later) && text < later.text)))
    })

    def writer: String = fields.map(_.get("application")).filter(a => a != null && a.isObject)
      .map(a => s"application ${a.optStr("id").mkString} (${a.optStr("name").mkString} of ${a.optStr("user").mkString})".filterNot(_.isControl))
      .getOrElse("another run")

    private def claim: Option[Long] = long("claim")
    private def storage: Option[String] = fields.flatMap(_.optStr("storage"))
    private def long(name: String): Option[Long] = fields.map(_.get(name)).filter(v => v != null && v.isIntegralNumber).map(_.asLong())
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
