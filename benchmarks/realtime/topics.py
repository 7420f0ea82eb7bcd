"""The two topics of a turn, and what came out of the second one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, NewTopic, TopicPartition

from benchmarks.errors import BenchmarkError

SOURCE, SINK = "in", "out"
PARTITIONS = 2
ANSWER_S = 60
_BATCH = 10_000


class Passed(NamedTuple):
    """A record that came out: when it was sent, and when the broker had what came of it; milliseconds since 1970."""

    sent_ms: float
    out_ms: float

    @property
    def latency_ms(self) -> float:
        return max(0.0, self.out_ms - self.sent_ms)


class Topics:
    """New ones, named after the turn. The broker stamps what comes out (`LogAppendTime`): nobody has to read it meanwhile."""

    def __init__(self, servers: str, turn: str) -> None:
        self.servers = servers
        self.source, self.sink = f"{turn}-{SOURCE}", f"{turn}-{SINK}"
        stamped = {"message.timestamp.type": "LogAppendTime"}
        admin = AdminClient({"bootstrap.servers": servers})  # what it has begun ends with it
        made = admin.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.sink, 1, config=stamped)])
        for name in (self.source, self.sink):
            made[name].result(ANSWER_S)

    def count(self) -> int:
        """How many records came out."""
        consumer = self._consumer()
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self.sink, 0), ANSWER_S)[1])
        finally:
            consumer.close()

    def passed(self) -> Iterator[Passed]:
        """In the order in which they came out. Raises BenchmarkError where the broker does not answer.

        `most` of a key's newest row is when the record that it comes from was sent: those of a key are in order.
        """
        consumer = self._consumer()
        try:
            where = TopicPartition(self.sink, 0, 0)
            end = consumer.get_watermark_offsets(where, ANSWER_S)[1]
            consumer.assign([where])
            read = 0
            while read < end:
                messages = consumer.consume(_BATCH, 5)
                if not messages:
                    raise BenchmarkError(f"{read} of {end} records came out of {self.sink}, and then nothing more")
                for message in messages:
                    if message.error() is not None:
                        raise BenchmarkError(str(message.error()))
                    value = message.value()
                    assert isinstance(value, bytes)
                    yield Passed(json.loads(value)["most"] / 1000, message.timestamp()[1])
                read += len(messages)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.servers, "group.id": "of-nobody", "log_level": 0})
