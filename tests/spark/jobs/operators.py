"""Stateful queries of every kind over a folder of JSON events; an ordinary PySpark job that knows nothing of checkpoints.

usage: operators.py run NAMES INPUT CHECKPOINTS OUTPUT   (AvailableNow, one file an epoch, all queries in one session)
       operators.py batch NAMES INPUT OUTPUT ...         (the same results from batch queries: the oracle; several such triples)
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd
from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

TRANSFORMED = "key string, n long, total long, odds long, best long"
SCHEMA = "id long, key string, ts timestamp, value long"
FAR = "2030-01-01"  # the event that closes every window carries this time; results beyond it are left out on both sides


class Query(NamedTuple):
    stream: Callable[[DataFrame], DataFrame]
    batch: Callable[[DataFrame], DataFrame]
    mode: str
    sink: str


def events(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 minutes")


def totals(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def windows(df: DataFrame) -> DataFrame:
    out = df.groupBy(F.window("ts", "20 minutes"), "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return out.select(F.col("window.start").alias("start"), "key", "n", "total")


def sliding(df: DataFrame) -> DataFrame:
    out = df.groupBy(F.window("ts", "30 minutes", "10 minutes")).agg(F.count("*").alias("n"))
    return out.select(F.col("window.start").alias("start"), "n")


def sessions(df: DataFrame) -> DataFrame:
    out = df.groupBy(F.session_window("ts", "3 minutes"), "key").agg(F.count("*").alias("n"))
    return out.select(F.col("session_window.start").alias("start"), F.col("session_window.end").alias("end"), "key", "n")


def joined(how: str) -> Callable[[DataFrame], DataFrame]:
    def build(df: DataFrame) -> DataFrame:
        left = df.where("id % 2 = 0").select(F.col("id").alias("lid"), F.col("key").alias("lkey"), F.col("ts").alias("lts"))
        right = df.where("id % 3 = 0").select(F.col("id").alias("rid"), F.col("key").alias("rkey"), F.col("ts").alias("rts"))
        near = F.expr("lkey = rkey AND rts >= lts - INTERVAL 2 MINUTES AND rts <= lts + INTERVAL 2 MINUTES")
        return left.join(right, near, how)

    return build


def joined_stream(how: str, *more: str) -> Callable[[DataFrame], DataFrame]:
    def build(df: DataFrame) -> DataFrame:
        left = df.where("id % 2 = 0").select(F.col("id").alias("lid"), F.col("key").alias("lkey"), F.col("ts").alias("lts"), *more)
        right = df.where("id % 3 = 0").select(F.col("id").alias("rid"), F.col("key").alias("rkey"), F.col("ts").alias("rts"))
        near = F.expr("lkey = rkey AND rts >= lts - INTERVAL 2 MINUTES AND rts <= lts + INTERVAL 2 MINUTES")
        return left.withWatermark("lts", "10 minutes").join(right.withWatermark("rts", "10 minutes"), near, how)

    return build


def running(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n, total = n + len(frame), total + int(frame["value"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def pandas_state(df: DataFrame) -> DataFrame:
    return df.groupBy("key").applyInPandasWithState(
        running, "key string, n long, total long", "n long, total long", "update", GroupStateTimeout.NoTimeout
    )


def processor(timers_too: bool) -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Running(StatefulProcessor):
        """Value, list and map state: count and total, the best values, a count per parity; with timers, one result when time is up."""

        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n long, total long")
            self.best = handle.getListState("best", "value long")
            self.parity = handle.getMapState("parity", "odd boolean", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            n, total = self.count.get() if self.count.exists() else (0, 0)
            best = [int(v[0]) for v in self.best.get()] if self.best.exists() else []
            for frame in rows:
                for value in frame["value"]:
                    n, total = n + 1, total + int(value)
                    best = sorted([*best, int(value)])[-3:]
                    odd = bool(int(value) % 2)
                    before = self.parity.getValue((odd,))[0] if self.parity.containsKey((odd,)) else 0
                    self.parity.updateValue((odd,), (before + 1,))
            self.count.update((n, total))
            self.best.put([(v,) for v in best])
            if timers_too and not list(self.handle.listTimers()):
                self.handle.registerTimer(1_798_000_000_000)  # in December 2026: after the events, before the one that closes
            if not timers_too:
                yield self.result(key)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield self.result(key)

        def result(self, key: Any) -> pd.DataFrame:
            n, total = self.count.get()
            odds = self.parity.getValue((True,))[0] if self.parity.containsKey((True,)) else 0
            best = max(int(v[0]) for v in self.best.get())
            return pd.DataFrame({"key": [key[0]], "n": [n], "total": [total], "odds": [odds], "best": [best]})

        def close(self) -> None:
            pass

    return Running()


def transform_with_state(df: DataFrame) -> DataFrame:
    return df.groupBy("key").transformWithStateInPandas(processor(False), TRANSFORMED, outputMode="Update", timeMode="None")


def transform_with_timers(df: DataFrame) -> DataFrame:
    return df.groupBy("key").transformWithStateInPandas(processor(True), TRANSFORMED, outputMode="Append", timeMode="EventTime")


def transformed(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(
        F.count("*").alias("n"),
        F.sum("value").alias("total"),
        F.sum((F.col("value") % 2).cast("long")).alias("odds"),
        F.max("value").alias("best"),
    )


def unique(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id"]).select("id", "key", "value")


def chained(df: DataFrame) -> DataFrame:
    once = df.select("id", "key", "ts", "value").dropDuplicates(["id", "ts"])
    counts = once.groupBy(F.window("ts", "10 minutes"), "key").agg(F.count("*").alias("n"))
    return (
        counts.groupBy(F.window(F.window_time("window"), "30 minutes"))
        .agg(F.sum("n").alias("n"), F.count("*").alias("groups"))
        .select(F.col("window.start").alias("start"), "n", "groups")
    )


def stateless(df: DataFrame) -> DataFrame:
    return df.where("value % 7 != 0").select("id", "key", "value")


QUERIES = {
    "complete": Query(totals, totals, "complete", "each"),
    "update": Query(totals, totals, "update", "upsert"),
    "windows": Query(lambda df: windows(events(df)), windows, "append", "remembers"),
    "sliding": Query(lambda df: sliding(events(df)), sliding, "append", "files"),
    "sessions": Query(lambda df: sessions(events(df)), sessions, "append", "each"),
    "inner": Query(joined_stream("inner"), joined("inner"), "append", "each"),
    "outer": Query(joined_stream("left_outer"), joined("left_outer"), "append", "remembers"),
    "right": Query(joined_stream("right_outer"), joined("right_outer"), "append", "files"),
    "full": Query(joined_stream("full_outer"), joined("full_outer"), "append", "each"),
    "unique": Query(unique, unique, "append", "files"),
    "within": Query(lambda df: events(df).dropDuplicatesWithinWatermark(["id"]).select("id", "key", "value"), unique, "append", "each"),
    "pandas": Query(pandas_state, totals, "update", "upsert"),
    "transform": Query(transform_with_state, transformed, "update", "upsert"),
    "timers": Query(lambda df: transform_with_timers(events(df)), transformed, "append", "each"),
    "chained": Query(lambda df: chained(events(df)), chained, "append", "each"),
    "stateless": Query(stateless, stateless, "append", "files"),
}


FIRST, LAST, WIDER = "first-", "last-", "wider-"
"""Before the name of a query: the same one with one more operator, a deduplication before or behind all others; or with a column more."""


def more_totals(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.max("value").alias("most"))


WITH_A_COLUMN_MORE = {"update": more_totals, "outer": joined_stream("left_outer", "value")}


def writer(name: str, query: Query, out: str) -> Callable[[DataFrame, int], None]:
    """foreachBatch of three temperaments: overwrite the batch's own folder; skip what has been seen; keep the newest row of each key."""
    folder = f"{out}/{name}"

    def each(df: DataFrame, batch: int) -> None:
        df.write.mode("overwrite").json(f"{folder}/batch={batch}")

    def remembers(df: DataFrame, batch: int) -> None:
        if not os.path.exists(f"{folder}/batch={batch}/_SUCCESS"):
            df.write.mode("overwrite").json(f"{folder}/batch={batch}")

    def upsert(df: DataFrame, batch: int) -> None:
        held: dict[str, Any] = {}
        path = f"{folder}/held.json"
        if os.path.exists(path):
            with open(path) as f:
                held = json.load(f)
        for row in collected(df):
            held[row["key"]] = row.asDict()
        os.makedirs(folder, exist_ok=True)
        with open(path + ".tmp", "w") as f:
            json.dump(held, f)
        os.replace(path + ".tmp", path)

    if name == "complete":

        def newest(df: DataFrame, batch: int) -> None:
            df.write.mode("overwrite").json(f"{folder}/new")
            shutil.rmtree(f"{folder}/batch=all", ignore_errors=True)
            os.rename(f"{folder}/new", f"{folder}/batch=all")

        return newest
    return {"each": each, "remembers": remembers, "upsert": upsert}[query.sink]


