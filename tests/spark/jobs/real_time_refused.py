"""Queries that Spark does not take in real time, one after the other in one session. Each says why it ended.

usage: real_time_refused.py SPEC

SPEC is a JSON document: `servers`, `source` (a topic) and `locations` (a folder).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from real_time import records
from real_time_queries import QUERIES
from saying import say

PATIENCE_S = 60
EVERY: dict[str, Any] = {"realTime": "2 seconds"}
"""PySpark's own types do not have it."""


def console(query: str) -> Callable[[DataFrame], DataStreamWriter]:
    return lambda read: QUERIES[query](read).writeStream.outputMode("update").format("console").trigger(**EVERY)


def for_each_batch(read: DataFrame) -> DataStreamWriter:
    def write(rows: DataFrame, batch: int) -> None:
        raise AssertionError("Spark takes it")

    return QUERIES["totals"](read).writeStream.outputMode("update").foreachBatch(write).trigger(**EVERY)


def complete(read: DataFrame) -> DataStreamWriter:
    return QUERIES["totals"](read).writeStream.outputMode("complete").format("console").trigger(**EVERY)


def short(read: DataFrame) -> DataStreamWriter:
    every: dict[str, Any] = {"realTime": "900 milliseconds"}
    return QUERIES["totals"](read).writeStream.outputMode("update").format("console").trigger(**every)


REFUSED: dict[str, Callable[[DataFrame], DataStreamWriter]] = {
    "unique within watermark": console("unique within watermark"),
    "transformed": console("transformed"),
    "foreachBatch": for_each_batch,
    "complete": complete,
    "short": short,
}


def why(writer: DataStreamWriter) -> str:
    """Raises TimeoutError where it goes on."""
    try:
        query = writer.start()
        if not query.awaitTermination(PATIENCE_S):
            raise TimeoutError("Spark takes it")
    except PySparkException as error:
        return str(error)
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    raise TimeoutError("it has ended without an error")


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("refused").getOrCreate()
    for name, query in REFUSED.items():
        kafka = {"kafka.bootstrap.servers": spec["servers"], "subscribe": spec["source"], "startingOffsets": "earliest"}
        writer = query(records(spark.readStream.format("kafka").options(**kafka).load()))
        said = why(writer.option("checkpointLocation", f"{spec['locations']}/{name.replace(' ', '-')}"))
        say("REFUSED " + json.dumps({"query": name, "why": said}))
    spark.stop()


if __name__ == "__main__":
    main()
