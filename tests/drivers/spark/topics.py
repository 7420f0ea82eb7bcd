"""A broker's topics as tests use them: what has been produced is remembered, and compared with what queries have made of it."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, KafkaError, KafkaException, NewPartitions, NewTopic, Producer, TopicPartition

from spark_ckpt import paths
from spark_ckpt.stored.metadata.codec import decode_metadata
from testbed.kafka import KafkaBroker, connector_jars
from testbed.servers import UnavailableError
from tests.drivers.spark.harness import Application, Start

ANSWER_S = 30
KEYS = 7
SOON_S = 5
COMING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
"""What is worth asking again."""
UNLED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
"""Of a partition that was just made."""


@contextmanager
def broker_or_skip(folder: Path, users: Mapping[str, str] | None = None) -> Iterator[KafkaBroker]:
    """With the connector that Spark reads it with. Where one of them cannot be fetched the test is skipped, and in CI it fails."""
    try:
        connector_jars()
        made = KafkaBroker(folder, users)
    except UnavailableError as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    with made as running:
        yield running


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: str
    value: str


class Topics:
    """Some topics of one broker. Values are numbers that no two records share; aborted transactions leave records that nobody is to see."""

    def __init__(self, broker: KafkaBroker, seed: int = 7) -> None:
        self.broker = broker
        self.records: list[Record] = []
        self.aborted = 0
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.address, "log_level": 0}
        self._admin = AdminClient(self._settings)
        self._former: list[AdminClient] = []
        self.rng = random.Random(seed)
        self._numbers = itertools.count()
        self._plain = Producer({**self._settings, "linger.ms": 5, "enable.idempotence": True})
        self._transactional: Producer | None = None
        self._widths: dict[str, int] = {}

    def create(self, name: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(name, partitions)])[name].result(ANSWER_S)
        self._learn(name, partitions)

    def widen(self, name: str, partitions: int) -> None:
        """From now on the topic has so many partitions."""
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(ANSWER_S)
        self._learn(name, partitions)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(ANSWER_S)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does it."""
        where = TopicPartition(topic, partition, offset)
        next(iter(self._admin.delete_records([where]).values())).result(ANSWER_S)

    def produce(self, topics: Sequence[str], count: int) -> None:
        """Returns when the broker has them."""
        self._produce(self._plain, topics, count, self.records)
        assert self._plain.flush(ANSWER_S) == 0

    def transaction(self, topics: Sequence[str], count: int, commit: bool) -> None:
        producer = self._begun()
        written: list[Record] = []
        producer.begin_transaction()
        self._produce(producer, topics, count, written)
        assert producer.flush(ANSWER_S) == 0
        if commit:
            producer.commit_transaction(ANSWER_S)
            self.records += written
        else:
            producer.abort_transaction(ANSWER_S)
            self.aborted += len(written)

    def group(self, name: str) -> dict[tuple[str, int], int]:
        """What is committed to a consumer group; empty: nothing, or there is no such group."""
        deadline = time.monotonic() + 3 * ANSWER_S
        while True:
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=SOON_S)
            try:
                answer = asked[name].result(ANSWER_S)
            except KafkaException as e:
                # A broker that was just started, or is asked for its first group, has to look first; a client may not find it again.
                if e.args[0].code() not in COMING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                # The former one stays alive: to end it while a request of its own is open ends the process.
                self._former.append(self._admin)
                self._admin = AdminClient(self._settings)
            else:
                return {(p.topic, p.partition): p.offset for p in answer.topic_partitions}

    def _learn(self, topic: str, partitions: int) -> None:
        """Producers take no record for a partition of which they have not heard, and a broker answers for one only when it leads it."""
        self._widths[topic] = partitions
        deadline = time.monotonic() + ANSWER_S
        consumer = Consumer({**self._settings, "group.id": "of-nobody"})
        try:
            for partition in range(partitions):
                _wait_for_the_leader(consumer, TopicPartition(topic, partition), deadline)
        finally:
            consumer.close()
        for producer in filter(None, (self._plain, self._transactional)):
            while len(producer.list_topics(topic, ANSWER_S).topics[topic].partitions) < partitions:
                assert time.monotonic() < deadline, f"the broker does not show {partitions} partitions of {topic}"
                time.sleep(0.05)

    def _begun(self) -> Producer:
        if self._transactional is None:
            self._transactional = Producer({**self._settings, "transactional.id": f"tests-{self.rng.random()}"})
            self._transactional.init_transactions(ANSWER_S)
        return self._transactional

    def _produce(self, producer: Producer, topics: Sequence[str], count: int, to: list[Record]) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            to.append(Record(message.topic(), message.partition(), message.offset(), message.key().decode(), message.value().decode()))

        for _ in range(count):
            topic = self.rng.choice(topics)
            key, value = f"k{self.rng.randrange(KEYS)}", str(next(self._numbers))
            producer.produce(topic, value, key, partition=self.rng.randrange(self._widths[topic]), on_delivery=delivered)
            producer.poll(0)


