"""Kafka as a source under kills, with checkpoints on a real S3 server 20 ms away: compared with what was produced, record by record.

`SEED=7 KILLS=10` in the environment repeat and lengthen it. Prints what was killed, and how many records were compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.kafka import KafkaBroker
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.topics import Topics, TopicsTrial
from tests.drivers.spark.trials import CLUSTER

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("KILLS") or 6)
RECORDS_A_KILL = 1200
"""More epochs than a kill waits for."""
MODES: Mapping[str, Mapping[str, str]] = {"every-epoch": {}, "interval": {"spark.ckpt.interval": "2s"}}
PATTERN = {"subscribePattern": "orders-.*", "maxOffsetsPerTrigger": "200", "kafka.isolation.level": "read_committed"}
NAMED = {"subscribe": "orders-a,orders-b", "minPartitions": "9", "maxOffsetsPerTrigger": "200", "kafka.isolation.level": "read_committed"}


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    with KafkaBroker(tmp_path / "broker") as broker:
        yield Topics(broker, seed)


@pytest.mark.parametrize("source", [PATTERN, NAMED], ids=["pattern", "named"])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_produced_comes_out_once(
    start: Start, s3: Server, topics: Topics, tmp_path: Path, mode: str, source: Mapping[str, str]
) -> None:
    both = ["orders-a", "orders-b"]
    for topic in both:
        topics.create(topic, 2)
    trial = TopicsTrial(start, topics, tmp_path, source)
    trial.url = f"s3://{s3.bucket}/ckpt"
    conf = {**s3.conf, **MODES[mode], "spark.ckpt.kafka.group": "durable-{query}"}
    how: dict[str, Any] = {"master": CLUSTER, "env": s3.env}
    app = trial.start("100 milliseconds", conf, **how)
    for number in range(KILLS):
        before = trial.epochs("records")
        topics.produce(both, RECORDS_A_KILL)
        topics.transaction(both, 50, commit=topics.rng.random() < 0.5)
        if number == KILLS // 2:
            topics.widen("orders-a", 4)
        trial.advance(topics.rng.randrange(1, 5), before)
        time.sleep(topics.rng.uniform(0, 2))
        what = "executor" if number % 3 == 1 else "machine"
        if what == "executor":
            app.kill_one("CoarseGrainedExecutorBackend")
        else:
            trial.lose_the_machine()
            app = trial.start("100 milliseconds", conf, **how)
        print(f"kill {number + 1} of {KILLS}: {what}, epoch {trial.epochs('records')} of the records", flush=True)
    app.until(lambda: trial.differences() == [], "all that was produced", 300)
    trial.lose_the_machine()
    topics.produce(both, 100)
    trial.start("available", conf, **how).expect_success(300)
    print(f"{mode}: {len(topics.records)} records compared, {topics.aborted} aborted ones left out", flush=True)
    assert trial.differences() == []


@pytest.mark.parametrize("mode", MODES)
def test_available_now_takes_what_was_there(start: Start, s3: Server, topics: Topics, tmp_path: Path, mode: str) -> None:
    topics.create("orders-a", 3)
    topics.create("orders-b", 2)
    trial = TopicsTrial(start, topics, tmp_path, PATTERN)
    trial.url = f"s3://{s3.bucket}/ckpt"
    conf = {**s3.conf, **MODES[mode]}
    for number in range(KILLS // 2):
        topics.produce(["orders-a", "orders-b"], 1500)
        before = trial.epochs("records")
        trial.start("available", conf, env=s3.env)
        trial.advance(topics.rng.randrange(1, 5), before)
        trial.lose_the_machine()
        trial.start("available", conf, env=s3.env).expect_success(300)
        print(f"kill {number + 1} of {KILLS // 2}: {len(topics.records)} records compared", flush=True)
        assert trial.differences() == []
