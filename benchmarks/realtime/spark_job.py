"""`python -m benchmarks.realtime.spark_job SPEC`: the query on Spark, twice: first to warm up, and after a line on stdin to be measured.
End of stdin ends it.

SPEC is a JSON document: `conf`, `servers`, `locations`, `queries`: of both, `source`, `sink` and `batch_ms`; and `progress`: the file for
what Spark tells of the newest batches of the second one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def _started(spark: SparkSession, servers: str, name: str, location: str, spec: dict[str, Any]) -> StreamingQuery:
    from pyspark.sql import functions as F

    kafka = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=spec["source"], startingOffsets="earliest").load()
    read = rows.select(F.col("key").cast("string").alias("key"), F.col("value").cast("string").cast("long").alias("sent"))
    totals = read.groupBy("key").agg(F.max("sent").alias("most"), F.count(F.lit(1)).alias("n"))
    said = totals.select("key", F.to_json(F.struct("n", "most")).alias("value"))
    writer = said.writeStream.format("kafka").options(**kafka, topic=spec["sink"]).outputMode("update")
    every: dict[str, Any] = {"realTime": f"{spec['batch_ms']} milliseconds"}
    return writer.trigger(**every).option("checkpointLocation", location).queryName(name).start()


def _stop(query: StreamingQuery) -> None:
    if not query.isActive:
        print(query.exception(), file=sys.stderr)
        sys.exit(1)
    query.stop()


def main(spec: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in spec["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    warm, measured = spec["queries"]
    query = _started(spark, spec["servers"], "warm", f"{spec['locations']}/warm", warm)
    if sys.stdin.readline():
        _stop(query)
        query = _started(spark, spec["servers"], "totals", f"{spec['locations']}/totals", measured)
        sys.stdin.read()
    _stop(query)
    Path(spec["progress"]).write_text(f"[{','.join(one.json for one in query.recentProgress)}]", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
