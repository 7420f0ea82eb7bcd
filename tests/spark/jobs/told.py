"""A Spark application that does what it is told, one command file after the other: for tests that need many sessions and queries in turn.

usage: told.py FOLDER    reads FOLDER/0.json, FOLDER/1.json, … as they appear, answers in FOLDER/0.answer, …; ends with {"do": "end"}

Sessions and queries are ordinary PySpark. An answer has `error`: what the exception says to who reads it, or null.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

from collected import collected
from operators import transform_with_state
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id long, key string, ts timestamp, value long"
PATIENCE_S = 100


def totals(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def unique(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"]).groupBy("key").agg(F.count("*").alias("n"))


def wide(df: DataFrame) -> DataFrame:
    """The operator and the key of `totals`, over other values in the state."""
    return df.groupBy("key").agg(F.collect_list("id").alias("n"), F.sum("value").alias("total"))


def once(df: DataFrame) -> DataFrame:
    """`totals` of what was not seen before: one more operator."""
    return totals(df.dropDuplicates(["id"]))


def halves(df: DataFrame) -> DataFrame:
    """Two operators that are alike."""
    even, odd = (df.where(F.col("id") % 2 == rest).dropDuplicates(["id"]).select("id", "key", "value") for rest in (0, 1))
    return even.union(odd)


def swapped(df: DataFrame) -> DataFrame:
    even, odd = (df.where(F.col("id") % 2 == rest).dropDuplicates(["id"]).select("id", "key", "value") for rest in (0, 1))
    return odd.union(even)


def joined(df: DataFrame) -> DataFrame:
    """`halves`, with a join in the place of the union: one more operator."""
    even, odd = (df.where(F.col("id") % 2 == rest).dropDuplicates(["id"]).select("id", "key", "value") for rest in (0, 1))
    return even.join(odd.selectExpr("id - 1 as id", "value as other"), "id").select("id", "key", "value", "other")


def plain(df: DataFrame) -> DataFrame:
    return df.select("id", "key", "value")


def seen(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"]).select("id", "key", "value")


def transformed(df: DataFrame) -> DataFrame:
    return transform_with_state(df.dropDuplicates(["id"]).select("id", "key", "value"))


def raw(df: DataFrame) -> DataFrame:
    return transform_with_state(df.select("id", "key", "value"))


QUERIES = {
    "totals": totals,
    "unique": unique,
    "wide": wide,
    "once": once,
    "halves": halves,
    "swapped": swapped,
    "joined": joined,
    "plain": plain,
    "seen": seen,
    "transformed": transformed,
    "raw": raw,
}
MODES = {**dict.fromkeys(("halves", "swapped", "joined", "plain", "seen"), "append"), **dict.fromkeys(("transformed", "raw"), "update")}
"""Of those that do not put out everything with each epoch."""


def of_folders(spark: SparkSession, source: str, folders: list[str]) -> DataFrame:
    """A source for each folder below `source`; `a=x` is folder `a` as the source with the name `x`."""
    read = []
    for given in folders:
        folder, _, name = given.partition("=")
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        read.append((reader.name(name) if name else reader).json(f"{source}/{folder}"))
    return reduce(DataFrame.union, read)


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 5).load()


def start_session(conf: dict[str, str]) -> None:
    end_session()
    builder = SparkSession.builder.appName("told")
    for name, value in conf.items():
        builder = builder.config(name, value)
    builder.getOrCreate().sparkContext.setLogLevel("WARN")


def end_session() -> None:
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def run_query(
    query: str, source: str, out: str, location: str | None, settings: dict[str, str], options: dict[str, str], trigger: dict[str, Any]
) -> None:
    """Until it ends by itself, or for `PATIENCE_S`, which is an error where all that is available was to be read."""
    spark = SparkSession.builder.getOrCreate()

    def write(df: DataFrame, batch: int) -> None:
        rows = sorted((row.asDict() for row in collected(df)), key=str)
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/{batch}.tmp", "w") as f:
            json.dump(rows, f)
        os.replace(f"{out}/{batch}.tmp", f"{out}/{batch}.json")

    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        if query == "rated":
            df = rate(spark).selectExpr("cast(value % 5 as string) as key", "value")
            writer = totals(df).writeStream.outputMode("complete").foreachBatch(write)
        elif query.startswith("of "):
            writer = totals(of_folders(spark, source, query.split()[1:])).writeStream.outputMode("complete").foreachBatch(write)
        elif query == "rate":
            writer = rate(spark).writeStream.format("noop").outputMode("update" if "realTime" in trigger else "append")
        else:
            df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
            writer = QUERIES[query](df).writeStream.outputMode(MODES.get(query, "complete")).foreachBatch(write)
        if location is not None:
            writer = writer.option("checkpointLocation", location)
        started = writer.options(**options).trigger(**trigger).start()
        try:
            if not started.awaitTermination(PATIENCE_S) and "availableNow" in trigger:
                raise TimeoutError(f"{query} has not come to the end of its input within {PATIENCE_S} s: {started.status}")
        finally:
            started.stop()
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def told(command: dict[str, Any]) -> None:
    what = command.pop("do")
    actions: dict[str, Callable[..., None]] = {"session": start_session, "query": run_query, "end": end_session}
    actions[what](**command)


def message(error: Exception) -> str:
    return f"{error}\n{error.java_exception.toString()}" if isinstance(error, Py4JJavaError) else str(error)


def main() -> None:
    folder, number, last = sys.argv[1], 0, False
    while not last:
        path = f"{folder}/{number}.json"
        if not os.path.exists(path):
            time.sleep(0.02)
            continue
        with open(path) as f:
            command = json.load(f)
        last = command["do"] == "end"
        error = None
        begun = time.monotonic()
        try:
            told(command)
        except (Py4JJavaError, PySparkException) as e:
            error = message(e)
        with open(f"{folder}/{number}.tmp", "w") as f:
            json.dump({"error": error, "seconds": round(time.monotonic() - begun, 1)}, f)
        os.replace(f"{folder}/{number}.tmp", f"{folder}/{number}.answer")
        number += 1


if __name__ == "__main__":
    main()
