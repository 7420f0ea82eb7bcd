"""A sum under each restart strategy, in one application: in each run its source, a task and its sink fail once; writes OUTPUT/facts.json.

usage: strategies.py CHECKPOINTS OUTPUT
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collected import collected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

import spark_ckpt

NUMBERS, IN_AN_EPOCH = 12, 3
SOURCE_FAILS_AT, TASK_FAILS_AT, SINK_FAILS_AT = 3, 7, 3
"""An offset, a number, a batch: one epoch after the other."""

STRATEGIES: dict[str, Any] = {
    "none": spark_ckpt.NoRestart(),
    "fixed": spark_ckpt.FixedDelay(attempts=3, delay="300ms"),
    "fixed_too_few": spark_ckpt.FixedDelay(attempts=2, delay="10ms"),
    "exponential": spark_ckpt.ExponentialDelay(initial_backoff="200ms", max_backoff="1s", backoff_multiplier=3, jitter_factor=0),
    "rate": spark_ckpt.FailureRate(max_failures=3, interval="1h", delay="100ms"),
    "rate_too_high": spark_ckpt.FailureRate(max_failures=2, interval="1h", delay="10ms"),
}


def first_time(flag: str) -> bool:
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class NumbersReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, flag: str) -> None:
        self._flag = flag

    def prepareForTriggerAvailableNow(self) -> None:
        """There are always as many."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        at = start["at"]
        if at == SOURCE_FAILS_AT and first_time(self._flag):
            raise ConnectionError("the source was away")
        end = {"at": min(at + IN_AN_EPOCH, NUMBERS)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(start["at"], end["at"])])


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n long"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return NumbersReader(self.options["flag"])


def started(spark: SparkSession, name: str, checkpoints: str, out: Path) -> StreamingQuery:
    flags = out / f"{name}-failed"
    flags.mkdir(exist_ok=True)

    def same(n: int) -> int:
        if n == TASK_FAILS_AT and first_time(f"{flags}/task"):
            raise ValueError("a row that the task could not take")
        return n

    def each(df: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in collected(df)]
        if batch == SINK_FAILS_AT and first_time(f"{flags}/sink"):
            raise RuntimeError("the sink was away")
        temp = out / f".{name}"
        temp.write_text(json.dumps(rows))
        temp.rename(out / f"{name}-{batch:05d}.json")

    numbers = spark.readStream.format("numbers").option("flag", f"{flags}/source").load()
    same_number = F.udf(same, LongType(), useArrow=False)
    sums = numbers.withColumn("same", same_number("n")).groupBy((F.col("n") % 2).alias("odd")).agg(F.sum("same").alias("total"))
    to = sums.writeStream.outputMode("update").option("checkpointLocation", f"{checkpoints}/{name}").foreachBatch(each)
    return to.trigger(availableNow=True).start()


def outcome(start: Callable[[], StreamingQuery], strategy: spark_ckpt.api.restart.RestartStrategy) -> dict[str, Any]:
    began, slept = list[float](), list[float]()

    def counted() -> StreamingQuery:
        began.append(time.monotonic())
        return start()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    try:
        spark_ckpt.run(counted, strategy, sleep=sleep)
    except spark_ckpt.NotRestartedError as e:
        return {"starts": len(began), "slept": slept, "reason": e.reason.value, "cause": e.cause.value, "message": str(e)}
    return {"starts": len(began), "slept": slept}


def unreadable(spark: SparkSession, checkpoints: str) -> StreamingQuery:
    """Refused by `start()` itself: in the location lies a file without the id that it is to have."""
    folder = Path(checkpoints, "unreadable")
    folder.mkdir(parents=True)
    (folder / "metadata").write_text("not JSON")
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    return counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(folder)).start()


def main() -> None:
    checkpoints, to = sys.argv[1:]
    out = Path(to)
    out.mkdir(parents=True)
    spark = SparkSession.builder.appName("strategies").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Numbers)
    facts: dict[str, list[dict[str, Any]]] = {}
    for name, strategy in STRATEGIES.items():
        start = functools.partial(started, spark, name, checkpoints, out)
        facts[name] = [outcome(start, strategy)]
        while "reason" in facts[name][-1]:  # a person starts it again
            facts[name].append(outcome(start, strategy))
    facts["refused"] = [outcome(lambda: unreadable(spark, checkpoints), spark_ckpt.FixedDelay(attempts=3, delay="10ms"))]
    (out / "facts.json").write_text(json.dumps(facts, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
