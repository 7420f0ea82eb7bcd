"""A broker with the topic that a workload reads: filled before anybody reads it, so that no producer takes time from what is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from benchmarks.errors import BenchmarkError
from benchmarks.systems import System
from benchmarks.workloads import SERVERS, TOPIC
from testbed.kafka import KafkaBroker, connector_jars
from testbed.servers import UnavailableError

PARTITIONS = 2
"""As many as the rate source has."""
GROUP = "benchmark-{query}"
SHORTEST_S = 0.25
"""No epoch takes less: so many records are there as a turn of some seconds can read."""
ANSWER_S = 60
_QUEUED = 200_000


@dataclass(frozen=True)
class Feed:
    """What an application needs to read the topic."""

    servers: str
    jars: Sequence[Path]

    def conf(self, system: System) -> dict[str, str]:
        """A consumer group follows the checkpoints of all systems that have some to follow."""
        keeps = not system.stock and system is not System.FLOOR
        return {SERVERS: self.servers, **({"spark.ckpt.kafka.group": GROUP} if keeps else {})}


def needed(rows: int, epochs: int, seconds: float) -> int:
    """How many records a turn may read that runs for at least so many epochs of so many rows, and for at least so long."""
    return rows * max(epochs, math.ceil(seconds / SHORTEST_S))


@contextmanager
def feed(records: int, folder: Path) -> Iterator[Feed]:
    """Raises BenchmarkError where there is no broker, or it does not take the records."""
    try:
        jars = connector_jars()
        broker = KafkaBroker(folder)
    except UnavailableError as e:
        raise BenchmarkError(f"a workload reads Kafka, which is not here: {e}") from e
    with broker:
        _fill(broker.address, records)
        yield Feed(broker.address, jars)


def _fill(servers: str, records: int) -> None:
    """Numbers from 0 on, in turn over the partitions."""
    admin = AdminClient({"bootstrap.servers": servers})  # what it has begun ends with it
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(ANSWER_S)
    errors: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": _QUEUED})
    for number in range(records):
        if number % (_QUEUED // 2) == 0 and producer.flush(ANSWER_S):
            raise BenchmarkError(f"the broker did not take {records} records: {number} of them wait for longer than {ANSWER_S} s")
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=delivered)
    if producer.flush(ANSWER_S) or errors:
        raise BenchmarkError(f"the broker did not take {records} records: {errors[0] if errors else 'no answer'}")
