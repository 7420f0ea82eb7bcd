"""Two queries with a hook each, and a fork of the first one; each hook is the two-phase sink of the examples.

usage: several_hooks.py STEP INPUT FOLDER

FOLDER gets for each query its location, its database, and a line of JSON for each call of its hook; and of each STEP what it found, in
STEP.json. Steps: `first` (a savepoint, a failure that `spark_ckpt.run` starts again from, a stop and a start in one session), `back` (the
savepoint is restored for one query, the other goes on, and both get a second hook), `fork`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from hooks import Told
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_ckpt

FAILS_AT = 7
"""A batch of the first query, the first time: its `foreachBatch` raises."""
SLOW_S = 0.2
"""Of each epoch of the first query, so that a savepoint is asked for while it runs."""


class Second(spark_ckpt.CheckpointHook):
    """Registered when there are checkpoints without it; its state is no text."""

    def __init__(self, told: str) -> None:
        self._told = told

    def snapshot(self, epoch: int) -> bytes:
        return epoch.to_bytes(8, "big") + b"\x00\xff\n"

    def restore(self, state: bytes | None) -> None:
        with open(self._told, "a") as f:
            f.write(json.dumps({"call": "restore", "hook": "second", "state": None if state is None else state.hex()}) + "\n")


class Queries:
    def __init__(self, source: str, folder: Path) -> None:
        self.folder = folder
        self.spark = SparkSession.builder.appName("several hooks").getOrCreate()
        self.spark.sparkContext.setLogLevel("WARN")
        self._source = source

    def told(self, name: str) -> str:
        return str(self.folder / f"{name}-calls.jsonl")

    def hooked(self, name: str) -> Told:
        """The sink of a query, which is its hook too from now on."""
        sink = Told(str(self.folder / f"{name}.sqlite"), self.told(name), "")
        spark_ckpt.register_hook("sink", sink, query=name)
        return sink

    def started(self, name: str, sink: Told, *, last: bool = True, fails: bool = False) -> StreamingQuery:
        """`last`: AvailableNow."""
        flag = self.folder / f"{name}-failed"

        def each(batch: DataFrame, epoch: int) -> None:
            sink.stage(batch, epoch)
            if fails:
                time.sleep(SLOW_S)
                if epoch == FAILS_AT and not flag.exists():
                    flag.touch()
                    raise RuntimeError("the user's own database was away")

        events = self.spark.readStream.schema("id long, key string, value long").option("maxFilesPerTrigger", 1).json(self._source)
        to = events.dropDuplicates(["id"]).writeStream.queryName(name).foreachBatch(each)
        to = to.option("checkpointLocation", str(self.folder / name))
        return (to.trigger(availableNow=True) if last else to).start()


def first(queries: Queries) -> dict[str, Any]:
    left, right = queries.hooked("left"), queries.hooked("right")
    other = queries.started("right", right, last=False)
    savepoints, starts = list[str](), list[StreamingQuery]()

    def start() -> StreamingQuery:
        starts.append(queries.started("left", left, fails=True))
        if len(starts) == 1:
            savepoints.append(spark_ckpt.savepoint(starts[0], name="kept", timeout="60s"))
        return starts[-1]

    spark_ckpt.run(start, spark_ckpt.FixedDelay(attempts=2, delay="10ms"))
    other.processAllAvailable()
    spark_ckpt.checkpoint(other, timeout="60s")
    other.stop()
    queries.started("right", right).awaitTermination()
    return {"savepoint": savepoints[0], "starts": len(starts)}


def back(queries: Queries) -> dict[str, Any]:
    sinks = {name: queries.hooked(name) for name in ("left", "right")}
    for name in sinks:
        spark_ckpt.register_hook("second", Second(queries.told(name)), query=name)
    running = [queries.started(name, sink) for name, sink in sinks.items()]
    for query in running:
        query.awaitTermination()
    return {}


def fork(queries: Queries) -> dict[str, Any]:
    spark_ckpt.register_hook("second", Second(queries.told("fork")), query="fork")
    sink = Told(str(queries.folder / "fork.sqlite"), queries.told("fork"), "")
    try:
        queries.started("fork", sink).awaitTermination()
        refused = ""
    except Exception as e:
        refused = str(e)
    spark_ckpt.register_hook("sink", sink, query="fork")
    queries.started("fork", sink).awaitTermination()
    return {"refused": refused}


def main() -> None:
    step, source, folder = sys.argv[1:]
    queries = Queries(source, Path(folder))
    found = {"first": first, "back": back, "fork": fork}[step](queries)
    (queries.folder / f"{step}.json").write_text(json.dumps(found))
    queries.spark.stop()


if __name__ == "__main__":
    main()
