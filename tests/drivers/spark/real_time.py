"""A query in real time from Kafka to Kafka, killed and started as often as it takes; what the sink's topic holds, and the state."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.cimpl import Consumer, TopicPartition

import spark_ckpt
from spark_ckpt import paths
from spark_ckpt.conf.options import parse_options
from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.protocol.entries import Entry
from spark_ckpt.storage import Storage
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.opening import opened
from spark_ckpt.stored.reading import StreamReader
from testbed.kafka import connector_jars
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.topics import ANSWER_S, Topics

PARTITIONS = 3
"""Of the state. With those of the source, all of them are tasks at one time."""
REAL_TIME = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000ms", "spark.sql.shuffle.partitions": str(PARTITIONS)}

STOCK = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""What Spark demands of a session without the plugin."""


class Said(NamedTuple):
    """What the query has said of a key after its `n`th record."""

    key: str
    n: int
    most: int
    total: int


class RealTimeTrial:
    """Over `file://`, or over that server, whose keys the environment has."""

    def __init__(
        self,
        start: Start,
        topics: Topics,
        tmp: Path,
        source: str = "numbers",
        sink: str = "totals",
        partitions: int = 2,
        s3: Server | None = None,
    ) -> None:
        self.topics = topics
        self.url = f"file://{tmp / 'storage'}" if s3 is None else f"s3://{s3.bucket}/ckpt"
        self._server = {} if s3 is None else s3.conf
        self.location = str(tmp / "location")
        self.source, self.sink, self._partitions = source, sink, partitions
        self.app: Application | None = None
        self._stop, self.progress = tmp / "stop", tmp / "progress"
        self._begin = start
        topics.create(source, partitions)
        topics.create(sink, 1)

    def start(self, conf: Mapping[str, str] | None = None, trigger: str = "realTime", every: str = "2 seconds", **more: Any) -> Application:
        spec = {
            "servers": self.topics.broker.address,
            "source": self.source,
            "sink": self.sink,
            "location": self.location,
            "trigger": trigger,
            "every": every,
            "stop": str(self._stop),
            "progress": str(self.progress),
            **more.pop("spec", {}),
        }
        settings = {"storage": self.url, "jars": connector_jars(), "master": f"local[{self._partitions + PARTITIONS + 1}]", **more}
        self.app = self._begin("real_time.py", json.dumps(spec), conf={**REAL_TIME, **self._server, **(conf or {})}, **settings)
        return self.app

    def produce(self, count: int) -> None:
        self.topics.produce([self.source], count)

    def stop(self, timeout: float = 120) -> None:
        assert self.app is not None
        self._stop.touch()
        self.app.expect_success(timeout)
        self._stop.unlink()

    def lose_the_machine(self) -> None:
        """SIGKILL, and the driver's disk goes with it."""
        assert self.app is not None
        self.app.kill()
        shutil.rmtree(self.location, ignore_errors=True)
        shutil.rmtree(self.app.log.with_suffix(".scratch"), ignore_errors=True)

    @property
    def stream(self) -> str:
        """Its URL."""
        return paths.stream_url(self.url, f"file:{self.location}")

    @contextmanager
    def storage(self) -> Iterator[Storage]:
        """At the stream."""
        with opened(self.stream, parse_options(self._server).s3) as storage:
            yield storage

    @property
    def checkpoints(self) -> list[tuple[int, int]]:
        """(run, epoch) of each that is complete, oldest first."""
        with self.storage() as storage:
            return [(one.run, one.epoch) for one, _ in StreamReader(storage).checkpoints()]

    @property
    def log(self) -> dict[int, Entry]:
        """Number -> entry of all that are there."""
        with self.storage() as storage:
            log = StreamLog(storage)
            return log.all_readable(log.tail())

    # --- what came out, and what must

    def said(self) -> list[Said]:
        """In the order in which the sink's topic has it."""
        return [Said(key, row["n"], row["most"], row["total"]) for key, row in self.passed()]

    def passed(self) -> list[tuple[str, Any]]:
        """Key and value of all that the sink's topic has."""
        consumer = Consumer({"bootstrap.servers": self.topics.broker.address, "group.id": "of-nobody", "log_level": 0})
        try:
            where = TopicPartition(self.sink, 0, 0)
            _, end = consumer.get_watermark_offsets(where, ANSWER_S)
            consumer.assign([where])
            found: list[tuple[str, Any]] = []
            while len(found) < end:
                message = consumer.poll(ANSWER_S)
                assert message is not None, f"{len(found)} of {end} records came"
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                found.append((key.decode(), json.loads(value)))
            return found
        finally:
            consumer.close()

    def expected(self) -> dict[str, tuple[int, int, int]]:
        """Of a batch query over the topic: by key its count, maximum and sum."""
        values: dict[str, list[int]] = {}
        for record in self.topics.records:
            values.setdefault(record.key, []).append(int(record.value))
        return {key: (len(of), max(of), sum(of)) for key, of in values.items()}

    def state(self, checkpoint: str | None = None) -> dict[str, tuple[int, int, int]]:
        """By key what the state at a checkpoint holds, by default the newest."""
        return self.state_of(self.stream, checkpoint)

    def state_of(self, url: str, checkpoint: str | None = None) -> dict[str, tuple[int, int, int]]:
        rows = spark_ckpt.read_state(url, checkpoint=checkpoint, conf=self._server).to_table().to_pylist()
        held = {row["key"]["key"]: row["value"] for row in rows}
        return {key: (value["count"], value["max"], value["sum"]) for key, value in held.items()}

    def newest(self) -> dict[str, tuple[int, int, int]]:
        """By key the last that was said."""
        return {one.key: (one.n, one.most, one.total) for one in self.said()}

    def is_done(self) -> bool:
        return self.newest() == self.expected()

    def missing(self) -> list[str]:
        """Nothing is lost: of each key, each of its counts was said."""
        told = {(one.key, one.n) for one in self.said()}
        return [f"{key} {n}" for key, (count, _, _) in self.expected().items() for n in range(1, count + 1) if (key, n) not in told]

    def twice(self) -> Counter[tuple[str, int]]:
        """What was said more than once: how often more."""
        counted = Counter((one.key, one.n) for one in self.said())
        return Counter({one: times - 1 for one, times in counted.items() if times > 1})

    def said_beyond(self, held: Mapping[str, tuple[int, int, int]]) -> set[tuple[str, int]]:
        """What was said so far and this state does not hold: who goes on from there says all of it again."""
        return {(one.key, one.n) for one in self.said() if one.n > held.get(one.key, (0,))[0]}

    def wait(self, timeout: float = 120) -> None:
        assert self.app is not None
        self.app.until(self.is_done, "all that was produced", timeout)

    def wait_for_state(self, timeout: float = 60) -> None:
        """Until the newest checkpoint holds what a batch query over the topic gives."""
        assert self.app is not None
        self.app.until(self._has_state, "the state of a batch query", timeout)

    def _has_state(self) -> bool:
        try:
            return self.state() == self.expected()
        except ObjectMissingError:
            return False  # the first checkpoint is not complete yet

    def wait_for_checkpoint(self, past: tuple[int, int] | None = None, timeout: float = 120) -> tuple[int, int]:
        assert self.app is not None
        before = past or (self.checkpoints[-1] if self.checkpoints else (0, -1))
        self.app.until(lambda: bool(self.checkpoints) and self.checkpoints[-1] > before, f"a checkpoint past {before}", timeout)
        return self.checkpoints[-1]


def feed_past_a_checkpoint(trial: RealTimeTrial) -> None:
    """Until something was said that the newest checkpoint does not hold. Whoever has a long interval has some time until the next one."""
    assert trial.app is not None
    trial.wait_for_checkpoint()

    def was_said() -> bool:
        trial.produce(5)
        newest = trial.checkpoints[-1]
        try:
            beyond = trial.said_beyond(trial.state())
        except ObjectMissingError:
            return False  # it has just been dropped for a newer one
        return bool(beyond) and trial.checkpoints[-1] == newest

    trial.app.until(was_said, "rows that no checkpoint holds")


def feed(trial: RealTimeTrial, seconds: float, a_second: int = 100) -> None:
    """So many records a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trial.produce(max(1, a_second // 20))
        time.sleep(0.05)
