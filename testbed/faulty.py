"""A storage that fails on demand: wraps any other one and injects faults by key, operation and moment, reproducibly."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from spark_ckpt.errors import DamagedError, OutcomeUnknownError, StorageError
from spark_ckpt.storage.base import LARGEST_READ, PutResult, Slice, Storage, Stored
from spark_ckpt.storage.slices import SliceReader, check_slices


class Moment(Enum):
    """Where a fault strikes."""

    FAIL_BEFORE = "FAIL_BEFORE"
    """`StorageError`, and nothing has happened."""
    LOSE_ANSWER = "LOSE_ANSWER"
    """It happened, and `OutcomeUnknownError` (a put) or `StorageError` (anything else) is raised."""
    DELAY = "DELAY"
    """`Fault.pause` runs first: a sleep, a wait for an event, the kill of a process."""
    TRUNCATE = "TRUNCATE"
    """Only half of the bytes arrive. A put stores half; a read of known length raises `DamagedError`, one of unknown length is short."""
    FLIP = "FLIP"
    """A byte in the middle of a read is another one, and only a checksum tells."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, for which keys (`fnmatch` pattern) and operations (empty: all).

    Operations: put (also of slices), put_if_absent, get (also to a file), head, list, delete. The first `skip` matches pass, then each
    match is hit with `probability`, at most `times` times (None: for ever).
    """

    moment: Moment
    pattern: str = "*"
    operations: frozenset[str] = frozenset()
    skip: int = 0
    times: int | None = 1
    probability: float = 1.0
    delay_s: float = 0.0
    pause: Callable[[], None] | None = None


@dataclass(frozen=True)
class Hit:
    """A fault that struck."""

    moment: Moment
    operation: str
    key: str


class _Armed:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.struck = 0


class FaultyStorage(Storage):
    """Shares the wrapped storage's counters. The same seed and the same order of calls give the same faults. `hits` tells what struck."""

    def __init__(self, inner: Storage, faults: Iterable[Fault] = (), seed: int = 0, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(inner.url, inner.traffic)
        self.inner = inner
        self.seed = seed
        self.hits: Sequence[Hit] = ()
        self._random = random.Random(seed)
        self._sleep = sleep
        self._faults_lock = threading.Lock()
        self._armed = [_Armed(fault) for fault in faults]

    def inject(self, fault: Fault) -> None:
        """One more, after those that are there."""
        with self._faults_lock:
            self._armed = [*self._armed, _Armed(fault)]

    def heal(self) -> None:
        """No more faults."""
        with self._faults_lock:
            self._armed = []

    def put(self, key: str, data: bytes) -> None:
        moments = self._strike("put", key)
        self.inner.put(key, data[: len(data) // 2] if Moment.TRUNCATE in moments else data)
        self._lose(moments, "put", key)

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        moments = self._strike("put", key)
        if Moment.TRUNCATE in moments:
            total = check_slices(slices)
            with SliceReader(slices, 0, total // 2) as reader:
                self.inner.put(key, reader.read())
        else:
            self.inner.put_slices(key, slices)
        self._lose(moments, "put", key)

    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        moments = self._strike("put_if_absent", key)
        result = self.inner.put_if_absent_dated(key, data[: len(data) // 2] if Moment.TRUNCATE in moments else data)
        self._lose(moments, "put_if_absent", key)
        return result

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        moments = self._strike("get", key)
        data = self.inner.get(key, offset, length, limit)
        self._lose(moments, "get", key)
        if Moment.FLIP in moments:
            data = _flipped(data)
        if Moment.TRUNCATE not in moments:
            return data
        if length is not None:
            raise DamagedError(f"{self.url}/{key}: {len(data) // 2} bytes instead of {length} (injected)")
        return data[: len(data) // 2]

    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        moments = self._strike("get", key)
        if Moment.TRUNCATE in moments:
            raise DamagedError(f"{self.url}/{key}: {length // 2} bytes instead of {length} (injected)")
        crc = self.inner.get_to_file(key, offset, length, path, at)
        self._lose(moments, "get", key)
        if Moment.FLIP not in moments:
            return crc
        with path.open("r+b") as file:
            file.seek(at or 0)
            data = _flipped(file.read(length))
            file.seek(at or 0)
            file.write(data)
        return zlib.crc32(data)

    def size(self, key: str) -> int | None:
        moments = self._strike("head", key)
        size = self.inner.size(key)
        self._lose(moments, "head", key)
        return size

    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        moments = self._strike("list", prefix)
        yield from self.inner.list(prefix, start_after)
        self._lose(moments, "list", prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        moments = self._strike("list", prefix)
        yield from self.inner.list_folders(prefix)
        self._lose(moments, "list", prefix)

    def delete(self, keys: Iterable[str]) -> None:
        names = tuple(keys)
        moments = frozenset(moment for key in names for moment in self._strike("delete", key))
        self.inner.delete(names)
        self._lose(moments, "delete", ", ".join(names))

    def close(self) -> None:
        self.inner.close()

    def _strike(self, operation: str, key: str) -> frozenset[Moment]:
        """Which faults strike this call; runs the pauses, then fails if one says so."""
        struck = []
        with self._faults_lock:
            for armed in self._armed:
                fault = armed.fault
                if (fault.operations and operation not in fault.operations) or not fnmatchcase(key, fault.pattern):
                    continue
                armed.seen += 1
                if armed.seen <= fault.skip or (fault.times is not None and armed.struck >= fault.times):
                    continue
                if fault.probability < 1.0 and self._random.random() >= fault.probability:
                    continue
                armed.struck += 1
                struck.append(fault)
            self.hits = (*self.hits, *(Hit(fault.moment, operation, key) for fault in struck))
        for fault in struck:
            if fault.moment is Moment.DELAY:
                if fault.delay_s > 0:
                    self._sleep(fault.delay_s)
                if fault.pause is not None:
                    fault.pause()
        moments = frozenset(fault.moment for fault in struck)
        if Moment.FAIL_BEFORE in moments:
            raise StorageError(f"{operation} {self.url}/{key} failed (injected, seed {self.seed})")
        return moments

    def _lose(self, moments: frozenset[Moment], operation: str, key: str) -> None:
        if Moment.LOSE_ANSWER not in moments:
            return
        message = f"the answer to {operation} {self.url}/{key} was lost (injected, seed {self.seed})"
        raise OutcomeUnknownError(message) if operation in ("put", "put_if_absent") else StorageError(message)


def _flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(byte ^ 1 for byte in data[at : at + 1]) + data[at + 1 :]
