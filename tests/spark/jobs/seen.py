"""Runs a query of two stateful operators and tells, as lines of JSON, what a person would see of its checkpoints.

usage: seen.py INPUT CHECKPOINT [GATE]

With GATE the application stays until that file exists: there is a UI to look at.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from saying import say

from spark_ckpt import CheckpointListener

PATIENCE_S = 30


class Telling(CheckpointListener):
    """Prints what it hears; fails once, which must harm nobody."""

    def on_triggered(self, event: object) -> None:
        tell("HEARD", "triggered", event)
        if getattr(event, "epoch", None) == 1:
            raise ValueError("a listener's own fault")

    def on_completed(self, event: object) -> None:
        tell("HEARD", "completed", event)

    def on_aborted(self, event: object) -> None:
        tell("HEARD", "aborted", event)

    def on_restored(self, event: object) -> None:
        tell("HEARD", "restored", event)

    def on_savepoint(self, event: object) -> None:
        tell("HEARD", "savepoint", event)


class Plain:
    """Any `SparkListener`: tells the checkpoint events among the others."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on"):
            raise AttributeError(name)
        return lambda *_: None

    def onOtherEvent(self, event: Any) -> None:
        if event.getClass().getName().startswith("org.apache.spark.ckpt."):
            say(f"OTHER {event.getClass().getSimpleName()} {event.epoch()}")

    class Java:
        implements = ["org.apache.spark.scheduler.SparkListenerInterface"]


def tell(what: str, kind: str, event: object) -> None:
    say(f"{what} {json.dumps({'kind': kind, **vars(event)}, default=vars)}")


def gauges(base: str) -> list[str]:
    with urllib.request.urlopen(base + "/metrics/prometheus", timeout=30) as answer:
        return [line.split("_driver_", 1)[1] for line in answer.read().decode().splitlines() if "checkpoints" in line]


def settled(base: str) -> bool:
    """Everybody has told of all checkpoints: Spark's listeners, and the agents, every second, what they have asked of the storage."""

    def value(name: str) -> float:
        return next((float(line.rsplit(" ", 1)[1]) for line in found if f"checkpoints_orders_{name}_Value" in line), 0)

    found = gauges(base)
    with urllib.request.urlopen(base + "/checkpoints/json/", timeout=30) as answer:
        shown = json.load(answer)["counts"]
    completed = value("numberOfCompletedCheckpoints")
    heard = shown["completed"] == completed and shown["in_progress"] == value("uploadQueueSnapshots") == 0
    # Each has a plan and a _metadata, which the coordinator stores, and a segment by an agent.
    return heard and value("storageRequests") >= 3 * completed


def main() -> None:
    source, checkpoint, *gate = sys.argv[1:]
    spark = SparkSession.builder.appName("seen").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    Telling().attach(spark)
    context: Any = spark.sparkContext
    context._jsc.sc().addSparkListener(Plain())
    df = spark.readStream.schema("id long, key string, ts timestamp, value long").option("maxFilesPerTrigger", 1).json(source)
    distinct = df.withWatermark("ts", "10 minutes").dropDuplicates(["id", "ts"])
    counts = distinct.groupBy(F.window("ts", "10 minutes"), "key").agg(F.count("*").alias("n"))
    to = counts.writeStream.outputMode("append").format("noop").option("checkpointLocation", checkpoint).queryName("orders")
    query = to.trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        metrics = [op["customMetrics"] for op in json.loads(progress.json)["stateOperators"]]
        say("PROGRESS " + json.dumps({"epoch": progress["batchId"], "metrics": metrics}))
    base = spark.sparkContext.uiWebUrl or ""
    deadline = time.monotonic() + PATIENCE_S
    while not settled(base) and time.monotonic() < deadline:
        time.sleep(0.2)
    for line in gauges(base):
        say("METRIC " + line)
    say(f"UI {base} {spark.sparkContext.applicationId}")
    while gate and not Path(gate[0]).exists():
        time.sleep(0.1)
    spark.stop()


if __name__ == "__main__":
    main()
