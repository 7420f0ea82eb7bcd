"""What Spark allows in real time, beside the totals of `test_real_time.py`: each query with executors in processes of their own, and killed
with its machine. In the end its sink and its state are what a batch query over the same records gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.kafka import KafkaBroker, connector_jars
from tests.drivers.spark.harness import Start
from tests.drivers.spark.real_time import feed
from tests.drivers.spark.real_time_queries import QueryTrial
from tests.drivers.spark.scala_jobs import compiled
from tests.drivers.spark.topics import Topics, broker_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

Of = Callable[..., QueryTrial]
"""A trial of a query."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with broker_or_skip(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture(scope="module")
def in_scala(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("RealTimeTotals.scala", tmp_path_factory.mktemp("scala"))


@pytest.fixture
def of(start: Start, broker: KafkaBroker, tmp_path: Path) -> Of:
    return lambda query, **how: QueryTrial(start, Topics(broker), tmp_path, query, **how)


@pytest.mark.parametrize("query", ["unique", "joined", "transformed in Scala"])
def test_sink_and_state_are_what_a_batch_query_gives(of: Of, query: str, in_scala: Path) -> None:
    """Without duplicates; joined with a table; by transformWithState. Spark's own list of what it allows has them all."""
    trial, jars = of(query), [*connector_jars(), in_scala]
    trial.produce(100)
    trial.begin(jars=jars)
    trial.wait_for_checkpoint()
    feed(trial, 5)
    trial.lose_the_machine()
    beyond = trial.rows_beyond(trial.held())
    trial.begin(jars=jars)
    feed(trial, 5)
    trial.wait_until_all_is_held()
    trial.stop()
    assert trial.newest_rows() == trial.held() == trial.batch()
    assert trial.repeated() == Counter(beyond), "what the checkpoint does not hold comes twice, and nothing else"


def test_foreach_sees_no_epoch_twice_and_none_that_is_older(of: Of) -> None:
    """Also where nothing is in a checkpoint when the machine dies: all rows come again then, in epochs with new ids."""
    trial, never = of("totals", foreach=True), {"spark.ckpt.interval": "1h"}
    trial.produce(100)
    trial.begin(never)
    feed_until_rows_came(trial)
    trial.lose_the_machine()
    said = {row.number for row in trial.rows()}
    trial.begin()
    trial.wait_until_all_is_held()
    assert {row.number for row in trial.rows() if row.start == 1} >= said
    trial.wait_for_checkpoint(trial.wait_for_checkpoint())
    feed_until_rows_came(trial)
    trial.lose_the_machine()
    trial.begin()
    feed_until_rows_came(trial)
    trial.wait_until_all_is_held()
    trial.stop()
    first, second, third = (trial.opened(start) for start in range(3))
    assert max(first) < min(second)
    assert max(second) < min(third)
    assert {row.number for row in trial.rows()} == {(key, n + 1) for key, (times, _, _) in trial.expected().items() for n in range(times)}
    assert trial.newest_rows() == trial.held() == trial.batch()


def feed_until_rows_came(trial: QueryTrial) -> None:
    """Of at least one more batch, at whose end Spark hands `foreach` in Python its last rows; and the next one has begun."""
    assert trial.app is not None
    before = {(row.start, row.epoch) for row in trial.rows()}

    def has_come() -> bool:
        trial.produce(5)
        epochs = {(row.start, row.epoch) for row in trial.rows()} - before
        return bool(epochs) and max(trial.opened()) > max(epochs)[1]

    trial.app.until(has_come, "rows of another batch")
