"""What a storage can do. One contract suite (tests/contract) runs over every implementation.

Keys are relative to the storage's root, use `/`, and never start or end with it. Values are immutable once put: the same key is
never put twice with different content, except by mistake, which `put_if_absent` catches.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

from spark_ckpt.errors import ConfigError, FormatError, StorageError

_BAD_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(^|/)(\.{0,2}|\.tmp)(/|$)")
_BAD_ROOT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(^|/)\.{0,2}(/|$)")
_BAD_PREFIX = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(^|/)(\.{0,2}|\.tmp)/")


def is_key(key: str) -> bool:
    """False for what may lie in a storage, and was not put there through this interface: nobody can ask for it."""
    return _BAD_KEY.search(key) is None


def check_key(key: str) -> str:
    """Refuse a key that could leave the root, that XML or UTF-8 cannot carry, or that names a temporary file (`.tmp/`, see file.py)."""
    if not is_key(key):
        raise FormatError(f"the object name {key!r} is not allowed in a storage; it must be a plain relative path")
    return key


def check_prefix(prefix: str) -> str:
    """The same for the beginning of a key; empty is everything."""
    if _BAD_PREFIX.search(prefix):
        raise FormatError(f"the object prefix {prefix!r} is not allowed in a storage; it must begin a plain relative path")
    return prefix


OPTION = "spark.ckpt.storage"
"""With what a storage is named in a query's configuration."""


def check_root(url: str, path: str, called: str = OPTION) -> str:
    """The same for what lies above all keys, in a storage without folders: its user names it, and may name it `.tmp`."""
    if _BAD_ROOT.search(path):
        raise ConfigError(
            f"{url} cannot be a storage, for {path!r} is no plain path; leave out '.', '..', empty parts and control characters, in "
            + (f"{called} and in the checkpointLocation" if called == OPTION else called)
        )
    return path


def check_size(name: str, size: int, limit: int) -> None:
    """Raises `FormatError` where a read of `size` bytes of the object `name`, a URL, is not to be begun."""
    if size > limit:
        raise FormatError(f"{name} has {size} bytes to read, more than the {limit} that such an object can have; it is damaged or forged")


HEARS_EVERY_S = 10.0
PAGE = 1000
"""Keys in one answer to a LIST, and in one DELETE."""
LARGEST_READ = 512 << 20
"""Bytes that `get` brings into memory where its caller names no limit of its own."""


class Traffic:
    """What a storage was asked to do: requests by operation (put, put_if_absent, get, head, list, delete) and payload bytes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._heard_at = float("-inf")
        self.tell: Callable[[str], None] = lambda _: None
        """Hears why requests are sent again: a sentence, at most every `HEARS_EVERY_S` seconds."""
        self.requests: Counter[str] = Counter()
        self.retries = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def request(self, operation: str, count: int = 1) -> None:
        with self._lock:
            self.requests[operation] += count

    def listed(self, found: Iterable[Stored]) -> Iterator[Stored]:
        """What a listing has found; counts the requests an object store would need: one for each `PAGE` keys, one where nothing is."""
        count = 0
        for stored in found:
            if count % PAGE == 0:
                self.request("list")
            count += 1
            yield stored
        if count == 0:
            self.request("list")

    def retried(self, why: str) -> None:
        """A request is sent because an earlier one has failed."""
        with self._lock:
            self.retries += 1
            now = self._clock()
            is_due = now - self._heard_at >= HEARS_EVERY_S
            if is_due:
                self._heard_at = now
        if is_due:
            self.tell(why)

    def to_json(self) -> dict[str, int]:
        """docs/pipes.md, `storage`."""
        with self._lock:
            requests = sum(self.requests.values())
            return {"requests": requests, "retries": self.retries, "bytes_in": self.bytes_in, "bytes_out": self.bytes_out}

    def received(self, count: int) -> None:
        with self._lock:
            self.bytes_in += count

    def sent(self, count: int) -> None:
        with self._lock:
            self.bytes_out += count


class PutResult(Enum):
    """Outcome of a put-if-absent that was answered."""

    STORED = "STORED"
    EXISTS = "EXISTS"
    """Something is there already: possibly one's own put, sent again by a client whose first answer was lost. Read it and compare."""


@dataclass(frozen=True)
class Slice:
    """A range of a local file."""

    path: Path | str
    offset: int
    length: int


@dataclass(frozen=True)
class Stored:
    """One object in a listing."""

    key: str
    size: int
    modified_ms: int


class Storage(ABC):
    """A flat store of immutable objects below one root. Methods are thread-safe and block.

    All raise `StorageError` after their own retries, `StorageSetupError` where retrying cannot help, and `OutcomeUnknownError` where
    a put may have happened.
    """

    url: str
    called: str
    """With what its user has named it, the option or a command's argument: messages tell what to change."""

    def __init__(self, url: str, traffic: Traffic | None = None, called: str = OPTION) -> None:
        self.url = url
        self.called = called
        self.traffic = Traffic() if traffic is None else traffic
        self._closed = False

    def url_of(self, key: str) -> str:
        """Of one object, for messages."""
        return f"{self.url.rstrip('/')}/{key}"

    @property
    def requests(self) -> Counter[str]:
        """Requests so far by operation: put, put_if_absent, get, head, list, delete. On S3 every attempt that went to the wire counts."""
        return self.traffic.requests

    @property
    def bytes_in(self) -> int:
        """Payload read so far."""
        return self.traffic.bytes_in

    @property
    def bytes_out(self) -> int:
        """Payload written so far."""
        return self.traffic.bytes_out

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"the storage {self.url} was closed and is used again; open it anew")

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Store under a key that nobody else uses. Durable when it returns."""

    @abstractmethod
    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        """Store the slices back to back, streaming: memory is bounded whatever their size. Durable when it returns.

        Raises `DamagedError` if a local file is shorter than its slice says.
        """

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Store atomically unless the key exists. Of any number of concurrent calls exactly one is STORED."""
        return self.put_if_absent_dated(key, data)[0]

    @abstractmethod
    def put_if_absent_dated(self, key: str, data: bytes) -> tuple[PutResult, int | None]:
        """The same, and when it was stored: in milliseconds by the storage's own clock, which `Stored.modified_ms` goes by. None where the
        storage does not say, and where it was not stored."""

    @abstractmethod
    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        """Read all or a range. Raises `ObjectMissingError`, `DamagedError` if fewer bytes arrive than asked for, and `FormatError`, before
        any of them is read, where it would be more than `limit` bytes: what lies in a storage may be forged."""

    @abstractmethod
    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        """Write a range to a new local file, or from byte `at` on into one that is there, streaming. Returns the CRC-32 of what was
        written. Raises like `get`; a new file is gone then."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Length in bytes, or None where there is no such object."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        """Every object whose key starts with `prefix`, in key order, beginning after `start_after`; `is_key` is true of all."""

    @abstractmethod
    def list_folders(self, prefix: str) -> Iterator[str]:
        """The distinct continuations of `prefix` up to and including the next `/`, as full keys (S3: common prefixes)."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; a missing one is fine."""

    @abstractmethod
    def close(self) -> None:
        """Release connections; the storage cannot be used afterwards."""

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
