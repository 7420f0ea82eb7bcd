"""Kafka as a source, on a real broker: what was produced comes out once, and a consumer group follows checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import Consumer

from testbed.kafka import KafkaBroker
from tests.drivers.spark.harness import Start
from tests.drivers.spark.topics import Topics, TopicsTrial, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

GROUP = "spark.ckpt.kafka.group"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def topics(broker: KafkaBroker) -> Topics:
    return Topics(broker)


def test_the_group_follows_a_restore_also_backwards_and_a_group_in_use_harms_nobody(start: Start, topics: Topics, tmp_path: Path) -> None:
    topics.create("back", 2)
    topics.produce(["back"], 200)
    trial = TopicsTrial(start, topics, tmp_path, {"subscribe": "back", "maxOffsetsPerTrigger": "50"}, ["records"])
    conf = {GROUP: "back-checkpoints", "spark.ckpt.retained": "10"}
    user = Consumer({"bootstrap.servers": topics.broker.address, "group.id": "back-checkpoints", "log_level": 0})
    user.subscribe(["back"])
    try:
        user.poll(5)
        app = trial.start("available", conf)
        app.expect_success()
    finally:
        user.close()
    assert "could not be committed to the consumer group back-checkpoints" in app.log.read_text()
    assert trial.differences() == []

    (run, epoch), _ = trial.checkpoints("records")[1]
    path = f"file://{trial.stream('records')}/run-{run:08}/chk-{epoch}"
    app = trial.start("available", {**conf, "spark.ckpt.restore.path": path})
    app.expect_success()
    assert f"the end offsets of checkpoint {epoch} are committed to the consumer group back-checkpoints" in app.log.read_text()
    assert topics.group("back-checkpoints") == trial.checkpoints("records")[-1][1]
    assert trial.differences() == []
