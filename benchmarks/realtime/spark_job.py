"""`python -m benchmarks.realtime.spark_job SPEC`: the query on Spark. End of stdin ends it.

SPEC is a JSON document: `conf`, `servers`, `source`, `sink`, `location`, `batch_ms`, and `progress`: the file for what Spark tells of its
newest batches.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(spec: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder
    for key, value in spec["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": spec["servers"]}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=spec["source"], startingOffsets="earliest").load()
    read = rows.select(F.col("key").cast("string").alias("key"), F.col("value").cast("string").cast("long").alias("sent"))
    totals = read.groupBy("key").agg(F.max("sent").alias("most"), F.count(F.lit(1)).alias("n"))
    said = totals.select("key", F.to_json(F.struct("n", "most")).alias("value"))
    writer = said.writeStream.format("kafka").options(**kafka, topic=spec["sink"]).outputMode("update")
    every: dict[str, Any] = {"realTime": f"{spec['batch_ms']} milliseconds"}
    timed = writer.trigger(**every)
    query = timed.option("checkpointLocation", spec["location"]).queryName("totals").start()
    sys.stdin.read()
    if not query.isActive:
        print(query.exception(), file=sys.stderr)
        sys.exit(1)
    query.stop()
    Path(spec["progress"]).write_text(f"[{','.join(one.json for one in query.recentProgress)}]", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
