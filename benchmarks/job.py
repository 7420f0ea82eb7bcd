"""`python -m benchmarks.job`: one Spark application that runs queries as it is told, JSON lines over stdin and stdout (as docs/pipes.md).

    hello  conf                                                   -> session_ms, context_ms, ready_ms, settings
    turn   workload, checkpoint, warm, warm_s, epochs, seconds, timeout_s, log, told -> start_ms, warm, progress, marks, checkpoints
    keep   workload, checkpoint, timeout_s -> start_ms, thread_ms, progress; the query goes on until the application ends
    seen   checkpoint                                           -> checkpoints, restored_ms: what the Checkpoints tab knows

`context_ms`, `ready_ms`, `thread_ms`: when Spark's context began, when the session was there, and when a query had been analysed and its
own thread began.
`settings` are all those that the application runs with, its own and what a plugin made.
`start_ms` is from the query's start to the end of its first epoch. The query warms up for at least `warm` epochs and `warm_s` seconds,
`warm` of the answer tells how many epochs that were, and goes on for at least `epochs` and `seconds`. `progress` is that of the first
`told` epochs; null: of all. End of stdin ends the application.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchmarkError
from benchmarks.processes import machine_cpu_ms, session_cpu_ms
from benchmarks.workloads import OUTPUT, QUERIES
from spark_ckpt.process.pipe import Message, Pipe, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


LEVEL = "spark.log.level"


class Epochs:
    """What the listener has seen of the query in hand. Called in py4j's thread, waited for in the main thread."""

    def __init__(self, log: Path | None) -> None:
        self._changed = threading.Condition()
        self._log = log
        self._run = ""
        self.thread_ms = 0.0
        self.progress: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.ended = False

    def begin(self, run: str, thread_ms: float) -> None:
        """Called before Spark's `start` returns, and so before anything else is told of the run."""
        self._run, self.thread_ms = run, thread_ms

    def add(self, progress: dict[str, Any]) -> None:
        if not progress["numInputRows"] or progress["runId"] != self._run:
            return
        used = session_cpu_ms(os.getsid(0))
        used["elsewhere"] = machine_cpu_ms() - used["all"]
        mark: dict[str, Any] = {"epoch": progress["batchId"], "at_ms": time.time() * 1000, "cpu_ms": used}
        if self._log is not None:
            mark["log_bytes"] = self._log.stat().st_size
        with self._changed:
            self.progress.append(progress)
            self.marks.append(mark)
            self._changed.notify_all()

    def end(self, run: str) -> None:
        """A run has ended: this one, or another one."""
        with self._changed:
            self.ended = self.ended or run == self._run
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> bool:
        """Until there are so many epochs with rows, or the query has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended or len(self.progress) >= count, timeout_s)


class Application:
    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._epochs: Epochs | None = None

    def hello(self, message: Message) -> Mapping[str, Any]:
        from pyspark.sql import SparkSession
        from pyspark.sql.streaming.listener import StreamingQueryListener

        began = time.monotonic()
        builder = SparkSession.builder
        for key, value in message["conf"].items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()
        session_ms = (time.monotonic() - began) * 1000
        ready_ms = time.time() * 1000
        for level in ("WARN", message["conf"].get(LEVEL, "WARN")):  # in a shell Spark shows no INFO before another level was set
            self._spark.sparkContext.setLogLevel(level)
        application = self

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:  # noqa: N802
                if application._epochs is not None:
                    application._epochs.begin(str(event.runId), datetime.fromisoformat(event.timestamp).timestamp() * 1000)

            def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                if application._epochs is not None:
                    application._epochs.add(json.loads(event.progress.json))

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                if application._epochs is not None:
                    application._epochs.end(str(event.runId))

        self._spark.streams.addListener(Listener())
        context = self._spark.sparkContext
        times = {"session_ms": session_ms, "context_ms": context.startTime, "ready_ms": ready_ms}
        return {**times, "settings": dict(context.getConf().getAll())}

    def turn(self, message: Message) -> Mapping[str, Any]:
        query, epochs, began = self._start(message)
        warm = int(message["warm"])
        if message["workload"]["once"]:
            if not query.awaitTermination(int(message["timeout_s"])):
                raise BenchmarkError(f"the query did not end by itself within {message['timeout_s']} s")
            start_ms = time.time() * 1000 - began
        else:
            warm_s = float(message["warm_s"])
            deadline = began / 1000 + warm_s + float(message["timeout_s"])
            warm = self._run(query, epochs, warm, began / 1000 + warm_s, deadline)
            since = epochs.marks[warm - 1]["at_ms"] if warm else began
            self._run(query, epochs, warm + int(message["epochs"]), since / 1000 + float(message["seconds"]), deadline)
            start_ms = epochs.marks[0]["at_ms"] - began
        query.stop()
        seen = self._checkpoints(str(message["checkpoint"]))
        progress = epochs.progress[: message["told"]]
        return {"start_ms": start_ms, "warm": warm, "progress": progress, "marks": epochs.marks, "checkpoints": seen}

    def keep(self, message: Message) -> Mapping[str, Any]:
        query, epochs, began = self._start(message)
        self._run(query, epochs, 1, began / 1000, began / 1000 + float(message["timeout_s"]))
        times = {"start_ms": epochs.marks[0]["at_ms"] - began, "thread_ms": epochs.thread_ms}
        return {**times, "progress": epochs.progress[:1]}

    def seen(self, message: Message) -> Mapping[str, Any]:
        root = str(message["checkpoint"])
        restored = (self._tab(root, "") or {"latest": {}})["latest"].get("restored")
        return {"checkpoints": self._checkpoints(root), "restored_ms": restored and restored["restore_timestamp"]}

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    def _start(self, message: Message) -> tuple[StreamingQuery, Epochs, float]:
        """The query, what is seen of it, and when it was started."""
        if self._spark is None:
            raise BenchmarkError("the application was not greeted")
        work = message["workload"]
        self._spark.conf.set("spark.sql.shuffle.partitions", str(work["partitions"]))
        log = message.get("log")
        epochs = self._epochs = Epochs(Path(log) if log else None)
        frame = QUERIES[work["query"]](self._spark, int(work["rows"]))
        writer = frame.writeStream.format("noop").outputMode(OUTPUT[work["query"]]).option("checkpointLocation", message["checkpoint"])
        if work["once"]:
            writer = writer.trigger(availableNow=True)
        elif work["trigger_s"]:
            writer = writer.trigger(processingTime=f"{work['trigger_s']} seconds")
        began = time.time() * 1000
        return writer.start(), epochs, began

    def _run(self, query: StreamingQuery, epochs: Epochs, count: int, until: float, deadline: float) -> int:
        """Until the query has run so many epochs, before `deadline`, and until that time; how many they are then."""
        in_time = epochs.wait(count, max(0.0, deadline - time.time()))
        if in_time and not epochs.ended:
            epochs.wait(sys.maxsize, max(0.0, until - time.time()))
        if epochs.ended or query.exception() is not None:
            raise BenchmarkError(f"the query ended by itself after {len(epochs.progress)} epochs: {str(query.exception())[:2000]}")
        if not in_time:
            query.stop()
            raise BenchmarkError(f"the query has run {len(epochs.progress)} of {count} epochs, and no time is left")
        return len(epochs.progress)

    def _checkpoints(self, root: str) -> list[dict[str, Any]]:
        overview = self._tab(root, "")
        return [self._tab(root, f"details/{record['id']}") or {} for record in overview["history"]] if overview else []

    def _tab(self, root: str, path: str) -> dict[str, Any] | None:
        """What the Checkpoints tab tells of a stream; None where there is no such tab."""
        assert self._spark is not None
        url = self._spark.sparkContext.uiWebUrl
        if url is None or not self._spark.conf.get("spark.plugins", ""):
            return None
        location = urllib.parse.quote(f"file:{root.removeprefix('file://')}")
        with urllib.request.urlopen(f"{url}/checkpoints/json/{path}?query={location}", timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def main() -> None:
    pipe = Pipe.standard()
    application = Application()
    serve(pipe, {"hello": application.hello, "turn": application.turn, "keep": application.keep, "seen": application.seen})
    application.stop()


if __name__ == "__main__":
    main()
