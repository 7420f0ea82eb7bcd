"""A windowed count beside listeners that do their worst and events that nobody can read; it must not notice.

usage: faults.py INPUT CHECKPOINT OUTPUT
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from operators import QUERIES, SCHEMA, writer
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from saying import say

PACKAGE = "org.apache.spark.ckpt."
UNREADABLE = {"root": "file:/nowhere", "run": 1, "epoch": 1, "timeMs": 1}


class Listener:
    """Spark's own `SparkListenerInterface`; does the same at every event."""

    def __init__(self, at_event: Callable[[], None]) -> None:
        self._at_event = at_event

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on"):
            raise AttributeError(name)
        return lambda *_: self._at_event()

    class Java:
        implements = ["org.apache.spark.scheduler.SparkListenerInterface"]


def fails() -> None:
    raise ValueError("a listener that fails at every event")


def main() -> None:
    source, checkpoint, out = sys.argv[1:]
    spark = SparkSession.builder.appName("faults").getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    bus = context._jsc.sc().listenerBus()
    ended, hung = threading.Event(), threading.Event()

    def hangs() -> None:
        hung.set()
        ended.wait(200)

    def post(**event: object) -> None:
        bus.post(context._jvm.org.apache.spark.util.JsonProtocol.sparkEventFromJson(json.dumps(event)))

    # The tab's own listener is in this queue: with the second of these it gets nothing until the query has ended.
    post(Event=PACKAGE + "CheckpointCompleted", **UNREADABLE, operators=[None])
    bus.addToQueue(Listener(fails), "checkpoints")
    bus.addToQueue(Listener(hangs), "checkpoints")

    query = QUERIES["windows"]
    df = query.stream(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source))
    to = df.writeStream.outputMode(query.mode).option("checkpointLocation", checkpoint).foreachBatch(writer("windows", query, out))
    to.trigger(availableNow=True).start().awaitTermination()
    say(f"ENDED while a listener hangs: {hung.is_set() and not ended.is_set()}")
    ended.set()
    for page in ("", "history/", "summary/", "details/?id=nonsense", "json/details/nonsense"):
        try:
            with urllib.request.urlopen(f"{context.uiWebUrl}/checkpoints/{page}", timeout=60) as answer:
                say(f"PAGE {page} {answer.status}")
        except urllib.error.HTTPError as error:
            say(f"PAGE {page} {error.code}")
    spark.stop()


if __name__ == "__main__":
    main()
