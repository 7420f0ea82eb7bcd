package org.apache.spark.ckpt

import com.fasterxml.jackson.core.{JsonFactoryBuilder, StreamReadConstraints}
import com.fasterxml.jackson.core.json.JsonWriteFeature
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode

/** One JSON object a line is all that is said between the JVM and its Python processes (docs/pipes.md). */
object Json {
  /** Bytes of a line, as in Python (`process/pipe.py`); none of its strings is longer, so that no other limit counts. */
  val MaxLine: Int = 32 << 20

  // Of ASCII alone, so that a character is a byte.
  private val mapper = new ObjectMapper(new JsonFactoryBuilder()
    .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(MaxLine).build())
    .enable(JsonWriteFeature.ESCAPE_NON_ASCII)
    .build())

  def obj(fields: (String, Any)*): ObjectNode = {
    val node = mapper.createObjectNode()
    fields.foreach { case (name, value) => put(node, name, value) }
    node
  }

  def put(node: ObjectNode, name: String, value: Any): Unit = value match {
    case null | None => node.putNull(name)
    case Some(inner) => put(node, name, inner)
    case v: String => node.put(name, v)
    case v: Boolean => node.put(name, v)
    case v: Int => node.put(name, v)
    case v: Long => node.put(name, v)
    case v: Double => node.put(name, v)
    case v: JsonNode => node.set[JsonNode](name, v)
    case v: scala.collection.Map[_, _] =>
      val child = node.putObject(name)
      v.foreach { case (k, x) => put(child, k.toString, x) }
    case v: Iterable[_] =>
      val child = node.putArray(name)
      v.foreach {
        case s: String => child.add(s)
        case n: JsonNode => child.add(n)
        case x => throw new IllegalArgumentException(s"not a JSON element: $x")
      }
    case other => throw new IllegalArgumentException(s"not a JSON value: $other")
  }

  def parse(text: String): JsonNode = mapper.readTree(text)

  def line(node: JsonNode): String = mapper.writeValueAsString(node)

  implicit class Fields(val node: JsonNode) extends AnyVal {
    def str(name: String): String = node.get(name).asText()
    def optStr(name: String): Option[String] = Option(node.get(name)).filterNot(_.isNull).map(_.asText())
    def long(name: String): Long = node.get(name).asLong()
    def optLong(name: String): Option[Long] = Option(node.get(name)).filterNot(_.isNull).map(_.asLong())
  }
}
