"""Restart strategies against a manual clock, and the loop around them against queries that fail as told."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_ckpt
from spark_ckpt.api.causes import Cause
from spark_ckpt.api.restart import (
    Decision,
    ExponentialDelay,
    Failure,
    FailureRate,
    FixedDelay,
    GiveUp,
    GiveUpReason,
    NoRestart,
    NotRestartedError,
    Record,
    Restart,
    RestartStrategy,
)
from spark_ckpt.coordinator.worker import RefusedError
from spark_ckpt.errors import ConfigError, ErrorKind, StorageError

MINUTE, HOUR = 60_000, 3_600_000


def decisions(strategy: RestartStrategy, failures: list[Failure], chance: float = 0.5) -> list[Decision]:
    record, made = Record(), []
    for failure in failures:
        record, decision = strategy.decide(record, failure, chance)
        made.append(decision)
    return made


def test_none_gives_up_at_once() -> None:
    assert decisions(NoRestart(), [Failure(0)]) == [GiveUp(GiveUpReason.NO_RESTART)]


def test_fixed_delay_counts_all_restarts_however_long_the_query_ran() -> None:
    failures = [Failure(n * 10 * HOUR, 10 * HOUR) for n in range(3)]
    made = decisions(FixedDelay(attempts=2, delay="10s"), failures)
    assert made == [Restart(10_000), Restart(10_000), GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)]


def test_exponential_delays_are_those_of_flink() -> None:
    made = decisions(ExponentialDelay(), [Failure(n) for n in range(13)])
    assert [cast(Restart, d).delay_ms for d in made[:6]] == [1000, 1500, 2250, 3375, round(5062.5), round(7593.75)]
    assert made[11:] == [Restart(MINUTE), Restart(MINUTE)]


def test_exponential_delay_begins_anew_after_a_stable_run() -> None:
    failures = [Failure(0), Failure(1), Failure(2, HOUR - 1), Failure(3, HOUR), Failure(4)]
    assert decisions(ExponentialDelay(), failures) == [Restart(1000), Restart(1500), Restart(2250), Restart(1000), Restart(1500)]


def test_exponential_attempts_are_counted_from_the_last_stable_run() -> None:
    strategy = ExponentialDelay(attempts_before_reset=2, jitter_factor=0)
    out = GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)
    assert decisions(strategy, [Failure(0), Failure(0), Failure(0)]) == [Restart(1000), Restart(1500), out]
    after = decisions(strategy, [Failure(0), Failure(0), Failure(0, HOUR), Failure(0), Failure(0)])[2:]
    assert after == [Restart(1000), Restart(1500), out]


def test_failure_rate_forgets_what_is_older_than_the_interval() -> None:
    strategy = FailureRate(max_failures=2, interval="1min", delay="3s")
    out = GiveUp(GiveUpReason.FAILURE_RATE_EXCEEDED)
    assert decisions(strategy, [Failure(0), Failure(30_000), Failure(MINUTE)])[2] == out
    assert decisions(strategy, [Failure(0), Failure(30_000), Failure(MINUTE + 1)])[2] == Restart(3000)
    assert decisions(FailureRate(), [Failure(0), Failure(1)]) == [Restart(1000), out]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FixedDelay(attempts=-1), "attempts=-1"),
        (lambda: FixedDelay(delay="soon"), "delay='soon'"),
        (lambda: FailureRate(max_failures=0), "max_failures=0"),
        (lambda: FailureRate(interval=0), "interval=0"),
        (lambda: ExponentialDelay(initial_backoff=0), "initial_backoff=0"),
        (lambda: ExponentialDelay(initial_backoff="2min"), "longer than max_backoff='1min'"),
        (lambda: ExponentialDelay(backoff_multiplier=1), "backoff_multiplier=1"),
        (lambda: ExponentialDelay(backoff_multiplier=math.nan), "backoff_multiplier=nan"),
        (lambda: ExponentialDelay(jitter_factor=1.1), r"jitter_factor=1\.1"),
        (lambda: ExponentialDelay(attempts_before_reset=0), "attempts_before_reset=0"),
        (lambda: ExponentialDelay(backoff_multiplier=cast(float, "2")), "backoff_multiplier='2'"),
        (lambda: ExponentialDelay(jitter_factor=cast(float, None)), "jitter_factor=None"),
        (lambda: FixedDelay(delay="100001d"), "100000d at most"),
    ],
)
def test_a_wrong_setting_is_named(make: Callable[[], RestartStrategy], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


backoffs = st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)).map(sorted)
chances = st.floats(0, 1, exclude_max=True)


@given(
    backoffs,
    st.floats(1, 1e300, exclude_min=True),
    st.floats(0, 1),
    st.one_of(st.integers(0, 60), st.integers(0, 10**9)),
    st.integers(0, HOUR - 1),
    chances,
)
def test_exponential_delay_keeps_its_bounds(
    bounds: list[int], multiplier: float, jitter: float, restarts: int, ran: int, chance: float
) -> None:
    low, high = bounds
    strategy = ExponentialDelay(low, high, multiplier, jitter)
    record, decision = strategy.decide(Record(restarts), Failure(0, ran), chance)
    assert isinstance(decision, Restart)
    assert low <= decision.delay_ms <= high
    assert record.restarts == restarts + 1
    again = strategy.decide(record, Failure(0, ran), chance)[1]
    assert isinstance(again, Restart)
    assert again.delay_ms >= decision.delay_ms, "with the same chance a later delay is never shorter"
    assert strategy.decide(record, Failure(0, HOUR), chance)[1] == strategy.decide(Record(), Failure(0), chance)[1]


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(1, 5), st.integers(1, 3000))
def test_failure_rate_restarts_exactly_while_the_rate_allows(gaps: list[int], most: int, interval: int) -> None:
    strategy, record, times, at = FailureRate(most, interval, 0), Record(), list[int](), 0
    for gap in gaps:
        at += gap
        times.append(at)
        record, decision = strategy.decide(record, Failure(at), 0)
        within = sum(t >= at - interval for t in times)
        assert decision == (GiveUp(GiveUpReason.FAILURE_RATE_EXCEEDED) if within > most else Restart(0))
        assert len(record.failed_at_ms) == within, "the record stays as small as the interval"


@given(st.integers(0, 30), st.integers(0, 40))
def test_fixed_delay_restarts_exactly_so_often(attempts: int, failures: int) -> None:
    made = decisions(FixedDelay(attempts, 7), [Failure(0)] * failures)
    assert made == [Restart(7) if n < attempts else GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED) for n in range(failures)]


class Clock:
    """Stands still unless somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Query:
    """Runs for some seconds, then ends as told."""

    def __init__(self, clock: Clock, seconds: float, end: BaseException | None) -> None:
        self._clock, self._seconds, self._end = clock, seconds, end
        self.stopped = 0

    def awaitTermination(self) -> None:
        self._clock.now += self._seconds
        if self._end is not None:
            raise self._end

    def stop(self) -> None:
        self.stopped += 1
        raise ConnectionError("the connection to Spark is what broke")


