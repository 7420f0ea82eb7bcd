"""What a storage can do. One contract suite (tests/contract) runs over every implementation.

Keys are relative to the storage's root, use `/`, and never start or end with it. Values are immutable once put: the same key is
never put twice with different content, except by mistake, which `put_if_absent` catches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType


class PutResult(Enum):
    """Outcome of a put-if-absent that was answered."""

    STORED = "STORED"
    EXISTS = "EXISTS"
    """Something is there already: possibly one's own put, sent again by a client whose first answer was lost. Read it and compare."""


@dataclass(frozen=True)
class Slice:
    """A range of a local file."""

    path: Path
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

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Store under a key that nobody else uses. Durable when it returns."""

    @abstractmethod
    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:
        """Store the slices back to back, streaming: memory is bounded whatever their size. Durable when it returns.

        Raises `DamagedError` if a local file is shorter than its slice says.
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Store atomically unless the key exists. Of any number of concurrent calls exactly one is STORED."""

    @abstractmethod
    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read all or a range. Raises `ObjectMissingError`, and `DamagedError` if fewer bytes arrive than asked for."""

    @abstractmethod
    def get_to_file(self, key: str, offset: int, length: int, path: Path) -> int:
        """Write a range to a new local file, streaming; returns the CRC-32 of what was written. Raises like `get`."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Length in bytes, or None where there is no such object."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> Iterator[Stored]:
        """Every object whose key starts with `prefix`, in key order, beginning after `start_after`."""

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
