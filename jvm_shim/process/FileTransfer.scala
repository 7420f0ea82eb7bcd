package org.apache.spark.ckpt

import java.io.{ByteArrayOutputStream, File, FileInputStream, FileNotFoundException, IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import java.security.MessageDigest
import java.util.{Base64, UUID}
import java.util.zip.CRC32

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{ObjectNode, TextNode}

import org.apache.spark.ckpt.Json.Fields

/** One of the driver's files as the coordinator gave it, in a message or on the disk. */
sealed trait Content {
  def copyTo(out: OutputStream): Unit

  /** It has been put where it belongs, or is not needed. */
  def discard(): Unit

  def bytes: Array[Byte] = {
    val out = new ByteArrayOutputStream
    copyTo(out)
    out.toByteArray
  }
}

final case class InMessage(content: Array[Byte]) extends Content {
  override def copyTo(out: OutputStream): Unit = out.write(content)
  override def discard(): Unit = ()
}

final case class OnDisk(file: File, length: Long, checksum: Long) extends Content {
  override def copyTo(out: OutputStream): Unit = {
    val crc = new CRC32
    val buffer = new Array[Byte](1 << 16)
    var copied = 0L
    val in =
      try new FileInputStream(file)
      catch { case _: FileNotFoundException => throw damaged("is gone") }
    try {
      var read = in.read(buffer)
      while (read >= 0) {
        crc.update(buffer, 0, read)
        out.write(buffer, 0, read)
        copied += read
        read = in.read(buffer)
      }
    } finally in.close()
    if (copied != length || crc.getValue != checksum) throw damaged("is not what it has written")
  }

  override def discard(): Unit = file.delete()

  private def damaged(what: String) =
    new CheckpointFailure(CheckpointFailure.Internal, s"the file $file, which the coordinator has handed over, $what; start the query again")
}

/**
 * Files of the driver on their way to the coordinator and back. What is too large for a line of the pipe is a file in this folder, which is
 * the stream's own and readable for nobody else; whoever has taken it removes it, and what nobody has taken goes when the stream starts or stops.
 */
class FileTransfer(folder: File) {
  import FileTransfer._

  def path: String = folder.getPath

  /** For a message to the coordinator: the content, or where it is. `small`: whether the message has room for this one. */
  def send(content: Array[Byte], small: Boolean = true): JsonNode =
    if (small && content.length <= SmallBytes) TextNode.valueOf(Base64.getEncoder.encodeToString(content))
    else {
      make()
      val file = Files.createFile(new File(folder, UUID.randomUUID().toString).toPath, ForOwner).toFile
      Files.write(file.toPath, content)
      val crc = new CRC32
      crc.update(content)
      Json.obj("file" -> file.getPath, "length" -> content.length, "checksum" -> crc.getValue, "digest" -> digest(content))
    }

  /** The same for a later message too: the coordinator removes what it has taken of the first one. */
  def kept(handed: JsonNode): JsonNode =
    if (handed.isTextual) handed
    else {
      val copy = new File(folder, UUID.randomUUID().toString)
      val file = new File(handed.str("file")).toPath
      try Files.createLink(copy.toPath, file)
      catch { case _: IOException | _: UnsupportedOperationException => Files.copy(file, copy.toPath) }
      handed.deepCopy[ObjectNode]().put("file", copy.getPath)
    }

  /** A content in a message of the coordinator's. */
  def taken(node: JsonNode): Content =
    if (node.isTextual) InMessage(Base64.getDecoder.decode(node.asText()))
    else OnDisk(new File(node.str("file")), node.long("length"), node.long("checksum"))

  /** A message of the coordinator's with all its fields: those that were too long for a line are in a file. */
  def whole(message: JsonNode): JsonNode = Option(message.get("rest")).fold(message) { node =>
    val rest = taken(node)
    try {
      val fields = Json.parse(new String(rest.bytes, UTF_8)).properties()
      val all = message.deepCopy[ObjectNode]()
      fields.forEach(field => all.set[JsonNode](field.getKey, field.getValue))
      all
    } finally rest.discard()
  }

  /** The coordinator has taken what was handed to it. */
  def discard(handed: JsonNode): Unit = if (handed.isObject) new File(handed.str("file")).delete()

  /** Begins anew, empty. */
  def clear(): Unit = {
    remove()
    make()
  }

  def remove(): Unit = {
    Option(folder.listFiles()).foreach(_.foreach(_.delete()))
    folder.delete()
  }

  private def make(): Unit = Files.createDirectories(folder.toPath, FoldersForOwner)
}

object FileTransfer {
  private val SmallBytes = 64 << 10
  /** Bytes of all the files that one message may hold. */
  val Together: Int = 4 << 20
  private val Digits = 32
  private val ForOwner = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))
  private val FoldersForOwner = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))

  // Its first digits name the content in the storage: unlike a CRC it tells any two apart.
  private def digest(content: Array[Byte]): String =
    MessageDigest.getInstance("SHA-256").digest(content).iterator.map(b => f"${b & 0xff}%02x").mkString.take(Digits)
}