class Lives:
    """A function that starts a query: each call gives the next of some lives, or fails with it."""

    def __init__(self, clock: Clock, *lives: tuple[float, BaseException | None] | BaseException) -> None:
        self.clock, self._lives = clock, list(lives)
        self.queries: list[Query] = []

    def __call__(self) -> Any:
        life = self._lives.pop(0)
        if isinstance(life, BaseException):
            raise life
        self.queries.append(Query(self.clock, *life))
        return self.queries[-1]

    def run(self, restart: RestartStrategy) -> Any:
        return spark_ckpt.run(self, restart, clock=lambda: self.clock.now, sleep=self.clock.sleep, chance=lambda: 0.5)

    @property
    def left(self) -> int:
        return len(self._lives)


AWAY = StorageError("the storage does not answer")


@pytest.mark.parametrize("strategy", [FixedDelay, "fixed-delay", None])
def test_what_is_no_strategy_is_refused_before_the_query_is_started(strategy: Any) -> None:
    """Else it would be found at the first failure, of which nobody would be told, and after which nobody would start again."""
    with pytest.raises(ConfigError, match="is no restart strategy; give an object of one"):
        spark_ckpt.run(lambda: pytest.fail("it was started"), strategy)


def test_the_loop_restarts_until_the_query_ends_by_itself() -> None:
    lives = Lives(Clock(), (5, AWAY), (5, RuntimeError("a lost executor")), AWAY, (HOUR / 1000, AWAY), (1, None))
    assert lives.run(ExponentialDelay()) is lives.queries[-1]
    assert lives.clock.slept == [1, 1.5, 2.25, 1], "a start that fails counts, a stable run begins anew"
    assert [q.stopped for q in lives.queries] == [1, 1, 1, 0], "a failed query is stopped before the next one starts"


