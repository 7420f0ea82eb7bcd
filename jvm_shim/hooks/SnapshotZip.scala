package org.apache.spark.sql.execution.streaming.state.ckpt

import java.io.{BufferedInputStream, ByteArrayOutputStream, File, FileInputStream, InputStream, IOException, OutputStream}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.ZipInputStream

import scala.collection.mutable

import com.fasterxml.jackson.core.{JsonFactoryBuilder, JsonParser, JsonToken, StreamReadFeature}

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
  private val MaxMetadata = 16 << 20
  private val MaxSsts = 100000

  private val Metadata = "metadata"
  private val PlainName = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}".r
  private val SstName = "[A-Za-z0-9][A-Za-z0-9._-]{0,250}\\.sst".r
  // A name that is there twice could mean one thing here and another one to Spark.
  private val strict = new JsonFactoryBuilder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build()
  private val Named = Map("sstFiles" -> Set("localFileName", "dfsSstFileName"), "logFiles" -> Set("localFileName", "dfsLogFileName"))

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
        if (name == Metadata) {
          var ssts = 0
          def another(): Unit = {
            ssts += 1
            if (ssts > MaxSsts) refuse(s"names more than $MaxSsts SSTs")
          }
          // Malformed bytes are an error here; a String made of them would be of other characters than those that Python refuses.
          files(UTF_8.newDecoder().decode(ByteBuffer.wrap(content.toByteArray)).toString, another) { file =>
            if (!SstName.matches(file)) refuse(s"names the file '$file', which is no SST or would leave its folder")
          }
        }
      }
      if (!names(Metadata)) refuse("names no files")
    } catch {
      case e: IOException => refuse(s"cannot be read (${e.getMessage})")
      case e: IllegalArgumentException => refuse(s"cannot be read (${e.getMessage})") // names that are not UTF-8
    } finally in.close()
  }

  /**
   * Each name of a file in `metadata`, after `another` for each element of a list: a line with its version, then one JSON document (Spark: RocksDBCheckpointMetadata). It is read as it
   * comes: a tree of what somebody has made of many small nodes would take a hundred times its bytes.
   */
  private def files(metadata: String, another: () => Unit)(found: String => Unit): Unit = {
    // Spark reads that line with a BufferedReader, to which a carriage return alone is an end too.
    val version = metadata.takeWhile(c => c != '\n' && c != '\r')
    if (!metadata.startsWith(version + "\n")) throw new IllegalArgumentException("its first line does not end with a line feed")
    val parser = strict.createParser(metadata.substring(version.length + 1))
    try {
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new IllegalArgumentException("it is no JSON document of a snapshot")
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val fields = Named.get(parser.currentName())
        val value = parser.nextToken()
        if (fields.isEmpty || value != JsonToken.START_ARRAY) parser.skipChildren()
        else while (parser.nextToken() != JsonToken.END_ARRAY) {
          another()
          entry(parser, fields.get, found)
        }
      }
    } finally parser.close()
  }

  /** One element of a list: each of the fields has to name a file. */
  private def entry(parser: JsonParser, fields: Set[String], found: String => Unit): Unit = {
    val left = mutable.Set.from(fields)
    if (parser.currentToken() != JsonToken.START_OBJECT) parser.skipChildren()
    else while (parser.nextToken() == JsonToken.FIELD_NAME) {
      val name = parser.currentName()
      val value = parser.nextToken()
      if (left.remove(name) && value == JsonToken.VALUE_STRING) found(parser.getText)
      else if (fields(name)) found("")
      else parser.skipChildren()
    }
    left.foreach(_ => found(""))
  }

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
