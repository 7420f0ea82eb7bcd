"""What queries in real time make of a topic's records, each a `key` and a `value`. The same functions over all of the topic are the batch
queries that the tests compare with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

WEIGHTS = {f"k{n}": n for n in range(1, 6)}
"""The static side of the join: not of all keys."""


def _said(totals: DataFrame) -> DataFrame:
    return totals.select("key", F.to_json(F.struct("n", "most", "total")).alias("value"))


def totals(read: DataFrame) -> DataFrame:
    """Of each key its count, maximum and sum."""
    return _said(read.groupBy("key").agg(F.max("number").alias("most"), F.count(F.lit(1)).alias("n"), F.sum("number").alias("total")))


def stateless(read: DataFrame) -> DataFrame:
    return read.select("key", F.col("number").cast("string").alias("value"))


def _thirds(read: DataFrame) -> DataFrame:
    """Three records have the same, wherever they are."""
    return read.select(F.floor(F.col("number") / 3).alias("id"), "timestamp")


def unique(read: DataFrame) -> DataFrame:
    once = _thirds(read).select("id").dropDuplicates(["id"]).select(F.col("id").cast("string").alias("key"))
    return once.select("key", F.lit("1").alias("value"))


def unique_within_watermark(read: DataFrame) -> DataFrame:
    once = _thirds(read).withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["id"])
    return once.select(F.col("id").cast("string").alias("key"), F.lit("1").alias("value"))


def joined(read: DataFrame) -> DataFrame:
    """The totals of numbers that a table has a weight for."""
    weights = read.sparkSession.createDataFrame(list(WEIGHTS.items()), "key string, weight long")
    return totals(read.join(F.broadcast(weights), "key").select("key", (F.col("number") * F.col("weight")).alias("number")))


def transformed(read: DataFrame) -> DataFrame:
    """The totals by transformWithState, in Python."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
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

    return read.groupBy("key").transformWithState(Totals(), "key string, value string", "Update", "None").select("key", "value")


def transformed_in_scala(read: DataFrame) -> DataFrame:
    """The same in Scala (`RealTimeTotals.scala`), whose JAR the application has."""
    spark = read.sparkSession
    made = spark._jvm.realtime.Totals.of(read.select("key", "number")._jdf)  # type: ignore[union-attr]
    return DataFrame(made, spark)


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "totals": totals,
    "stateless": stateless,
    "unique": unique,
    "unique within watermark": unique_within_watermark,
    "joined": joined,
    "transformed": transformed,
    "transformed in Scala": transformed_in_scala,
}


def writer(folder: str) -> Any:
    """For `foreach`: a file for each epoch and partition, with a line for each row at once. Spark opens it in its executors' Python."""

    class Writer:
        def open(self, partition: int, epoch: int) -> bool:
            self._file = Path(folder, f"{epoch}-{partition}.jsonl")
            self._file.touch()
            return True

        def process(self, row: Row) -> None:
            with self._file.open("a") as out:
                out.write(json.dumps([row.key, row.value]) + "\n")

    return Writer()
