package away

import java.io.IOException
import java.nio.file.{Files, Path}

import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.StructType

/** Files of JSON, of a source that cannot be made the first time: the file `been` says that this has happened. */
class Once extends StreamSourceProvider {
  override def sourceSchema(
      context: SQLContext, schema: Option[StructType], name: String, options: Map[String, String]): (String, StructType) =
    ("once", schema.get)

  override def createSource(
      context: SQLContext, metadata: String, schema: Option[StructType], name: String, options: Map[String, String]): Source = {
    val been = Path.of(options("been"))
    if (!Files.exists(been)) {
      Files.createFile(been)
      throw new IOException("the catalog is away for a moment")
    }
    DataSource(context.sparkSession, "json", userSpecifiedSchema = schema, options = options - "been")
      .createSource(metadata)
  }
}
