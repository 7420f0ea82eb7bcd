"""Real time with other settings than `test_real_time.py` has: at-least-once, batches of half a second, and streams whose micro-batches are
pending when it begins. Executors have processes of their own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt.protocol.entries import Plan
from testbed.kafka import KafkaBroker
from tests.drivers.spark.harness import Start
from tests.drivers.spark.real_time import feed, feed_past_a_checkpoint
from tests.drivers.spark.real_time_queries import QueryTrial, same
from tests.drivers.spark.sightings import lines
from tests.drivers.spark.tab import checked
from tests.drivers.spark.topics import Topics, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

EXECUTOR = "CoarseGrainedExecutorBackend"
AT_LEAST_ONCE = {"spark.ckpt.mode": "AT_LEAST_ONCE"}
SHORT = {"spark.sql.streaming.realTimeMode.minBatchDuration": "500ms", "spark.ui.enabled": "true", "spark.ui.port": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def trial(start: Start, broker: KafkaBroker, tmp_path: Path) -> QueryTrial:
    return QueryTrial(start, Topics(broker), tmp_path, "totals")


def batches(trial: QueryTrial) -> list[int]:
    """Ids of those that have ended, in the order in which Spark has told of them."""
    return [batch["batchId"] for batch in trial.progressed()]


def test_at_least_once_is_what_real_time_is_anyway(trial: QueryTrial) -> None:
    conf = {**AT_LEAST_ONCE, "spark.ckpt.interval": "3s"}
    trial.produce(100)
    trial.begin(conf)
    trial.wait_for_checkpoint()
    feed(trial, 5)
    feed_past_a_checkpoint(trial)
    trial.lose_the_machine()
    beyond, first = trial.rows_beyond(trial.held()), batches(trial)
    app = trial.begin(conf)
    assert beyond, "the next checkpoint is seconds away"
    feed(trial, 5)
    trial.wait_until_all_is_held()
    assert trial.repeated() == Counter(beyond), "what the checkpoint does not hold comes twice, and nothing else"
    app.kill_one(EXECUTOR)
    assert app.wait(60) != 0
    second = batches(trial)[len(first) :]
    trial.begin(conf)
    feed(trial, 2)
    trial.wait_until_all_is_held()
    trial.stop()
    third = batches(trial)[len(first) + len(second) :]
    assert max(first) < min(second)
    assert max(second) < min(third)
    assert trial.missing() == []
    assert trial.newest_rows() == trial.held() == trial.batch()


def test_batches_of_half_a_second(trial: QueryTrial) -> None:
    trial.produce(100)
    app = trial.begin(SHORT, every="500 milliseconds")
    at = trial.wait_for_checkpoint()
    feed(trial, 5)
    assert checked(lines(app, "UI")[0], "/config", "config")["real_time_batch"] == 500
    trial.wait_for_checkpoint(trial.wait_for_checkpoint(at))
    feed(trial, 2)
    trial.lose_the_machine()
    beyond = trial.rows_beyond(trial.held())
    trial.begin(SHORT, every="500 milliseconds")
    feed(trial, 5)
    trial.wait_until_all_is_held()
    trial.stop()
    assert trial.missing() == []
    assert trial.repeated() == Counter(beyond), "what the checkpoint does not hold comes twice, and nothing else"
    assert trial.newest_rows() == trial.held() == trial.batch()


def planned(trial: QueryTrial, past: int) -> dict[int, str]:
    """By epoch the end offsets of micro-batches in the stream's log, past that epoch."""
    plans = [entry for entry in trial.log.values() if isinstance(entry, Plan) and entry.epoch > past]
    assert not any(plan.real_time for plan in plans)
    return {plan.epoch: same(plan.offsets.decode().splitlines()[2]) for plan in plans}


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_micro_batches_that_are_pending_when_real_time_begins(trial: QueryTrial, mode: str) -> None:
    """In exactly-once they run once more before the first batch in real time, as they were planned. In at-least-once it is not known what
    they were, and their records come again in real time."""
    conf = {"spark.ckpt.interval": "1h", "spark.ckpt.mode": mode}
    trial.produce(100)
    trial.begin(conf, trigger="processingTime", every="1 second")
    trial.wait()
    spark_ckpt.checkpoint(trial.stream)
    (_, at), base = trial.checkpoints[-1], len(trial.rows())
    for _ in range(3):
        trial.produce(20)
        trial.wait()
    trial.lose_the_machine()
    pending, said, first = planned(trial, at), trial.rows(), len(trial.progressed())
    assert len(pending) >= 3
    app = trial.begin(conf)
    app.until(lambda: len(trial.progressed()) > first + len(pending), "a batch after those that were pending")
    feed(trial, 3)
    trial.wait()
    again = {batch["batchId"]: same(json.dumps(batch["sources"][0]["endOffset"])) for batch in trial.progressed()[first:]}
    if mode == "EXACTLY_ONCE":
        assert {epoch: again.pop(epoch) for epoch in sorted(again)[: len(pending)]} == pending
        assert sorted(trial.rows()[len(said) :][: len(said) - base]) == sorted(said[base:])
    assert min(again) > max(pending)
    spark_ckpt.savepoint(trial.stream, stop=True)
    app.expect_success(60)
    assert trial.newest_rows() == trial.held() == trial.batch()
