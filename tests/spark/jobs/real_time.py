"""A query from Kafka to Kafka, or to files by `foreach`. An ordinary PySpark job that knows nothing of checkpoints.

usage: real_time.py SPEC

SPEC is a JSON document: `servers`, `source` and `sink` (topics), `location`, `trigger` ("realTime" or "processingTime"), `every` (its
duration) and `stop` (a file that ends the query). What ends it otherwise is said. `progress`: a file for a line of each progress.
`query`: one of `real_time_queries.py`, by default the running totals. `foreach`: a folder for what the query says, instead of the topic.
`batch`: a file for what a batch query over the topic gives once the query has been stopped.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from real_time_queries import QUERIES, writer
from saying import say


class Told(StreamingQueryListener):
    def __init__(self, file: Path) -> None:
        self._file = file

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nobody asks."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps(json.loads(event.progress.json)) + "\n")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nobody asks."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nobody asks."""


def records(read: DataFrame) -> DataFrame:
    number = F.col("value").cast("string").cast("long").alias("number")
    return read.select(F.col("key").cast("string").alias("key"), number, "timestamp")


def start(spark: SparkSession, spec: dict[str, Any]) -> StreamingQuery:
    kafka = {"kafka.bootstrap.servers": spec["servers"]}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=spec["source"], startingOffsets=spec.get("from", "earliest")).load()
    out = QUERIES[spec.get("query", "totals")](records(rows)).writeStream.outputMode("update")
    into = out.foreach(writer(spec["foreach"])) if "foreach" in spec else out.format("kafka").options(**kafka, topic=spec["sink"])
    timed = into.trigger(**{spec["trigger"]: spec["every"]})
    query: StreamingQuery = timed.option("checkpointLocation", spec["location"]).queryName("totals").start()
    return query


def write_batch(spark: SparkSession, spec: dict[str, Any]) -> None:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", spec["servers"]).option("subscribe", spec["source"]).load()
    made = QUERIES[spec.get("query", "totals")](records(rows)).collect()
    Path(spec["batch"]).write_text(json.dumps([[row.key, row.value] for row in made]))


def main() -> None:
    spec = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("real-time").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    say(f"UI {spark.sparkContext.uiWebUrl or ''}")
    spark.streams.addListener(Told(Path(spec["progress"])))
    query, stop = start(spark, spec), Path(spec["stop"])
    while query.isActive and not stop.exists():
        time.sleep(0.05)
    failed = False
    try:
        if stop.exists():
            query.stop()
        query.awaitTermination()
    except StreamingQueryException as e:
        failed = True
        say("FAILED " + json.dumps({"message": str(e)}))
    if not failed and "batch" in spec:
        write_batch(spark, spec)
    spark.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
