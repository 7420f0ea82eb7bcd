"""Starting a query again after a failure, with Flink's restart strategies (Flink: `RestartBackoffTimeStrategy` and its implementations).

The strategies are pure: a failure and the record of those before it go in, a decision comes out. `run` is the loop around them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import numbers
import queue
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from spark_ckpt.api.causes import Cause, cause_of, failure_text
from spark_ckpt.errors import CheckpointError, ConfigError, ErrorKind
from spark_ckpt.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Duration = str | int
"""As Spark writes it: `"500ms"`, `"10s"`, `"1min"`, `"1h"`; a plain number is milliseconds."""

_LONGEST_MS = 10.0**15
_log = logging.getLogger(__name__)


class GiveUpReason(Enum):
    """Why a query is not started again."""

    FATAL = "FATAL"
    """The same failure would come again, or starting again would do harm: see the `Cause`."""
    NO_RESTART = "NO_RESTART"
    """The strategy never restarts."""
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    """It has been started again as often as the strategy allows."""
    FAILURE_RATE_EXCEEDED = "FAILURE_RATE_EXCEEDED"
    """It failed more often within the interval than the strategy allows."""


class NotRestartedError(CheckpointError):
    """The query failed and is not started again (Flink: "Recovery is suppressed by"); `__cause__` is the failure itself."""

    def __init__(self, reason: GiveUpReason, cause: Cause, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause
        self.kind = kind


@dataclass(frozen=True)
class Failure:
    """The query failed at a moment of the caller's clock, having run for so long since it was started; 0 if it could not be started."""

    at_ms: int
    ran_ms: int = 0


@dataclass(frozen=True)
class Record:
    """What a strategy remembers from failure to failure."""

    restarts: int = 0
    failed_at_ms: tuple[int, ...] = ()


@dataclass(frozen=True)
class Restart:
    """Start the query again after this delay."""

    delay_ms: int


@dataclass(frozen=True)
class GiveUp:
    """Leave it."""

    reason: GiveUpReason


Decision = Restart | GiveUp


def _millis(owner: object, name: str, at_least: int) -> int:
    value = getattr(owner, name)
    what = f"{type(owner).__name__}({name}={value!r})"
    try:
        millis = parse_duration(str(value))
    except ValueError as e:
        raise ConfigError(f"{what} is not {e}") from None
    if millis < at_least:
        raise ConfigError(f"{what} is too short; give at least {at_least} ms")
    return millis


def _count(owner: object, name: str, at_least: int) -> None:
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{type(owner).__name__}({name}={value!r}) is not a whole number of at least {at_least}")


def _real(owner: object, name: str) -> None:
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigError(f"{type(owner).__name__}({name}={value!r}) is not a number")


class RestartStrategy(ABC):
    """Decides after each failure that starting again may help with."""

    @abstractmethod
    def decide(self, record: Record, failure: Failure, chance: float) -> tuple[Record, Decision]:
        """The new record and what to do; `chance` is a fresh random number in [0, 1)."""


@dataclass(frozen=True)
class NoRestart(RestartStrategy):
    """The first failure is the last (Flink: `none`)."""

    def decide(self, record: Record, failure: Failure, chance: float) -> tuple[Record, Decision]:  # noqa: ARG002
        return record, GiveUp(GiveUpReason.NO_RESTART)


@dataclass(frozen=True)
class FixedDelay(RestartStrategy):
    """So many restarts in all, the same delay before each (Flink: `fixed-delay`)."""

    attempts: int = 1
    delay: Duration = "1s"

    def __post_init__(self) -> None:
        _count(self, "attempts", 0)
        _millis(self, "delay", 0)

    def decide(self, record: Record, failure: Failure, chance: float) -> tuple[Record, Decision]:  # noqa: ARG002
        if record.restarts >= self.attempts:
            return record, GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)
        return Record(record.restarts + 1), Restart(_millis(self, "delay", 0))


@dataclass(frozen=True)
class ExponentialDelay(RestartStrategy):
    """Delays that grow from failure to failure and begin anew once the query has run well for long (Flink: `exponential-delay`).

    `jitter_factor` is the part of the delay that is added or taken off at random. `attempts_before_reset` is the number of restarts
    before a stable run, without limit if None. Defaults are those of Flink since 1.19 (FLIP-364).
    """

    initial_backoff: Duration = "1s"
    max_backoff: Duration = "1min"
    backoff_multiplier: float = 1.5
    jitter_factor: float = 0.1
    reset_threshold: Duration = "1h"
    attempts_before_reset: int | None = None

    def __post_init__(self) -> None:
        _millis(self, "reset_threshold", 1)
        if _millis(self, "initial_backoff", 1) > _millis(self, "max_backoff", 1):
            raise ConfigError(f"ExponentialDelay(initial_backoff={self.initial_backoff!r}) is longer than max_backoff={self.max_backoff!r}")
        _real(self, "backoff_multiplier")
        _real(self, "jitter_factor")
        if not 1 < self.backoff_multiplier < math.inf:
            raise ConfigError(f"ExponentialDelay(backoff_multiplier={self.backoff_multiplier!r}) is not a number greater than 1")
        if not 0 <= self.jitter_factor <= 1:
            raise ConfigError(f"ExponentialDelay(jitter_factor={self.jitter_factor!r}) is not a number from 0 to 1")
        if self.attempts_before_reset is not None:
            _count(self, "attempts_before_reset", 1)

    def decide(self, record: Record, failure: Failure, chance: float) -> tuple[Record, Decision]:
        restarts = 0 if failure.ran_ms >= _millis(self, "reset_threshold", 1) else record.restarts
        if self.attempts_before_reset is not None and restarts >= self.attempts_before_reset:
            return Record(restarts), GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)
        return Record(restarts + 1), Restart(self._delay(restarts, chance))

    def _delay(self, restarts: int, chance: float) -> int:
        initial, longest = _millis(self, "initial_backoff", 1), _millis(self, "max_backoff", 1)
        # A float's power overflows after some 1,750 restarts; from far above the longest delay on, growth no longer matters.
        enough = math.ceil(math.log(_LONGEST_MS) / math.log(self.backoff_multiplier))
        grown = min(initial * self.backoff_multiplier ** min(restarts, enough), max(_LONGEST_MS, 1.0 * longest))
        return round(max(initial, min(grown * (1 + self.jitter_factor * (2 * chance - 1)), longest)))


