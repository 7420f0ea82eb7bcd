"""The application whose sinks are looked at; an ordinary PySpark job that knows nothing of checkpoints.

usage: application.py SPEC   (a JSON file: source, locations, out, progress, end, servers, and for each stream its name and sink)

As campaign/job.py: it runs until a file END exists, then all over again as AvailableNow. Every stream drops duplicates; what differs is
where its rows go. On the way to Kafka each row takes its time, so that something can be killed between two rows of an epoch.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import operators
from collected import collected
from kafka_numbered import numbered
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from campaign.job import TRIGGER, live, skips
from campaign.queries import QUERIES
from campaign.sinks.dimensions import SinkKind

OPERATOR, KEY = "unique", "id"
PARTITIONS = 3
"""Of a topic."""
ROW_MS = 20


def appends(out: Path) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        rows = [row[0] for row in collected(df.select(F.to_json(F.struct("*"))))]
        temp = out / f".{uuid.uuid4()}"
        temp.write_text("".join(f"{row}\n" for row in rows))
        temp.rename(out / f"part-{batch:06d}-{uuid.uuid4()}.json")

    out.mkdir(parents=True, exist_ok=True)
    return each


def slowly(value: Column) -> Column:
    """The same value, after ROW_MS."""
    return F.concat(value, F.expr(f"substring(java_method('java.lang.Thread', 'sleep', {ROW_MS}L), 1, 0)"))


def sends(options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    def each(df: DataFrame, batch: int) -> None:
        records = numbered(df, KEY, batch, PARTITIONS).withColumn("value", slowly(F.col("value")))
        records.write.format("kafka").options(**options).save()

    return each


def start(spark: SparkSession, spec: dict[str, Any], stream: dict[str, str], last: bool) -> StreamingQuery:
    query, name, sink = QUERIES[OPERATOR], stream["name"], SinkKind(stream["sink"])
    df = query.stream(spark.readStream.schema(operators.SCHEMA).option("maxFilesPerTrigger", 1).json(spec["source"]))
    if sink is SinkKind.KAFKA:
        df = df.select(F.col(KEY).cast("string").alias("key"), slowly(F.to_json(F.struct("*"))).alias("value"))
    to = df.writeStream.outputMode(query.mode).queryName(name).option("checkpointLocation", f"{spec['locations']}/{name}")
    to = to.trigger(availableNow=True) if last else to.trigger(processingTime=TRIGGER)
    out, topic = f"{spec['out']}/{name}", {"kafka.bootstrap.servers": spec["servers"], "topic": name}
    if sink is SinkKind.FILE:
        return to.format("json").start(out)
    if sink is SinkKind.KAFKA:
        return to.format("kafka").options(**topic).start()
    if sink is SinkKind.NUMBERED:
        return to.foreachBatch(sends(topic)).start()
    return to.foreachBatch((skips if sink is SinkKind.SKIPS else appends)(Path(out))).start()


def main() -> None:
    with open(sys.argv[1]) as f:
        spec = json.load(f)
    spark = SparkSession.builder.appName("sinks").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    live(spark, spec, start)
    spark.stop()


if __name__ == "__main__":
    main()
