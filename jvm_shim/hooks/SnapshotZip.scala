package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.{BufferedInputStream, ByteArrayOutputStream, File, FileInputStream, InputStream, IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.ZipInputStream

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.StreamReadFeature
import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.json.JsonMapper

import org.apache.spark.ckpt.CheckpointFailure

/**
 * A full snapshot's zip, looked at before Spark unpacks it. It comes out of the storage, and its `metadata` names the files that Spark
 * brings beside what it unpacks: a forged one would name places elsewhere. It is read as Spark reads it, member by member; what the zip's
 * own directory says is of no interest. The same rules as in spark_ckpt/stored/state/archive.py.
 */
object SnapshotZip {
  val MaxMembers = 10000
  /** Bytes of all members together: SSTs are not among them. */
  val MaxBytes: Long = 1L << 30
  private val MaxMetadata = 64 << 20

  private val Metadata = "metadata"
  private val PlainName = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}".r
  private val SstName = "[A-Za-z0-9][A-Za-z0-9._-]{0,250}\\.sst".r
  // A name that is there twice could mean one thing here and another one to Spark.
  private val strict = JsonMapper.builder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build()

  /** Throws a CheckpointFailure of kind DAMAGED, and does nothing else. */
  def check(zip: File): Unit = {
    def refuse(why: String) = throw new CheckpointFailure(CheckpointFailure.Damaged, s"the snapshot $zip $why; it is damaged or forged")
    val in = new ZipInputStream(new BufferedInputStream(new FileInputStream(zip))) // one that is not there is Spark's to tell
    try {
      val names = mutable.Set.empty[String]
      var left = MaxBytes
      Iterator.continually(in.getNextEntry).takeWhile(_ != null).foreach { member =>
        val name = member.getName
        if (!PlainName.matches(name) || !names.add(name)) refuse(s"holds the member '$name', which leaves its folder or hides another one")
        if (names.size > MaxMembers) refuse(s"has more than $MaxMembers members")
        val content = new ByteArrayOutputStream()
        val most = if (name == Metadata) math.min(left, MaxMetadata.toLong) else left
        val read = copy(in, if (name == Metadata) content else OutputStream.nullOutputStream(), most)
        if (read > most) refuse(s"would unpack to more than any snapshot holds ($MaxBytes bytes, $MaxMetadata of file names)")
        left -= read
        if (name == Metadata) files(content.toString(UTF_8)).filterNot(SstName.matches).foreach(file =>
          refuse(s"names the file '$file', which is no SST or would leave its folder"))
      }
      if (!names(Metadata)) refuse("names no files")
    } catch {
      case e: IOException => refuse(s"cannot be read (${e.getMessage})")
      case e: IllegalArgumentException => refuse(s"cannot be read (${e.getMessage})") // names that are not UTF-8
    } finally in.close()
  }

  /** The names of files in `metadata`: a line with its version, then one JSON document (Spark: RocksDBCheckpointMetadata). */
  private def files(metadata: String): Seq[String] = {
    // Spark reads that line with a BufferedReader, to which a carriage return alone is an end too.
    val version = metadata.takeWhile(c => c != '\n' && c != '\r')
    if (!metadata.startsWith(version + "\n")) throw new IllegalArgumentException("its first line does not end with a line feed")
    val document = strict.readTree(metadata.substring(version.length + 1))
    def all(list: String, names: String*): Seq[String] =
      Option(document.get(list)).toSeq.flatMap(_.elements().asScala).flatMap(file => names.map(name => text(file.get(name))))
    all("sstFiles", "localFileName", "dfsSstFileName") ++ all("logFiles", "localFileName", "dfsLogFileName")
  }

  private def text(node: JsonNode): String = if (node != null && node.isTextual) node.asText() else ""

  /** At most one byte more than `most`; how many there were. */
  private def copy(in: InputStream, out: OutputStream, most: Long): Long = {
    val buffer = new Array[Byte](1 << 16)
    var total = 0L
    var read = 0
    while (total <= most && read >= 0) {
      read = in.read(buffer)
      if (read > 0) {
        total += read
        if (total <= most) out.write(buffer, 0, read)
      }
    }
    total
  }
}
