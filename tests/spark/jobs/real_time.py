"""A running total for each key, from Kafka to Kafka: for each record one with the key's count, maximum and sum. An ordinary PySpark job
that knows nothing of checkpoints.

usage: real_time.py SPEC

SPEC is a JSON document: `servers`, `source` and `sink` (topics), `location`, `trigger` ("realTime" or "processingTime"), `every` (its
duration) and `stop` (a file that ends the query). What ends it otherwise is said. `progress`: a file to which each progress is written.
`transforms`: the totals by transformWithState; `stateless`: no totals.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from saying import say


class Totals(StatefulProcessor):
    """The same, by hand."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getValueState("totals", "n long, most long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            n, most, total = self._totals.get() or (0, row.number, 0)
            made = (n + 1, max(most, row.number), total + row.number)
            self._totals.update(made)
            value = json.dumps(dict(zip(("n", "most", "total"), made, strict=True)))
            yield Row(key=key[0], value=value)

    def close(self) -> None:
        """Nothing is open."""


def start(spark: SparkSession, spec: dict[str, Any]) -> StreamingQuery:
    kafka = {"kafka.bootstrap.servers": spec["servers"]}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe=spec["source"], startingOffsets=spec.get("from", "earliest")).load()
    number = F.col("value").cast("string").cast("long").alias("number")
    read = rows.select(F.col("key").cast("string").alias("key"), number)
    if spec.get("stateless"):
        said = read.select("key", F.col("number").cast("string").alias("value"))
    elif spec.get("transforms"):
        counted = read.groupBy("key").transformWithState(Totals(), "key string, value string", "Update", "None")
        said = counted.select("key", "value")
    else:
        totals = read.groupBy("key").agg(F.max("number").alias("most"), F.count(F.lit(1)).alias("n"), F.sum("number").alias("total"))
        said = totals.select("key", F.to_json(F.struct("n", "most", "total")).alias("value"))
    writer = said.writeStream.format("kafka").options(**kafka, topic=spec["sink"]).outputMode("update")
    timed = writer.trigger(**{spec["trigger"]: spec["every"]})
    query: StreamingQuery = timed.option("checkpointLocation", spec["location"]).queryName("totals").start()
    return query


def main() -> None:
    spec = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("real-time").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    say(f"UI {spark.sparkContext.uiWebUrl or ''}")
    query = start(spark, spec)
    stop, seen = Path(spec["stop"]), -1
    with Path(spec["progress"]).open("a") as progress:
        while query.isActive and not stop.exists():
            last = query.lastProgress
            if last is not None and last["batchId"] != seen:
                seen = last["batchId"]
                progress.write(json.dumps(last.jsonValue if hasattr(last, "jsonValue") else json.loads(last.json)) + "\n")
                progress.flush()
            time.sleep(0.05)
    failed = False
    try:
        if stop.exists():
            query.stop()
        query.awaitTermination()
    except StreamingQueryException as e:
        failed = True
        say("FAILED " + json.dumps({"message": str(e)}))
    spark.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
