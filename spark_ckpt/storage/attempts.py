"""A request to a server, sent until it is answered, or patience ends: the same for every client.

The clients' own retries are off: whether a put may have happened depends on every single attempt, and they tell only of the last.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from spark_ckpt.errors import (
    CheckpointError,
    DamagedError,
    ObjectMissingError,
    OutageError,
    OutcomeUnknownError,
    StorageError,
    StorageSetupError,
)
from spark_ckpt.storage.base import OPTION, Traffic

T = TypeVar("T")

_GARBLED_ATTEMPTS = 3


class Fault(Enum):
    """What an error means for the request: whether it has happened, and whether it is sent again."""

    EXISTS = "EXISTS"
    MISSING = "MISSING"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNREACHABLE = "UNREACHABLE"
    """No connection: it has not happened; again."""
    AGAIN = "AGAIN"
    """The server refused for now: it has not happened; again."""
    LOST = "LOST"
    """It may have happened; again."""
    GARBLED = "GARBLED"
    """The bytes do not have their checksum; again, and damaged if that stays so."""
    CREDENTIALS = "CREDENTIALS"
    """There are none now, or what is signed with them is not accepted, as where the clock is wrong: it has not happened; again,
    where others have been."""
    SETUP = "SETUP"
    """It cannot happen: a wrong right, bucket or setting. Not again."""
    FAILED = "FAILED"
    """The server refused this request, and would again."""


@dataclass(frozen=True)
class Place:
    """What messages name."""

    url: str
    bucket: str
    endpoint: str
    called: str = OPTION


@dataclass(frozen=True)
class Done(Generic[T]):
    result: T


class Patience(Protocol):
    """Times in seconds. `patience_s` bounds the retries of one request, `first_contact_s` those before any answer where none is known to
    have come (`Reach.reached`); reads wait for `Reach.outage_s` if that is longer."""

    @property
    def patience_s(self) -> float: ...

    @property
    def first_contact_s(self) -> float: ...

    @property
    def backoff_s(self) -> float: ...

    @property
    def backoff_max_s(self) -> float: ...


class Reach(Protocol):
    """`S3Options` has what these mean."""

    @property
    def outage_s(self) -> float | None: ...

    @property
    def reached(self) -> bool: ...


class Attempts(ABC):
    """Those of one storage, of all threads. `sleep`, `clock` and `chance` are the system's, but in tests."""

    def __init__(
        self,
        place: Place,
        reach: Reach,
        limits: Patience,
        traffic: Traffic,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: random.Random,
    ) -> None:
        self.place = place
        self._reach = reach
        self._patience = limits
        self._traffic = traffic
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._answered = False
        self.worked = False
        """Has one been answered with what it asked for?"""

    @abstractmethod
    def _attempt(self, send: Callable[[], T]) -> Done[T] | Exception:
        """The error is one that `_fault` knows; others are raised."""

    @abstractmethod
    def _fault(self, error: Exception) -> Fault:
        """What the error of one attempt means."""

    @abstractmethod
    def _is_answer(self, error: Exception) -> bool:
        """Did the server say so itself?"""

    @abstractmethod
    def _code(self, error: Exception) -> str:
        """A short name for the error, without anything that the server has said at length."""

    @abstractmethod
    def _setup_error(self, error: Exception, doing: str) -> StorageSetupError:
        """The sentence for what no retry can mend."""

    @abstractmethod
    def _unreachable_error(self, error: Exception) -> StorageSetupError:
        """Nothing ever answered there."""

    @abstractmethod
    def _generation(self) -> int:
        """Of the client, counted from 0."""

    @abstractmethod
    def _renew(self, generation: int) -> None:
        """The credentials of that generation's client are of no use: where they came from there may be others by now."""

    def run(
        self, doing: str, send: Callable[[], T], answers: frozenset[Fault] = frozenset(), writes: bool = False, reads: bool = False
    ) -> T | Fault:
        """Send until it is answered or patience ends; a fault among `answers` is returned, any other raises what the contract says."""
        started, attempts, maybe_done = self._clock(), 0, False
        while True:
            attempts += 1
            generation = self._generation()
            try:
                error = self._attempt(send)
            except CheckpointError as stopped:  # a new client that cannot be made tells nothing of what was sent before
                if maybe_done:
                    raise _unknown(doing, f"an answer was lost, and attempt {attempts} failed: {stopped}; then") from stopped
                raise
            if not isinstance(error, Exception):
                self._answered = self.worked = True
                return error.result
            fault = self._fault(error)
            if self._is_answer(error):
                self._answered = True
            if fault in answers:
                return fault
            maybe_done = maybe_done or (writes and fault is Fault.LOST)
            again = (
                fault in (Fault.AGAIN, Fault.LOST, Fault.UNREACHABLE)
                or (fault is Fault.GARBLED and attempts < _GARBLED_ATTEMPTS)
                or (fault is Fault.CREDENTIALS and self._has_worked)
            )
            waited = self._clock() - started
            if again and waited < self._patience_s(reads):
                why = f"attempt {attempts} at {self.place.endpoint} to {doing} failed with {self._code(error)}; it is tried again"
                self._traffic.retried(why)
                self._back_off(attempts)
                if fault is Fault.CREDENTIALS:
                    self._renew(generation)
                continue
            if maybe_done and fault is Fault.CREDENTIALS:
                missing = self._setup_error(error, doing)
                raise _unknown(doing, f"an answer was lost, and attempt {attempts} failed: {missing}; then") from error
            if maybe_done:
                raise _unknown(doing, f"the answer was lost in {attempts} attempts, the last with {self._code(error)};") from error
            if fault is Fault.SETUP or (fault is Fault.CREDENTIALS and not again):
                raise self._setup_error(error, doing) from error
            if reads and again and self._reach.outage_s is not None and waited >= self._reach.outage_s:
                raise self._outage_error(fault, error, doing, waited) from error
            if fault is Fault.CREDENTIALS:
                raise StorageError(str(self._setup_error(error, doing))) from error
            if fault is Fault.UNREACHABLE and not self._has_answered:
                raise self._unreachable_error(error) from error
            raise self._final_error(fault, error, doing, attempts) from error

    @property
    def _has_answered(self) -> bool:
        return self._answered or self._reach.reached

    @property
    def _has_worked(self) -> bool:
        """So that credentials which are away or refused are no mistake in how the application was set up."""
        return self.worked or self._reach.reached

    def _patience_s(self, reads: bool) -> float:
        """Puts have their own deadlines above this; what is read is wanted, however long the server is away."""
        if not self._has_answered:
            return self._patience.first_contact_s
        return max(self._patience.patience_s, (self._reach.outage_s or 0.0) if reads else 0.0)

    def _back_off(self, attempts: int) -> None:
        """Exponential with full jitter, so that many partitions do not come back at once."""
        limit = min(self._patience.backoff_max_s, self._patience.backoff_s * 2 ** min(attempts, 16))
        self._sleep(limit * (0.25 + 0.75 * self._chance.random()))

    def _outage_error(self, fault: Fault, error: Exception, doing: str, waited_s: float) -> OutageError:
        """Nothing has answered for as long as may be waited, or there were no credentials to ask with."""
        if fault is Fault.CREDENTIALS:
            return OutageError(f"cannot {doing}, tried for {waited_s:.0f} s (spark.ckpt.timeout): {self._setup_error(error, doing)}")
        return OutageError(
            f"cannot {doing}: {self.place.endpoint} has not answered for {waited_s:.0f} s (spark.ckpt.timeout), at last with "
            f"{self._code(error)}; start the query again when it does"
        )

    def _final_error(self, fault: Fault, error: Exception, doing: str, attempts: int) -> StorageError | DamagedError:
        """After the last attempt of a request that may be asked again."""
        at, code = self.place.endpoint, self._code(error)
        if fault is Fault.MISSING:
            return ObjectMissingError(f"cannot {doing}: there is no such object in {self.place.url}")
        if fault is Fault.GARBLED:
            return DamagedError(f"cannot {doing}: its bytes at {at} do not have the checksum they were stored with")
        if fault in (Fault.FAILED, Fault.EXISTS, Fault.OUT_OF_RANGE):
            return StorageError(f"cannot {doing}: {at} refused ({code}); check the server and its log")
        return StorageError(f"cannot {doing}: {attempts} attempts at {at} failed, the last with {code}; check the server")


def certain(result: T | Fault) -> T:
    """For requests that pass no answers of their own: `run` then returns only what `send` does."""
    if isinstance(result, Fault):
        raise StorageError(f"a request ended in {result.value} where only success or an error can be")
    return result


def _unknown(doing: str, why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"cannot tell whether it worked to {doing}: {why} read it back")