@dataclass(frozen=True)
class FailureRate(RestartStrategy):
    """Restarts unless the query fails more than `max_failures` times within the interval (Flink: `failure-rate`)."""

    max_failures: int = 1
    interval: Duration = "1min"
    delay: Duration = "1s"

    def __post_init__(self) -> None:
        _count(self, "max_failures", 1)
        _millis(self, "interval", 1)
        _millis(self, "delay", 0)

    def decide(self, record: Record, failure: Failure, chance: float) -> tuple[Record, Decision]:  # noqa: ARG002
        since = failure.at_ms - _millis(self, "interval", 1)
        recent = (*(at for at in record.failed_at_ms if at >= since), failure.at_ms)
        if len(recent) > self.max_failures:
            return Record(record.restarts, recent), GiveUp(GiveUpReason.FAILURE_RATE_EXCEEDED)
        return Record(record.restarts + 1, recent), Restart(_millis(self, "delay", 0))


DEFAULT_STRATEGY: RestartStrategy = ExponentialDelay()

_HINTS = {
    Cause.CONFIG: "correct the configuration and start it again",
    Cause.FENCED: "another run has taken over; stop that one first if this one is to go on",
    Cause.CONFLICT: "choose another checkpointLocation, or start the job that this one belongs to",
    Cause.UNUSABLE: "do what it says there, and start it again",
    Cause.DEFINITION: "correct the query and start it again",
    Cause.STATE_SCHEMA: "undo the change to the query, or begin with a new checkpointLocation",
    Cause.SESSION: "make the session inside the function that starts the query, or start the application again",
}
_KINDS = {
    Cause.CONFIG: ErrorKind.CONFIG,
    Cause.FENCED: ErrorKind.FENCED,
    Cause.CONFLICT: ErrorKind.CONFLICT,
    Cause.UNUSABLE: ErrorKind.UNUSABLE,
    Cause.DEFINITION: ErrorKind.CONFIG,
    Cause.STATE_SCHEMA: ErrorKind.CONFLICT,
}


def run(
    start: Callable[[], StreamingQuery],
    restart: RestartStrategy = DEFAULT_STRATEGY,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    chance: Callable[[], float] = random.random,
) -> StreamingQuery:
    """Start a query, wait for its end, and start it again after each failure as long as the strategy allows. Returns the query that ended.

    It ends where `awaitTermination()` would return: somebody stopped it, or `availableNow` is through. `clock` and `sleep` are in seconds.
    Raises `ConfigError` for a `restart` that is no strategy, and `NotRestartedError` from the failure that is fatal or one too many; an
    interrupt (Ctrl-C) stops the query and is raised as it is.
    """
    if isinstance(restart, type) or not callable(getattr(restart, "decide", None)):
        raise ConfigError(f"restart={restart!r} is no restart strategy; give an object of one, such as spark_ckpt.FixedDelay(attempts=3)")
    record = Record()
    while True:
        query: StreamingQuery | None = None
        began = clock()
        try:
            query = start()
            began = clock()
            _await(query)
            return query
        except Exception as error:
            now = clock()
            cause = cause_of(error, starting=query is None)
            failure = Failure(round(now * 1000), 0 if query is None else round((now - began) * 1000))
            _stop(query)
            if cause is not Cause.PASSING:
                message = f"the query is not started again, its failure is {cause.value}: {failure_text(error)}; {_HINTS[cause]}"
                raise NotRestartedError(GiveUpReason.FATAL, cause, _KINDS.get(cause, ErrorKind.INTERNAL), message) from error
            record, decision = restart.decide(record, failure, chance())
            if isinstance(decision, GiveUp):
                message = f"the query is not started again, {restart} has given up ({decision.reason.value}): {failure_text(error)}"
                raise NotRestartedError(decision.reason, cause, ErrorKind.INTERNAL, message) from error
            delay = decision.delay_ms / 1000
            _log.warning("the query failed and is started again in %.3f s (restart %d): %s", delay, record.restarts, failure_text(error))
        except BaseException:
            _stop(query)
            raise
        # Outside of the handler: an interrupt in the pause is not shown as one that came while the failure was handled.
        sleep(delay)


def _await(query: StreamingQuery) -> None:
    """`awaitTermination()` in a thread of its own.

    A thread has one connection to the JVM (py4j). Interrupted in the middle of its read, it would send `stop()` where the JVM still waits
    for the query's end, and hang. This one waits here instead, and keeps its connection free.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def wait() -> None:
        try:
            query.awaitTermination()
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=wait, name="spark-ckpt-run", daemon=True).start()
    error = ended.get()
    if error is not None:
        raise error


def _stop(query: StreamingQuery | None) -> None:
    """A failed query is stopped too: its thread may still be ending, and what broke may have been the connection to it."""
    if query is not None:
        with contextlib.suppress(Exception):
            query.stop()
