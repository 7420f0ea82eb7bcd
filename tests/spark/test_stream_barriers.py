"""Which barrier a task belongs to, where its thread was made in another epoch, run or query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

ROOT, START, EARLIER = "file:/ckpt/a", "a start of the query", "an earlier start"


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


def barrier(run: int, epoch: int, root: str = ROOT) -> str:
    return json.dumps({"root": root, "stream": "s", "run": run, "epoch": epoch, "base": None, "time_ms": 0})


class Driver:
    """What it has in hand, and how often it was asked."""

    def __init__(self, java: Any) -> None:
        self._java, self.asked, self.now = java, 0, (START, 1, 0)

    def apply(self, root: str, start: Any) -> Any:
        self.asked += 1
        runs, run, epoch = self.now
        told = start.isEmpty() or start.get() == runs
        return self._java.scala.Option.apply(self._java.org.apache.spark.ckpt.Barrier(barrier(run, epoch, root)) if told else None)

    class Java:
        implements = ("scala.Function2",)


@contextmanager
def task(java: Any, carried: str | None) -> Iterator[None]:
    """This connection's thread runs one whose job has the property."""
    contexts = getattr(getattr(java.org.apache.spark, "TaskContext$"), "MODULE$")
    context = contexts.empty()
    if carried is not None:
        context.getLocalProperties().setProperty("spark.ckpt.barrier", carried)
    contexts.setTaskContext(context)
    try:
        yield
    finally:
        contexts.unset()


@pytest.fixture
def driver(java: Any) -> Driver:
    return Driver(java)


@pytest.fixture
def barriers(java: Any, driver: Driver) -> Any:
    return java.org.apache.spark.ckpt.StreamBarriers(driver)


def at(found: Any) -> tuple[int, int]:
    return found.get().run(), found.get().epoch()


def test_a_task_of_the_querys_own_thread_asks_nobody(java: Any, driver: Driver, barriers: Any) -> None:
    with task(java, barrier(1, 0)):
        assert at(barriers.opening(ROOT, START)) == (1, 0)
        assert driver.asked == 1, "for the first store of a start"
        assert at(barriers.opening(ROOT, START)) == (1, 0)
    for epoch in range(3):
        with task(java, barrier(1, epoch)):
            assert at(barriers.of(ROOT, START, epoch)) == (1, epoch)
    assert driver.asked == 1


@pytest.mark.parametrize("carried", [barrier(1, 0), barrier(7, 5, "file:/ckpt/another"), None], ids=["epoch", "query", "none"])
def test_a_task_of_a_thread_that_was_made_elsewhere_belongs_to_the_epoch_in_hand(
    carried: str | None, java: Any, driver: Driver, barriers: Any
) -> None:
    driver.now = (START, 1, 5)
    with task(java, carried):
        assert at(barriers.of(ROOT, START, 5)) == (1, 5)


def test_a_task_that_outlives_its_epoch_keeps_its_own(java: Any, driver: Driver, barriers: Any) -> None:
    driver.now = (START, 1, 6)
    with task(java, barrier(1, 5)):
        assert at(barriers.of(ROOT, START, 5)) == (1, 5)
        assert at(barriers.of(ROOT, START, 4)) == (1, 5), "nobody knows better"


def test_an_epoch_that_runs_again_in_another_run_is_that_ones(java: Any, driver: Driver, barriers: Any) -> None:
    """The thread was made in the same epoch of the run before."""
    with task(java, barrier(1, 5)):
        assert at(barriers.of(ROOT, START, 5)) == (1, 5)
        driver.now = (START, 2, 5)
        barriers.over(ROOT, 1)
        assert at(barriers.of(ROOT, START, 5)) == (2, 5)
    driver.now = ("the next start", 3, 5)
    with task(java, barrier(2, 5)):
        assert at(barriers.opening(ROOT, "the next start")) == (3, 5), "its folder is the new run's"
        assert at(barriers.of(ROOT, "the next start", 5)) == (3, 5)
    began = java.org.apache.spark.ckpt.Barrier(barrier(4, 3))
    barriers.began(began)
    driver.now = ("the next start", 4, 5)
    with task(java, barrier(3, 5)):
        assert at(barriers.of(ROOT, "the next start", 5)) == (4, 5)


def test_a_task_of_an_earlier_start_is_not_the_new_ones(java: Any, driver: Driver, barriers: Any) -> None:
    driver.now = (START, 2, 5)
    with task(java, barrier(1, 5)):
        assert at(barriers.opening(ROOT, EARLIER)) == (1, 5)
        barriers.over(ROOT, 1)
        assert at(barriers.of(ROOT, EARLIER, 5)) == (1, 5)


def test_a_stream_that_was_deleted_counts_its_runs_anew(java: Any, driver: Driver, barriers: Any) -> None:
    driver.now = (START, 9, 0)
    with task(java, barrier(9, 0)):
        assert at(barriers.opening(ROOT, START)) == (9, 0)
    driver.now = ("the first start of another", 1, 0)
    with task(java, barrier(1, 0)):
        assert at(barriers.opening(ROOT, "the first start of another")) == (1, 0)
        asked = driver.asked
        assert at(barriers.of(ROOT, "the first start of another", 0)) == (1, 0)
        assert driver.asked == asked


def test_a_stream_that_has_ended_has_what_was_seen_last(java: Any, driver: Driver, barriers: Any) -> None:
    with task(java, barrier(1, 3)):
        barriers.of(ROOT, START, 3)
    driver.now = ("nothing", 0, 0)
    driver.apply = lambda *_: java.scala.Option.empty()  # type: ignore[method-assign]
    with task(java, None):
        assert at(barriers.of(ROOT, START, 4)) == (1, 3)
        assert barriers.of("file:/ckpt/nobodys", START, 4).isEmpty()
