"""The flights of 2013 through a deduplication and a windowed aggregation into the file sink; an ordinary job, told in its arguments where.

usage: flights_stream.py run INPUT CHECKPOINT OUTPUT SEEN   (AvailableNow, one file an epoch; SEEN: a line of JSON for each epoch done)
       flights_stream.py compare INPUT OUTPUT               (prints a line of JSON: rows expected, found, missing and in excess)
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime

from flights_check import BATCH_QUERY
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

SCHEMA = "time TIMESTAMP, carrier STRING, flight INT, origin STRING, dep_delay INT, arr_delay INT"
COLUMNS = ("carrier", "origin", "flights", "departed", "dep_delay", "worst_arr_delay")


class Seen(StreamingQueryListener):
    """What a user's own listener would see: when the query started, and each epoch."""

    def __init__(self, path: str) -> None:
        self._path = path

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._tell({"started": time.time()})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        p = event.progress
        began = datetime.fromisoformat(p.timestamp.replace("Z", "+00:00")).timestamp()
        self._tell({"epoch": p.batchId, "began": began, "millis": p.batchDuration, "rows": p.numInputRows})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        return

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        return

    def _tell(self, line: dict[str, object]) -> None:
        with open(self._path, "a") as f:
            f.write(json.dumps(line) + "\n")


def run(spark: SparkSession, source: str, checkpoint: str, out: str, seen: str) -> None:
    spark.streams.addListener(Seen(seen))
    flights = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
    once = flights.withWatermark("time", "1 day").dropDuplicatesWithinWatermark(["carrier", "flight", "origin", "time"])
    windows = once.groupBy(F.window("time", "6 hours"), "carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("dep_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )
    result = windows.select(F.col("window.start").alias("start"), *COLUMNS)
    to = result.writeStream.outputMode("append").format("json").option("checkpointLocation", checkpoint)
    to.trigger(availableNow=True).start(out).awaitTermination()


def compare(spark: SparkSession, source: str, out: str) -> None:
    spark.read.parquet(source).createOrReplaceTempView("flights")
    expected = spark.sql(BATCH_QUERY).cache()
    found = spark.read.schema(expected.schema).json(out).cache()  # goes by the file sink's own log
    counts = {"expected": expected.count(), "found": found.count()}
    print(json.dumps({**counts, "missing": expected.exceptAll(found).count(), "excess": found.exceptAll(expected).count()}))


def main() -> None:
    what, *paths = sys.argv[1:]
    spark = SparkSession.builder.appName("flights").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    if what == "run":
        run(spark, *paths)
    else:
        compare(spark, *paths)
    spark.stop()


if __name__ == "__main__":
    main()
