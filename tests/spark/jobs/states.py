"""Queries that leave state of every kind behind; an ordinary PySpark job that knows nothing of checkpoints.

usage: states.py NAMES INPUT CHECKPOINTS   (AvailableNow, one file an epoch, one query after the other)
A name with `-avro` behind it is the same query with Avro in the place of UnsafeRow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import operators
import pandas as pd
from operators import QUERIES, SCHEMA, events
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

# Workers have no such module: its functions go to them as they are.
cloudpickle.register_pickle_by_value(operators)  # type: ignore[no-untyped-call]

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
LONG_AGO_MS = 3_600_000 * 24 * 365


def timed_out(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
    state.update((n, f"of {key[0]}"))
    state.setTimeoutTimestamp(1_798_000_000_000)
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


def flat(df: DataFrame) -> DataFrame:
    timeout = GroupStateTimeout.EventTimeTimeout
    return events(df).groupBy("key").applyInPandasWithState(timed_out, "key string, n long", "n long, name string", "update", timeout)


def wide(df: DataFrame) -> DataFrame:
    """Values of every type that an aggregation keeps."""
    return df.groupBy("key", F.struct((F.col("value") % 2).alias("odd"), F.to_date("ts").alias("day")).alias("group")).agg(
        F.sum(F.col("value").cast("decimal(10,2)")).alias("decimal"),
        F.sum(F.col("value").cast("decimal(25,3)")).alias("long_decimal"),
        F.avg("value").alias("average"),
        F.first(F.col("value").cast("float")).alias("float"),
        F.first((F.col("value") % 100).cast("tinyint"), ignorenulls=True).alias("byte"),
        F.first(F.col("value").cast("smallint")).alias("short"),
        F.first(F.col("value") > 500).alias("boolean"),
        F.max("ts").alias("newest"),
        F.max(F.col("ts").cast("timestamp_ntz")).alias("newest_ntz"),
        F.max(F.to_date("ts")).alias("day"),
        F.first(F.encode("key", "utf-8")).alias("binary"),
        F.first(F.when(F.col("value") > 300, F.col("key"))).alias("nullable"),
        F.first(F.array("key", F.lit(None), F.col("key"))).alias("texts"),
        F.first(F.array(F.col("value"), F.lit(None))).alias("numbers"),
        F.first(F.create_map(F.lit("a"), F.col("value"), F.lit("b"), F.lit(7))).alias("map"),
        F.first(F.struct("id", "key", F.array(F.struct("value", F.col("key").alias("inner"))).alias("deep"))).alias("struct"),
        F.first(F.expr("make_dt_interval(1, 2, 3, 4)")).alias("day_time"),
    )


def living(ttl_ms: int) -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Living(StatefulProcessor):
        """Value, list and map state that lives for so long, and a timer of processing time."""

        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n long, name string", ttl_ms)
            self.best = handle.getListState("best", "value long", ttl_ms)
            self.parity = handle.getMapState("parity", "odd boolean", "n long", ttl_ms)
            self.forever = handle.getValueState("forever", "n int")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            n = self.count.get()[0] if self.count.exists() else 0
            for frame in rows:
                for value in frame["value"]:
                    n += 1
                    self.best.appendValue((int(value),))
                    self.parity.updateValue((bool(value % 2),), (n,))
            self.count.update((n, key[0]))
            self.forever.update((n,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + ttl_ms)
            yield pd.DataFrame({"key": [key[0]], "n": [n]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"key": [key[0]], "n": [-1]})

        def close(self) -> None:
            pass

    return Living()


def ttl(df: DataFrame) -> DataFrame:
    grouped = df.groupBy("key")
    return grouped.transformWithStateInPandas(living(LONG_AGO_MS), "key string, n long", outputMode="Update", timeMode="ProcessingTime")


KINDS = {
    **{name: (query.stream, query.mode) for name, query in QUERIES.items() if name not in ("complete", "stateless")},
    "flat": (flat, "update"),
    "wide": (wide, "update"),
    "ttl": (ttl, "update"),
    "limit": (lambda df: df.select("id").limit(100), "append"),
    "keyless": (lambda df: df.agg(F.count("*").alias("n"), F.sum("value").alias("total")), "update"),
}


def main() -> None:
    names, source, checkpoints = sys.argv[1:]
    spark = SparkSession.builder.appName("states").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")  # with times of processing there is always one more
    for name in names.split(","):
        kind, _, encoding = name.partition("-")
        spark.conf.set(ENCODING, encoding or "unsaferow")
        stream, mode = KINDS[kind]
        df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
        to = stream(df).writeStream.outputMode(mode).queryName(name).option("checkpointLocation", f"{checkpoints}/{name}")
        to = to.foreachBatch(lambda batch, _: batch.write.format("noop").mode("overwrite").save())
        to.trigger(availableNow=True).start().awaitTermination()
        print(f"done: {name}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
