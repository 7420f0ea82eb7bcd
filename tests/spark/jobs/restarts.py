"""Queries under spark_ckpt.run that fail in every way, in one application; writes OUTPUT/facts.json.

usage: restarts.py INPUT CHECKPOINTS OUTPUT
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collected import collected
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

import spark_ckpt

SOON = spark_ckpt.FixedDelay(attempts=4, delay="10ms")
PATIENCE_S = 100
SCHEMA = "id long, key string, ts timestamp, value long"


class Jobs:
    def __init__(self, source: str, locations: str, out: str) -> None:
        self.spark = SparkSession.builder.appName("restarts").getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        self.source, self.locations, self.out = source, locations, Path(out)
        self.starts = 0
        self.stuck: list[str] = []
        """What was stopped because it made no progress."""

    def events(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(self.source)

    def writing(self, df: DataFrame, location: str, each: Callable[[DataFrame, int], None]) -> StreamingQuery:
        to = df.writeStream.outputMode("update").option("checkpointLocation", f"{self.locations}/{location}").foreachBatch(each)
        return to.trigger(availableNow=True).start()

    def outcome(self, start: Callable[[], StreamingQuery]) -> dict[str, Any]:
        """How a run ended: starts, and the reason of giving up or that it was an interrupt."""
        self.starts = 0

        def counted() -> StreamingQuery:
            self.starts += 1
            return start()

        end: dict[str, Any] = {}
        try:
            query = spark_ckpt.run(counted, SOON)
            end = {"active": query.isActive}
        except spark_ckpt.NotRestartedError as e:
            trace = str(getattr(e.__cause__, "_stackTrace", ""))
            kinds = sorted(set(re.findall(r"CheckpointFailure\[(\w+)\]", trace)))
            end = {"reason": e.reason.value, "cause": e.cause.value, "message": str(e), "kinds": kinds}
        except (KeyboardInterrupt, SystemExit) as e:
            end = {"interrupted": type(e).__name__, "active": len(self.spark.streams.active)}
        return {"starts": self.starts, **end}

    def first_time(self, name: str) -> bool:
        try:
            (self.out / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def fails_twice(self) -> StreamingQuery:
        """Once in the user's foreachBatch and once in a user's function in a task; every batch is written under its number."""
        flag = str(self.out / "task-failed")

        def doubled(value: int) -> int:
            if value > 900:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return 2 * value
                raise ValueError("a row that the user's function could not take, the first time")
            return 2 * value

        def each(df: DataFrame, batch: int) -> None:
            rows = collected(df)
            if batch == 3 and self.first_time("batch-failed"):
                raise RuntimeError("the user's own database was away")
            temp = self.out / f".{batch}"
            temp.write_text("".join(json.dumps(row.asDict()) + "\n" for row in rows))
            temp.rename(self.out / f"batch-{batch:05d}.json")

        double = F.udf(doubled, LongType(), useArrow=False)
        doubles = self.events().withColumn("double", double("value"))
        sums = doubles.groupBy("key").agg(F.sum("double").alias("total"), F.count("*").alias("n"))
        return self.writing(sums, "twice", each)

    def fenced(self) -> StreamingQuery:
        """A successor's claim appears in the log while an epoch runs."""

        def each(df: DataFrame, batch: int) -> None:
            df.collect()
            if batch == 1:
                log = Path(str(self.spark.conf.get("spark.ckpt.storage")).removeprefix("file://") + f"{self.locations}/fenced/log")
                entries = sorted(log.iterdir())
                claim = next(doc for doc in map(json.loads, (e.read_bytes() for e in reversed(entries))) if doc["type"] == "claim")
                number = int(entries[-1].name) + 1
                (log / f"{number:020d}").write_text(json.dumps({**claim, "claim": number, "run": claim["run"] + 1}))

        return self.writing(self.events().groupBy("key").count(), "fenced", each)

    def nothing(self, df: DataFrame, batch: int) -> None:
        df.collect()

    def undefined(self) -> StreamingQuery:
        return self.writing(self.events().groupBy("keey").count(), "undefined", self.nothing)

    def other_job(self) -> StreamingQuery:
        return self.writing(self.events().dropDuplicates(["id"]), "twice", self.nothing)

    def other_schema(self) -> StreamingQuery:
        """The same operator over the same key, with other values in its state than the query left there."""
        folder = self.out / "growing"
        folder.mkdir(exist_ok=True)
        files = sorted(Path(self.source).iterdir())

        def begin(aggregate: Column) -> StreamingQuery:
            shutil.copy(files[self.starts], folder)
            df = self.spark.readStream.schema(SCHEMA).json(str(folder)).groupBy("key").agg(aggregate)
            return self.writing(df, "schema", self.nothing)

        if self.starts == 1:
            begin(F.sum("value")).awaitTermination()
            self.starts = 2
        return begin(F.collect_list("key"))

    def refused(self) -> StreamingQuery:
        to = self.events().writeStream.format("noop").option("checkpointLocation", f"{self.locations}/refused")
        return to.option("asyncProgressTrackingEnabled", "true").start()

    def always_fails(self) -> StreamingQuery:
        """An analysis error, but in what the user's function does with a batch."""
        return self.writing(self.events(), "always", lambda df, _: df.select("nowhere").show())

    def endless(self) -> StreamingQuery:
        # Not with foreachBatch: stopped in the middle of one, Spark matches the long text of its trace with a regular expression that
        # overflows the stack (StreamExecution.isInterruptionException), and prints it.
        to = self.events().groupBy("key").count().writeStream.outputMode("update").format("noop")
        return to.option("checkpointLocation", f"{self.locations}/endless").start()

    def when_running(self, then: Callable[[StreamingQuery], None]) -> threading.Thread:
        def wait() -> None:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                for query in self.spark.streams.active:
                    if query.lastProgress is not None:
                        then(query)
                        return
                time.sleep(0.05)
            active = self.spark.streams.active
            self.stuck.append(f"no progress within {PATIENCE_S} s: {[query.status for query in active]}")
            for query in active:
                query.stop()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread


def main() -> None:
    jobs = Jobs(*sys.argv[1:])
    jobs.out.mkdir(parents=True)
    facts: dict[str, Any] = {}
    for kind in ("fails_twice", "other_job", "other_schema", "undefined", "refused", "fenced", "always_fails"):
        facts[kind] = jobs.outcome(getattr(jobs, kind))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    actions: dict[str, Callable[[StreamingQuery], None]] = {
        "stopped": lambda query: query.stop(),
        "interrupted": lambda _: os.kill(os.getpid(), signal.SIGINT),
        "terminated": lambda _: os.kill(os.getpid(), signal.SIGTERM),
    }
    for name, action in actions.items():
        thread = jobs.when_running(action)
        facts[name] = jobs.outcome(jobs.endless)
        thread.join()
    jobs.spark.stop()
    facts["session"] = jobs.outcome(jobs.endless)
    facts["stuck"] = jobs.stuck
    (jobs.out / "facts.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
