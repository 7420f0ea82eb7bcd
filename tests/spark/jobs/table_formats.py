"""Rows of a folder of JSON files, each id once, into a table of Delta or Iceberg; in the end all ids of that table, as JSON, into IDS.

usage: table_formats.py delta|iceberg INPUT CHECKPOINT TABLE IDS   (AvailableNow, one file an epoch; TABLE: a path, or a name in a catalog)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SCHEMA = "id long, key string, value long"


def main() -> None:
    kind, source, checkpoint, table, ids = sys.argv[1:]
    spark = SparkSession.builder.appName(kind).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
    to = events.dropDuplicates(["id"]).writeStream.format(kind).outputMode("append").trigger(availableNow=True)
    to = to.option("checkpointLocation", checkpoint)
    if kind == "iceberg":
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, key string, value bigint) USING iceberg")
        query = to.toTable(table)
    else:
        query = to.start(table)
    query.awaitTermination()
    held = spark.table(table) if kind == "iceberg" else spark.read.format(kind).load(table)
    Path(ids).write_text(json.dumps([row["id"] for row in held.select("id").collect()]))
    spark.stop()


if __name__ == "__main__":
    main()
