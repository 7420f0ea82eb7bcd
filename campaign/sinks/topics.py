"""Topics of a broker, from outside: made, watched, and read from their begin to their end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, KafkaError, KafkaException, NewTopic, TopicPartition
from kafka_numbered import NumberError, Numbers, number_of

__all__ = ["NumberError", "Record", "Topics", "named", "once"]

ANSWER_S = 30.0
SOON_S = 0.1
NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""What a broker says of a topic that has just been made, for a moment."""


@dataclass(frozen=True)
class Record:
    partition: int
    value: dict[str, Any]
    headers: Sequence[tuple[str, bytes]]


class Topics:
    """Use as a context manager. Each call raises KafkaException where the broker does not answer."""

    def __init__(self, servers: str, partitions: int) -> None:
        self.servers = servers
        self._partitions = partitions
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "campaign", "enable.auto.commit": False})

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close()

    def make(self, names: Sequence[str]) -> None:
        """Raises KafkaException where there is one of that name already."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        made = admin.create_topics([NewTopic(name, num_partitions=self._partitions, replication_factor=1) for name in names])
        for future in made.values():
            future.result(ANSWER_S)

    def ends(self, name: str) -> list[int]:
        """The end of each partition."""
        every = [TopicPartition(name, partition) for partition in range(self._partitions)]
        return [self._end(one) for one in every]

    def _end(self, partition: TopicPartition) -> int:
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(partition, timeout=ANSWER_S)[1])
            except KafkaException as e:
                if e.args[0].code() not in NO_LEADER or time.monotonic() > until:
                    raise
                time.sleep(SOON_S)

    def records(self, name: str) -> Iterator[Record]:
        """All that there are, of each partition in the order of its offsets."""
        ends = {partition: end for partition, end in enumerate(self.ends(name)) if end}
        self._consumer.assign([TopicPartition(name, partition, 0) for partition in ends])
        while ends:
            message: Any = self._consumer.poll(ANSWER_S)
            if message is None or message.error() is not None:
                raise TimeoutError(f"{name}: {'nothing' if message is None else message.error()} before {ends}")
            partition = message.partition()
            if partition in ends:  # not of what has come since
                yield Record(partition, json.loads(message.value()), message.headers() or ())
                if message.offset() + 1 >= ends[partition]:
                    del ends[partition]
        self._consumer.unassign()


def once(records: Iterable[Record]) -> Iterator[Record]:
    """What a reader of numbered records keeps. Raises NumberError."""
    numbers = Numbers()
    return (record for record in records if numbers.is_new(record.partition, *number_of(record.headers)))


def named(records: Iterable[Record]) -> Iterator[Record]:
    """The same records. Raises NumberError for one that does not name the checkpoint of its epoch."""
    for record in records:
        epoch, row = number_of(record.headers)
        checkpoint = dict(record.headers).get("checkpoint", b"").decode()
        if not re.fullmatch(rf"run-\d+/chk-{epoch}", checkpoint):
            raise NumberError(f"row {row} of epoch {epoch} names the checkpoint {checkpoint!r}")
        yield record
