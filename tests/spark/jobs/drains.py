"""Stateful queries of every kind that are drained with what is there; an ordinary PySpark job. Writes OUTPUT/facts.json.

usage: drains.py NAMES INPUT EPOCHS CHECKPOINTS OUTPUT   (EPOCHS: how many the input makes, of three files each)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from operators import QUERIES, SCHEMA, Query, events, totals, writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import spark_ckpt

TOTALS = "key string, n long, total long"
HOUR_MS, SECOND_MS = 3_600_000, 1_000
LATER_MS = 1_798_000_000_000
"""In December 2026: after all events."""


def nothing() -> pd.DataFrame:
    return pd.DataFrame({"key": [], "n": [], "total": []}).astype({"key": str, "n": int, "total": int})


def timed_out(after_ms: int | None) -> Any:
    def totals_in_the_end(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            n, total = state.get
            state.remove()
            yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})
            return
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n, total = n + len(frame), total + int(frame["value"].sum())
        state.update((n, total))
        if after_ms is None:
            state.setTimeoutTimestamp(LATER_MS)
        else:
            state.setTimeoutDuration(after_ms)
        yield nothing()

    return totals_in_the_end


def with_time_out(after_ms: int | None) -> Any:
    """After so long by the clock; None: by event time."""
    kind = GroupStateTimeout.EventTimeTimeout if after_ms is None else GroupStateTimeout.ProcessingTimeTimeout

    def stream(df: DataFrame) -> DataFrame:
        grouped = events(df).groupBy("key")
        return grouped.applyInPandasWithState(timed_out(after_ms), TOTALS, "n long, total long", "append", kind)

    return stream


class Timed(StatefulProcessor):
    """One result when time is up, and then nothing is left."""

    def __init__(self, after_ms: int | None) -> None:
        self._after_ms = after_ms

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n, total = self.count.get() if self.count.exists() else (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["value"].sum())
        self.count.update((n, total))
        if not list(self.handle.listTimers()):
            at = LATER_MS if self._after_ms is None else timerValues.getCurrentProcessingTimeInMs() + self._after_ms
            self.handle.registerTimer(at)
        yield nothing()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        n, total = self.count.get()
        self.count.clear()
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        pass


def with_timers(after_ms: int | None) -> Any:
    """The same."""
    time_mode = "EventTime" if after_ms is None else "ProcessingTime"

    def stream(df: DataFrame) -> DataFrame:
        processor = Timed(after_ms)
        return events(df).groupBy("key").transformWithStateInPandas(processor, TOTALS, outputMode="Append", timeMode=time_mode)

    return stream


DUE = {
    "due_time_out": Query(with_time_out(SECOND_MS), totals, "append", "each"),
    "due_timers": Query(with_timers(SECOND_MS), totals, "append", "each"),
}
"""They read everything in one epoch, and the next one is a minute later: time is up before that, and what fires does so in the drain."""
ALL = {
    **QUERIES,
    **DUE,
    "event_time_out": Query(with_time_out(None), totals, "append", "each"),
    "processing_time_out": Query(with_time_out(HOUR_MS), totals, "append", "each"),
    "event_timers": Query(with_timers(None), totals, "append", "each"),
    "processing_timers": Query(with_timers(HOUR_MS), totals, "append", "each"),
}


def until_read(query: StreamingQuery, epochs: int) -> None:
    """`processAllAvailable` would not return: one epoch without rows follows the other, in case the clock has passed a timer."""
    while True:
        if not query.isActive:
            raise query.exception() or AssertionError(f"{query.name} has ended by itself")
        progress = query.lastProgress
        if progress is not None and (at := progress.sources[0].endOffset) and json.loads(at)["logOffset"] == epochs - 1:
            return
        time.sleep(0.1)


def after_a_minute_has_begun() -> None:
    """Spark's triggers come at whole minutes."""
    while time.time() % 60 > 10:
        time.sleep(0.5)


def main() -> None:
    names, source, epochs, checkpoints, out = sys.argv[1:]
    spark = SparkSession.builder.appName("drains").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    queries = {}
    for name in names.split(","):
        query, due = ALL[name], name in DUE
        df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1000 if due else 3).json(source)
        to = query.stream(df).writeStream.outputMode(query.mode).queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        if due:
            after_a_minute_has_begun()
            to = to.trigger(processingTime="1 minute")
        if query.sink == "files":
            queries[name] = to.format("json").start(f"{out}/{name}")
        else:
            queries[name] = to.foreachBatch(writer(name, query, out)).start()

    def stopped(name: str) -> str:
        until_read(queries[name], 1 if name in DUE else int(epochs))
        return spark_ckpt.savepoint(queries[name], name="drained", stop=True, drain=True, timeout="150s")

    with ThreadPoolExecutor(len(queries)) as pool:
        savepoints = dict(zip(queries, pool.map(stopped, queries), strict=True))
    Path(out, "facts.json").write_text(json.dumps(savepoints, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