class TopicsTrial:
    """Queries over topics, started as often as it takes, then the comparison with what was produced."""

    def __init__(
        self,
        start: Start,
        topics: Topics,
        tmp: Path,
        source: Mapping[str, str],
        names: Sequence[str] = ("records", "totals"),
        others: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Each query reads `source` and the `others`."""
        self.topics, self.names = topics, names
        self.locations, self.out, self.storage = (tmp / name for name in ("locations", "out", "storage"))
        common = {"kafka.bootstrap.servers": topics.broker.address, "startingOffsets": "earliest"}
        self.sources = [{**common, **one} for one in (source, *others)]
        self.url = f"file://{self.storage}"
        self.app: Application | None = None
        self._begin = start
        self.out.mkdir()

    def start(self, trigger: str, conf: Mapping[str, str], source: Mapping[str, str] | None = None, **how: Any) -> Application:
        """`source`: options that win."""
        queries = {name: [{**one, **(source or {})} for one in self.sources] for name in self.names}
        spec = {"queries": queries, "locations": str(self.locations), "out": str(self.out), "trigger": trigger, "verbose": True}
        settings = {"storage": self.url, "jars": connector_jars(), **how}
        self.app = self._begin("topics.py", json.dumps(spec), conf=dict(conf), **settings)
        return self.app

    def stop(self, timeout: float = 120) -> None:
        """The application ends as a person would end it."""
        assert self.app is not None
        (self.out / "stop").touch()
        self.app.expect_success(timeout)
        (self.out / "stop").unlink()

    def lose_the_machine(self) -> None:
        """Kill the application, and its disk goes with it."""
        assert self.app is not None
        self.app.kill()
        shutil.rmtree(self.locations, ignore_errors=True)
        shutil.rmtree(self.app.log.with_suffix(".scratch"), ignore_errors=True)

    def stream(self, name: str) -> Path:
        return Path(paths.stream_url(f"file://{self.storage}", f"file:{self.locations / name}").removeprefix("file://"))

    def checkpoints(self, name: str) -> list[tuple[tuple[int, int], dict[tuple[str, int], int]]]:
        """((run, epoch), end offsets) of each completed checkpoint that is kept, oldest first."""
        found = []
        for path in self.stream(name).glob("run-*/chk-*/_metadata"):
            checkpoint = decode_metadata(path.read_bytes())
            offsets = checkpoint.files[f"offsets/{checkpoint.id.epoch}"]
            assert isinstance(offsets, bytes), "the test has so many partitions that their offsets are an object of their own"
            found.append(((checkpoint.id.run, checkpoint.id.epoch), ends(offsets)))
        return sorted(found, key=lambda one: one[0])

    def epochs(self, name: str) -> int:
        """How many epochs the sink has seen."""
        return len(list((self.out / name).glob("*.json")))

    def advance(self, epochs: int, since: int, timeout: float = 300) -> None:
        """Until the sink has seen so many epochs of the records more than these. Where less was produced, that is never."""
        assert self.app is not None
        reached = since + epochs
        self.app.until(lambda: self.epochs("records") >= reached, f"{epochs} more epochs", timeout)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What the sink holds, in the order of its epochs."""
        parts = sorted((self.out / name).glob("*.json"), key=lambda part: int(part.stem))
        return [json.loads(line) for part in parts for line in part.read_text().splitlines()]

    def differences(self) -> list[str]:
        """Of all queries, record by record."""
        found: list[str] = []
        for name in self.names:
            told = self.of_records(name) if name.startswith("records") else self._of_totals(name)
            found += [f"{name}: {line}" for line in told]
        return found

    def of_records(self, name: str, without: Callable[[Record], bool] = lambda _: False) -> list[str]:
        """`without`: records that are lost for good."""
        found = Counter(Record(**row) for row in self.rows(name))
        expected = Counter(record for record in self.topics.records if not without(record))
        return [f"missing {r}" for r in expected - found] + [f"extra {n} x {r}" for r, n in (found - expected).items()]

    def _of_totals(self, name: str) -> list[str]:
        found = {row["key"]: (row["n"], row["total"]) for row in self.rows(name)}
        sums: dict[str, list[int]] = {}
        for record in self.topics.records:
            sums.setdefault(record.key, []).append(int(record.value))
        expected = {key: (len(values), sum(values)) for key, values in sums.items()}
        return [] if found == expected else [f"found {found}, expected {expected}"]


def ends(offsets: bytes) -> dict[tuple[str, int], int]:
    """Of the Kafka sources in the content of `offsets/N`."""
    found: dict[tuple[str, int], int] = {}
    started = (line for line in offsets.decode().splitlines()[2:] if line != "-")
    for line in started:
        for topic, partitions in json.loads(line).items():
            found.update({(topic, int(partition)): offset for partition, offset in partitions.items()})
    return found


def _wait_for_the_leader(consumer: Consumer, of: TopicPartition, deadline: float) -> None:
    while True:
        try:
            consumer.get_watermark_offsets(of, ANSWER_S)
        except KafkaException as e:
            if e.args[0].code() not in UNLED or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
