"""A deduplication into the two-phase sink of the examples, told in its arguments what to do to itself.

usage: hooks.py INPUT CHECKPOINT DATABASE TOLD [POINT]   (AvailableNow, one file an epoch)

TOLD gets a line of JSON for each call of the hook, when it begins. POINT is what happens to this process, and where: `kill`, `raise` or
`hang`, then `before` or `after`, a call of the hook (or `stage`) and the how manieth of this life: `kill-after-completed-2`. `commit` in
the place of `after`: before the transaction of that call is committed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from two_phase_sink import TwoPhaseSink, read_state

import spark_ckpt


class Told(TwoPhaseSink):
    """Says what it is asked, and does what POINT says."""

    def __init__(self, database: str, told: str, point: str) -> None:
        super().__init__(database)
        self._told = told
        self._what, self._when, self._call, number = (point or "nothing---0").split("-")
        self._number = int(number)
        self._calls = Counter[str]()
        self._in = threading.local()  # a hook's calls and foreachBatch have a thread each

    def stage(self, batch: DataFrame, epoch: int) -> None:
        with self._watched("stage", epoch):
            super().stage(batch, epoch)

    def snapshot(self, epoch: int) -> bytes:
        with self._watched("snapshot", epoch):
            return super().snapshot(epoch)

    def restore(self, state: bytes | None) -> None:
        with self._watched("restore", None if state is None else read_state(state)[0]):
            super().restore(state)

    def completed(self, epoch: int) -> None:
        with self._watched("completed", epoch):
            super().completed(epoch)

    def aborted(self, epoch: int) -> None:
        with self._watched("aborted", epoch):
            super().aborted(epoch)

    @contextmanager
    def _watched(self, call: str, epoch: int | None) -> Iterator[None]:
        self._in.call = call
        self._calls[call] += 1
        with open(self._told, "a") as f:
            f.write(json.dumps({"life": os.getpid(), "call": call, "epoch": epoch, "group": self._group()}) + "\n")
        self._at("before", call)
        yield
        self._at("after", call)

    def _group(self) -> str | None:
        """That of the jobs which a call would run."""
        group: str | None = SparkContext.getOrCreate().getLocalProperty("spark.jobGroup.id")
        return group

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        with super()._transaction() as opened:
            yield opened
            self._at("commit", self._in.call)

    def _at(self, when: str, call: str) -> None:
        if (when, call, self._calls[call]) != (self._when, self._call, self._number):
            return
        if self._what == "kill":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        elif self._what == "raise":
            raise ValueError("the user's own fault")
        elif self._what == "hang":
            time.sleep(3600)


def main() -> None:
    source, checkpoint, database, told, *point = sys.argv[1:]
    spark = SparkSession.builder.appName("hooks").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    sink = Told(database, told, point[0] if point else "")
    spark_ckpt.register_hook("sink", sink)
    events = spark.readStream.schema("id long, key string, value long").option("maxFilesPerTrigger", 1).json(source)
    to = events.dropDuplicates(["id"]).writeStream.foreachBatch(sink.stage).option("checkpointLocation", checkpoint)
    to.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