def run(spark: SparkSession, names: list[str], source: str, checkpoints: str, out: str) -> None:
    started = []
    for given in names:
        name = given.removeprefix(FIRST).removeprefix(LAST).removeprefix(WIDER)
        query = QUERIES[name]
        if given.startswith(WIDER):
            query = query._replace(stream=WITH_A_COLUMN_MORE[name])
        df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
        df = query.stream(df.dropDuplicates(["id"]) if given.startswith(FIRST) else df)
        df = df.dropDuplicates() if given.startswith(LAST) else df
        to = df.writeStream.outputMode(query.mode).queryName(name)
        to = to.option("checkpointLocation", f"{checkpoints}/{name}").trigger(availableNow=True)
        if query.sink == "files":
            started.append(to.format("json").start(f"{out}/{name}"))
        else:
            started.append(to.foreachBatch(writer(name, query, out)).start())
    for q in started:
        q.awaitTermination()


def batch(spark: SparkSession, names: list[str], source: str, out: str) -> None:
    df = spark.read.schema(SCHEMA).json(source)
    for name in names:
        QUERIES[name].batch(df).write.mode("overwrite").json(f"{out}/{name}")


def main() -> None:
    what, names, *paths = sys.argv[1:]
    spark = SparkSession.builder.appName("operators").getOrCreate()
    spark.sparkContext.setLogLevel("INFO" if os.environ.get("JOB_VERBOSE") else "WARN")
    if what == "run":
        run(spark, names.split(","), *paths)
    else:
        for n in range(2, len(sys.argv), 3):
            batch(spark, sys.argv[n].split(","), *sys.argv[n + 1 : n + 3])
    spark.stop()


if __name__ == "__main__":
    main()
