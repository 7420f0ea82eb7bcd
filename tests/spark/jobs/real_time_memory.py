"""Counts words in real time, from Spark's own source in memory to files by `foreach`: nothing but Spark is needed. The source lives as long
as the session; the query is started as often as it is told.

usage: real_time_memory.py SPEC

SPEC is a JSON document: `location`, `out` (a folder, which gets one for each start), and `told`: a folder in which files 0.json, 1.json, …
appear, each a list of words to read, "start", "stop" or "end". When it is done, it is 0.done.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from real_time_queries import writer

PARTITIONS = 2
EVERY: dict[str, Any] = {"realTime": "1 second"}
"""PySpark's own types do not have it."""


def main() -> None:
    spec = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("in memory").getOrCreate()
    jvm: Any = spark._jvm
    sources = jvm.org.apache.spark.sql.execution.streaming.sources
    words = sources.LowLatencyMemoryStream.apply(spark._jsparkSession, PARTITIONS, jvm.org.apache.spark.sql.Encoders.STRING())
    counts = DataFrame(words.toDF(), spark).groupBy(F.col("value").alias("key")).agg(F.count("*").cast("string").alias("value"))
    query: StreamingQuery | None = None
    number, starts, last = 0, 0, None
    while last != "end":
        file = Path(spec["told"], f"{number}.json")
        if not file.exists():
            assert query is None or query.isActive, query.exception()
            time.sleep(0.02)
            continue
        last = json.loads(file.read_text())
        number += 1
        if last == "start":
            out = Path(spec["out"], str(starts))
            out.mkdir()
            starts += 1
            timed = counts.writeStream.outputMode("update").foreach(writer(str(out))).trigger(**EVERY)
            query = timed.option("checkpointLocation", spec["location"]).start()
        elif isinstance(last, list):
            words.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(last).toSeq())
        elif query is not None:
            query.stop()
            query = None
        file.rename(file.with_suffix(".done"))
    spark.stop()


if __name__ == "__main__":
    main()
