"""The application that is killed; an ordinary PySpark job that knows nothing of checkpoints.

usage: job.py SPEC   (a JSON file: source, locations, out, progress, end, and for each stream its name, operator and sink)

Runs until a file END exists. Then the queries are stopped, started again in the same session as AvailableNow, and the application ends.
PROGRESS tells, for each stream, its newest batch and how many files of the input it has taken.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import operators
from collected import collected
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from campaign import queries

POLL_S, TRIGGER = 0.1, "200 milliseconds"


def skips(out: Path) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        place = out / f"part-{batch:06d}.json"
        if place.exists():
            return
        rows = [row[0] for row in collected(df.select(F.to_json(F.struct("*"))))]
        temp = out / f".{batch}-{uuid.uuid4()}"
        temp.write_text("".join(f"{row}\n" for row in rows))
        temp.rename(place)

    out.mkdir(parents=True, exist_ok=True)
    return each


def start(spark: SparkSession, spec: dict[str, Any], stream: dict[str, str], last: bool) -> StreamingQuery:
    query = queries.QUERIES[stream["operator"]]
    df = spark.readStream.schema(operators.SCHEMA).option("maxFilesPerTrigger", 1).json(spec["source"])
    to = query.stream(df).writeStream.outputMode(query.mode).queryName(stream["name"])
    to = to.option("checkpointLocation", f"{spec['locations']}/{stream['name']}")
    to = to.trigger(availableNow=True) if last else to.trigger(processingTime=TRIGGER)
    out = f"{spec['out']}/{stream['name']}"
    if stream["sink"] == "file":
        return to.format("json").start(out)
    return to.foreachBatch(skips(Path(out))).start()


def tell(spec: dict[str, Any], running: dict[str, StreamingQuery], told: dict[str, Any]) -> None:
    before = json.dumps(told)
    for name, query in running.items():
        progress = query.lastProgress
        if progress is not None:
            end = progress["sources"][0]["endOffset"] if progress["sources"] else None
            offset = json.loads(end) if isinstance(end, str) else end
            told[name] = {"batch": progress["batchId"], "files": offset["logOffset"] + 1 if offset else 0}
    if json.dumps(told) != before:
        temp = spec["progress"] + ".tmp"
        with open(temp, "w") as f:
            json.dump(told, f)
        os.replace(temp, spec["progress"])


def watch(spec: dict[str, Any], running: dict[str, StreamingQuery], until: Callable[[], bool]) -> None:
    """Raises what ended a query."""
    told: dict[str, Any] = {}
    while not until():
        for query in running.values():
            if (error := query.exception()) is not None:
                raise error
        tell(spec, running, told)
        time.sleep(POLL_S)


Spec = dict[str, Any]
Starter = Callable[[SparkSession, Spec, dict[str, str], bool], StreamingQuery]


def live(spark: SparkSession, spec: Spec, start: Starter) -> None:
    """All streams, until there is nothing more to do. Raises what ended a query."""

    def begun(last: bool) -> dict[str, StreamingQuery]:
        return {stream["name"]: start(spark, spec, stream, last) for stream in spec["streams"]}

    if not os.path.exists(spec["end"]):
        running = begun(last=False)
        watch(spec, running, lambda: os.path.exists(spec["end"]))
        for query in running.values():
            query.stop()
    running = begun(last=True)
    watch(spec, running, lambda: not any(query.isActive for query in running.values()))
    for query in running.values():
        query.awaitTermination()


def main() -> None:
    with open(sys.argv[1]) as f:
        spec = json.load(f)
    for module in (operators, queries):  # executors' Pythons have neither
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spark = SparkSession.builder.appName("campaign").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    live(spark, spec, start)
    spark.stop()


if __name__ == "__main__":
    main()
