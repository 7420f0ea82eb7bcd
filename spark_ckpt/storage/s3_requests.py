"""Requests to an S3 server: each is sent until it is answered, or patience ends.

botocore's own retries are off: whether a put may have happened depends on every single attempt, and botocore tells only of the last.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from spark_ckpt.errors import CheckpointError, OutcomeUnknownError, StorageError
from spark_ckpt.storage.base import OPTION, Traffic
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.s3_connection import Connection
from spark_ckpt.storage.s3_faults import (
    CredentialsError,
    Place,
    S3Fault,
    ShortAnswerError,
    code_of,
    fault_of,
    final_error,
    outage_error,
    setup_error,
    unreachable_error,
)

T = TypeVar("T")

_GARBLED_ATTEMPTS = 3
_COUNTED_AS = {
    "GetObject": "get",
    "HeadObject": "head",
    "HeadBucket": "head",
    "ListObjectsV2": "list",
    "DeleteObject": "delete",
    "DeleteObjects": "delete",
    "AbortMultipartUpload": "delete",
}


@dataclass(frozen=True)
class S3Limits:
    """Sizes in bytes, times in seconds. `patience_s` bounds the retries of one request, `first_contact_s` those before any answer where
    none is known to have come (`S3Options.reached`); reads wait for `S3Options.outage_s` if that is longer."""

    single_put_max: int = 16 << 20
    part_size: int = 16 << 20
    part_threads: int = 4
    page_size: int = 1000
    connect_s: float = 5.0
    read_s: float = 30.0
    patience_s: float = 60.0
    first_contact_s: float = 8.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


@dataclass(frozen=True)
class _Done(Generic[T]):
    result: T


class S3Requests:
    """Those of one storage, of all threads. `sleep`, `clock` and `chance` are the system's, but in tests."""

    def __init__(
        self,
        url: str,
        bucket: str,
        options: S3Options,
        limits: S3Limits,
        traffic: Traffic,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: random.Random,
        called: str = OPTION,
    ) -> None:
        self._options = options
        self._limits = limits
        self._traffic = traffic
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._answered = False
        self.worked = False
        """Has one been answered with what it asked for?"""
        self.place = Place(url, bucket, options.endpoint or "Amazon S3", called)
        self._connection = Connection(options, self.place, limits.connect_s, limits.read_s, self._count)
        try:
            self.place = Place(url, bucket, self.client.meta.endpoint_url, called)
        except CredentialsError as error:
            if not self._has_worked:
                raise setup_error(error, "connect", self.place) from error

    @property
    def client(self) -> Any:
        """boto3's. Raises `CredentialsError`, which `run` knows."""
        return self._connection.client

    def close(self) -> None:
        self._connection.close()

    def run(
        self, doing: str, send: Callable[[], T], answers: frozenset[S3Fault] = frozenset(), writes: bool = False, reads: bool = False
    ) -> T | S3Fault:
        """Send until it is answered or patience ends; a fault among `answers` is returned, any other raises what the contract says."""
        started, attempts, maybe_done = self._clock(), 0, False
        while True:
            attempts += 1
            generation = self._connection.generation
            try:
                error = self._attempt(send)
            except CheckpointError as stopped:  # a new client that cannot be made tells nothing of what was sent before
                if maybe_done:
                    raise _unknown(doing, f"an answer was lost, and attempt {attempts} failed: {stopped}; then") from stopped
                raise
            if not isinstance(error, Exception):
                self._answered = self.worked = True
                return error.result
            fault = fault_of(error)
            if isinstance(error, (ClientError, ShortAnswerError)):
                self._answered = True
            if fault in answers:
                return fault
            maybe_done = maybe_done or (writes and fault is S3Fault.LOST)
            again = (
                fault in (S3Fault.AGAIN, S3Fault.LOST, S3Fault.UNREACHABLE)
                or (fault is S3Fault.GARBLED and attempts < _GARBLED_ATTEMPTS)
                or (fault is S3Fault.CREDENTIALS and self._has_worked)
            )
            waited = self._clock() - started
            if again and waited < self._patience(reads):
                why = f"attempt {attempts} at {self.place.endpoint} to {doing} failed with {code_of(error)}; it is tried again"
                self._traffic.retried(why)
                self._back_off(attempts)
                if fault is S3Fault.CREDENTIALS:
                    self._connection.renew(generation)
                continue
            if maybe_done and fault is S3Fault.CREDENTIALS:
                missing = setup_error(error, doing, self.place)
                raise _unknown(doing, f"an answer was lost, and attempt {attempts} failed: {missing}; then") from error
            if maybe_done:
                raise _unknown(doing, f"the answer was lost in {attempts} attempts, the last with {code_of(error)};") from error
            if fault is S3Fault.SETUP or (fault is S3Fault.CREDENTIALS and not again):
                raise setup_error(error, doing, self.place) from error
            if reads and again and self._options.outage_s is not None and waited >= self._options.outage_s:
                raise outage_error(error, doing, self.place, waited) from error
            if fault is S3Fault.CREDENTIALS:
                raise StorageError(str(setup_error(error, doing, self.place))) from error
            if fault is S3Fault.UNREACHABLE and not self._has_answered:
                raise unreachable_error(error, self.place) from error
            raise final_error(fault, error, doing, self.place, attempts) from error

    @property
    def _has_answered(self) -> bool:
        return self._answered or self._options.reached

    @property
    def _has_worked(self) -> bool:
        """So that credentials which are away or refused are no mistake in how the application was set up."""
        return self.worked or self._options.reached

    def _patience(self, reads: bool) -> float:
        """Puts have their own deadlines above this; what is read is wanted, however long the server is away."""
        if not self._has_answered:
            return self._limits.first_contact_s
        return max(self._limits.patience_s, (self._options.outage_s or 0.0) if reads else 0.0)

    def _attempt(self, send: Callable[[], T]) -> _Done[T] | Exception:
        try:
            return _Done(send())
        except (BotoCoreError, ClientError, ResponseParserError, HTTPError, ShortAnswerError, CredentialsError) as error:
            cause = getattr(error, "kwargs", {}).get("error")
            if isinstance(cause, CheckpointError):  # botocore wraps what reading the body raises: a local file that shrank
                raise cause from None
            return error

    def _back_off(self, attempts: int) -> None:
        """Exponential with full jitter, so that many partitions do not come back at once."""
        limit = min(self._limits.backoff_max_s, self._limits.backoff_s * 2 ** min(attempts, 16))
        self._sleep(limit * (0.25 + 0.75 * self._chance.random()))

    def _count(self, request: Any, event_name: str, **_: object) -> None:
        operation = _COUNTED_AS.get(event_name.rsplit(".", 1)[-1], "put")
        if operation == "put":
            self._traffic.sent(int(request.headers.get("Content-Length", 0)))
            if "If-None-Match" in request.headers:
                operation = "put_if_absent"
        self._traffic.request(operation)


def _unknown(doing: str, why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"cannot tell whether it worked to {doing}: {why} read it back")
