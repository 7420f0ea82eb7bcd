"""Stateful queries of every kind that are drained with what is there; an ordinary PySpark job. Writes OUTPUT/facts.json.

usage: drains.py NAMES INPUT CHECKPOINTS OUTPUT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from operators import QUERIES, SCHEMA, Query, events, totals, writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import spark_ckpt

TOTALS = "key string, n long, total long"
IN_AN_HOUR_MS = 3_600_000
LATER_MS = 1_798_000_000_000
"""In December 2026: after all events."""


def nothing() -> pd.DataFrame:
    return pd.DataFrame({"key": [], "n": [], "total": []}).astype({"key": str, "n": int, "total": int})


def timed_out(event_time: bool) -> Any:
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
        if event_time:
            state.setTimeoutTimestamp(LATER_MS)
        else:
            state.setTimeoutDuration(IN_AN_HOUR_MS)
        yield nothing()

    return totals_in_the_end


def with_time_out(event_time: bool) -> Any:
    kind = GroupStateTimeout.EventTimeTimeout if event_time else GroupStateTimeout.ProcessingTimeTimeout

    def stream(df: DataFrame) -> DataFrame:
        grouped = events(df).groupBy("key")
        return grouped.applyInPandasWithState(timed_out(event_time), TOTALS, "n long, total long", "append", kind)

    return stream


class Timed(StatefulProcessor):
    """One result when time is up, and then nothing is left."""

    def __init__(self, event_time: bool) -> None:
        self._event_time = event_time

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n, total = self.count.get() if self.count.exists() else (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["value"].sum())
        self.count.update((n, total))
        if not list(self.handle.listTimers()):
            self.handle.registerTimer(LATER_MS if self._event_time else timerValues.getCurrentProcessingTimeInMs() + IN_AN_HOUR_MS)
        yield nothing()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        n, total = self.count.get()
        self.count.clear()
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        pass


def with_timers(time_mode: str) -> Any:
    def stream(df: DataFrame) -> DataFrame:
        processor = Timed(time_mode == "EventTime")
        return events(df).groupBy("key").transformWithStateInPandas(processor, TOTALS, outputMode="Append", timeMode=time_mode)

    return stream


ALL = {
    **QUERIES,
    "event_time_out": Query(with_time_out(True), totals, "append", "each"),
    "processing_time_out": Query(with_time_out(False), totals, "append", "each"),
    "event_timers": Query(with_timers("EventTime"), totals, "append", "each"),
    "processing_timers": Query(with_timers("ProcessingTime"), totals, "append", "each"),
}


def main() -> None:
    names, source, checkpoints, out = sys.argv[1:]
    spark = SparkSession.builder.appName("drains").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    queries = {}
    for name in names.split(","):
        query = ALL[name]
        df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 3).json(source)
        to = query.stream(df).writeStream.outputMode(query.mode).queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        if query.sink == "files":
            queries[name] = to.format("json").start(f"{out}/{name}")
        else:
            queries[name] = to.foreachBatch(writer(name, query, out)).start()
    facts: dict[str, Any] = {}
    for name, running in queries.items():
        running.processAllAvailable()
        facts[name] = spark_ckpt.savepoint(running, name="drained", stop=True, drain=True, timeout="150s")
    Path(out, "facts.json").write_text(json.dumps(facts, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
