"""The streams that are killed: those of the other tests, and three more."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from operators import QUERIES as TESTED
from operators import SCHEMA, Query, events, joined, joined_stream, windows
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

__all__ = ["QUERIES", "SCHEMA", "Query"]

WINDOW_MS = 20 * 60_000


def counted(key: tuple[str, int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """One row for each key and window, when its time is over."""
    n, total = state.get if state.exists else (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"start": [pd.Timestamp(key[1], unit="ms")], "key": [key[0]], "n": [n], "total": [total]})
        return
    for frame in frames:
        n, total = n + len(frame), total + int(frame["value"].sum())
    state.update((n, total))
    state.setTimeoutTimestamp(int(key[1]) + WINDOW_MS)


def with_timeouts(df: DataFrame) -> DataFrame:
    started = df.withColumn("start", F.expr(f"unix_millis(ts) div {WINDOW_MS} * {WINDOW_MS}"))
    out = "start timestamp, key string, n long, total long"
    return started.groupBy("key", "start").applyInPandasWithState(
        counted, out, "n long, total long", "append", GroupStateTimeout.EventTimeTimeout
    )


QUERIES = {
    **{name: query for name, query in TESTED.items() if name != "stateless"},
    "right": Query(joined_stream("right_outer"), joined("right_outer"), "append", "each"),
    "full": Query(joined_stream("full_outer"), joined("full_outer"), "append", "each"),
    "timeouts": Query(lambda df: with_timeouts(events(df)), windows, "append", "each"),
}
