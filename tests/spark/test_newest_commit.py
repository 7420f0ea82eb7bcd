"""What is told to somebody who may be away: the newest only, and not without a pause. In a JVM without an application."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


@pytest.fixture
def worker(java: Any) -> Iterator[Any]:
    made = java.java.util.concurrent.ScheduledThreadPoolExecutor(1)
    yield made
    made.shutdownNow()


class Broker:
    """Remembers what it is told and when, in seconds. While `away`, it refuses; it answers only when it may."""

    class Java:
        implements = ("java.util.function.Consumer",)

    def __init__(self, away: bool) -> None:
        self.away = away
        self.asked: list[tuple[float, str]] = []
        self.taken: list[str] = []
        self.came = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answered = threading.Event()

    def accept(self, told: str) -> None:
        away = self.away
        self.asked.append((time.monotonic(), told))
        self.may_answer.wait(20)
        self.answered.set()
        if away:
            raise ConnectionError("the broker is away")
        self.taken.append(told)
        self.came.set()


def test_each_is_told_while_nothing_fails(java: Any, worker: Any) -> None:
    broker = Broker(away=False)
    commits = java.org.apache.spark.sql.ckpt.NewestCommit(worker, broker)
    for number in range(3):
        broker.came.clear()
        commits.offer(str(number))
        assert broker.came.wait(20)
    assert broker.taken == ["0", "1", "2"]


def test_after_a_failure_there_is_a_pause_that_grows_whatever_comes_meanwhile(java: Any, worker: Any) -> None:
    broker = Broker(away=True)
    commits = java.org.apache.spark.sql.ckpt.NewestCommit(worker, broker)
    until = time.monotonic() + 3
    number = 0
    while time.monotonic() < until:
        commits.offer(str(number := number + 1))
        time.sleep(0.02)
    times = [at for at, _ in broker.asked]
    pauses = [after - before for before, after in pairwise(times)]
    assert 2 <= len(pauses) <= 4, "after 0.25 s, 0.75 s and 1.75 s"
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses)), pauses
    assert pauses[0] >= 0.2

    broker.away = False
    assert broker.came.wait(30)
    assert broker.taken == [str(number)], "only the newest"
    broker.came.clear()
    commits.offer("next")
    assert broker.came.wait(5), "the pause is over"
    broker.away = True
    commits.offer("fails")
    broker.came.clear()
    time.sleep(0.1)
    broker.away = False
    assert broker.came.wait(2), "the pauses begin anew"


def test_at_the_end_what_waits_is_tried_once_more_at_once(java: Any, worker: Any) -> None:
    """Of several clusters perhaps only one was away."""
    broker = Broker(away=True)
    commits = java.org.apache.spark.sql.ckpt.NewestCommit(worker, broker)
    for number in range(4):  # the pause grows to 2 s
        commits.offer(str(number))
        until = time.monotonic() + 20
        while len(broker.asked) <= number and time.monotonic() < until:
            time.sleep(0.01)
    broker.away = False
    commits.last()
    worker.shutdown()
    assert broker.came.wait(1)
    assert broker.taken == ["3"]


def test_what_waits_is_forgotten_at_the_end(java: Any, worker: Any) -> None:
    broker = Broker(away=True)
    commits = java.org.apache.spark.sql.ckpt.NewestCommit(worker, broker)
    commits.offer("never taken")
    assert broker.answered.wait(20)
    commits.forget()
    broker.away = False
    time.sleep(1)
    assert broker.taken == []


def test_what_fails_only_after_it_was_forgotten_is_not_tried_again(java: Any, worker: Any) -> None:
    broker = Broker(away=True)
    broker.may_answer.clear()
    commits = java.org.apache.spark.sql.ckpt.NewestCommit(worker, broker)
    commits.offer("never taken")
    until = time.monotonic() + 20
    while not broker.asked and time.monotonic() < until:
        time.sleep(0.01)
    commits.forget()
    broker.may_answer.set()
    assert broker.answered.wait(20)
    broker.away = False
    time.sleep(1)
    assert broker.taken == []