def test_the_time_it_takes_to_start_is_not_stable_running() -> None:
    clock = Clock()
    lives = Lives(clock, (1, AWAY), (1, AWAY), (1, None))

    def slow() -> Any:
        clock.now += 2 * HOUR / 1000
        return lives()

    spark_ckpt.run(slow, ExponentialDelay(), clock=lambda: clock.now, sleep=clock.sleep, chance=lambda: 0.5)
    assert clock.slept == [1, 1.5]


def test_a_strategy_that_gives_up_raises_from_the_last_failure() -> None:
    lives = Lives(Clock(), (1, RuntimeError("first")), (1, AWAY), (1, None))
    with pytest.raises(NotRestartedError, match=r"FixedDelay.*ATTEMPTS_EXHAUSTED.*does not answer") as e:
        lives.run(FixedDelay(1))
    assert (e.value.reason, e.value.cause, e.value.__cause__) == (GiveUpReason.ATTEMPTS_EXHAUSTED, Cause.PASSING, AWAY)
    assert lives.left == 1


@pytest.mark.parametrize(
    ("life", "cause"),
    [
        ((1, RefusedError(ErrorKind.FENCED, "run 4 has claimed the stream")), Cause.FENCED),
        (ConfigError("unknown option"), Cause.CONFIG),
        (NameError("name 'spork' is not defined"), Cause.DEFINITION),
    ],
)
def test_what_is_fatal_is_not_retried(life: Any, cause: Cause) -> None:
    lives = Lives(Clock(), life, (1, None))
    with pytest.raises(NotRestartedError) as e:
        lives.run(FixedDelay(9, 0))
    assert (e.value.reason, e.value.cause) == (GiveUpReason.FATAL, cause)
    assert e.value.__cause__ is (life[1] if isinstance(life, tuple) else life)
    assert e.value.kind is {Cause.FENCED: ErrorKind.FENCED}.get(cause, ErrorKind.CONFIG)
    assert (lives.left, lives.clock.slept) == (1, [])


def test_a_source_that_does_not_answer_at_the_start_is_tried_again() -> None:
    lives = Lives(Clock(), ConnectionRefusedError("no broker"), (1, None))
    lives.run(FixedDelay(1))
    assert lives.left == 0


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_stops_the_query_and_is_raised_as_it_is(interrupt: BaseException) -> None:
    lives = Lives(Clock(), (1, interrupt), (1, None))
    with pytest.raises(type(interrupt)) as e:
        lives.run(ExponentialDelay())
    assert e.value is interrupt
    assert (lives.queries[0].stopped, lives.left) == (1, 1)


def test_an_interrupt_in_the_pause_ends_the_loop() -> None:
    lives = Lives(Clock(), (1, AWAY), (1, None))

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spark_ckpt.run(lives, sleep=interrupted)
    assert lives.left == 1


def test_importing_the_package_does_not_load_it() -> None:
    code = "import sys, spark_ckpt; early = 'spark_ckpt.api.restart' in sys.modules; spark_ckpt.run; print(early, 'pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == ["False", "False"]
