"""A stream's log as it lies in the storage: where it ends, what an entry holds, when it was stored; for all who read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError
from spark_ckpt.protocol.entries import LIMITS, Entry, Request, decode
from spark_ckpt.protocol.start.gallop import Gallop
from spark_ckpt.storage.base import PAGE, PutResult, Storage

WIDEST_GAP = 100_000
"""Entries that can be missing between two that are there: a start asks for each of them, to say which ones."""
_READERS = 8
"""Entries that are read at a time."""

T = TypeVar("T")


class StreamLog:
    """`storage` is rooted at the stream. Methods raise `StorageError`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def tail(self, known: int = 0) -> int:
        """The highest number, 0 for none; `known`: an entry that probably exists, to begin to look at.

        A gallop upwards finds the first number that is not there; one LIST behind it tells the tail from a gap, into which nobody may
        write: to somebody whose reading ended there it would look like the end. Gaps below the floor are where old entries were deleted.
        Raises `DamagedError` for an entry far behind the others that is above the floor.
        """
        start: int | None = known if known and self.holds(known) else 0
        found = 0
        widest = (0, 0)
        while start is not None:
            gallop = Gallop(start)
            while (number := gallop.probe) is not None:
                gallop.tell(number, self.holds(number))
            found = gallop.found
            start = self._first_after(found)
            if start is not None and start - found > WIDEST_GAP:
                widest = (found, start)
        before, at = widest
        if at and self._last_of(found, before).floor < at:
            raise DamagedError(
                f"{self._storage.url_of(paths.log_key(at))} cannot be an entry of this log, the one before it is {before}; it is forged or "
                "was put there by mistake: remove it"
            )
        return found

    def _last_of(self, number: int, before: int) -> Entry:
        try:
            return self.entry(number)
        except DamagedError as e:
            raise DamagedError(f"{e}; it lies far behind entry {before}: if it was put there by mistake, remove it") from e

    def stored_ms(self, number: int) -> int | None:
        """When, by the storage's clock; None where there is no such entry."""
        key = paths.log_key(number)
        found = next(iter(self._storage.list(key)), None)
        return found.modified_ms if found is not None and found.key == key else None

    def pause_before(self, claim: int) -> int | None:
        """Milliseconds between entry `claim` and what a run appended before it, by the storage's own times; None where one is gone."""
        before, _ = self.newest_of_a_run(claim - 1)
        was, at = self.stored_ms(before) if before else None, self.stored_ms(claim)
        return None if was is None or at is None else at - was

    def newest_of_a_run(self, number: int) -> tuple[int, Entry | None]:
        """What a run itself appended last, at `number` or before: whoever asks a stream appends a request, whether a query runs or not.

        The entry is None where it is missing, damaged, or there is none: what it was cannot be told.
        """
        width = 1
        with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as pool:
            while number:
                numbers = range(number, max(0, number - width), -1)
                for number, entry in zip(numbers, pool.map(self.readable, numbers), strict=True):
                    if not isinstance(entry, Request):
                        return number, entry
                number, width = numbers[-1] - 1, min(width * 2, _READERS)
        return 0, None

    def all_readable(self, tail: int) -> dict[int, Entry]:
        """Those up to `tail` that are there and can be read. Most numbers of an old stream have no entry any more: only those are read that
        are listed."""
        found = self.each(self.readable, (number for number in self.numbers() if number <= tail))
        return {number: entry for number, entry in found if entry is not None}

    def past(self, number: int) -> tuple[int, bytes] | None:
        """The first entry past that number, None where there is none."""
        while (found := self._first_after(number)) is not None:
            data = self.read(found)
            if data is not None:
                return found, data
            number = found  # deleted since
        return None

    def old(self, floor: int, after: int) -> tuple[list[tuple[int, int]], bool]:
        """Entries below the floor, from behind `after` on, and when each was stored by the storage's clock: as many as one LIST shows, and
        whether there are more."""
        found: list[tuple[int, int]] = []
        for stored in self._storage.list(paths.LOG_PREFIX, paths.log_key(after) if after else ""):
            number = paths.parse_log_key(stored.key)
            if number is None:
                continue
            if number >= floor:
                return found, False
            if len(found) == PAGE:
                return found, True
            found.append((number, stored.modified_ms))
        return found, False

    def put(self, number: int, data: bytes) -> tuple[PutResult, int | None]:
        """Put-if-absent, and when it was stored (`Storage.put_if_absent_dated`)."""
        return self._storage.put_if_absent_dated(paths.log_key(number), data)

    def delete(self, numbers: Iterable[int]) -> None:
        self._storage.delete(paths.log_key(number) for number in numbers)

    def holds(self, number: int) -> bool:
        return self._storage.size(paths.log_key(number)) is not None

    def read(self, number: int) -> bytes | None:
        """The entry as it is stored, None where it is missing."""
        try:
            return self._storage.get(paths.log_key(number), limit=LIMITS.bytes)
        except ObjectMissingError:
            return None

    def entry(self, number: int) -> Entry:
        """One that must be there. Raises `DamagedError`, `FormatError`."""
        found = self.found(number)
        if found is None:
            raise DamagedError(f"log entry {number} of {self._storage.url} is missing, although there are later ones; put it back")
        return found

    def found(self, number: int) -> Entry | None:
        """One that may be missing: None. Raises `FormatError`."""
        data = self.read(number)
        try:
            return None if data is None else decode(number, data)
        except FormatError as e:
            raise FormatError(f"{self._storage.url}: {e}") from e

    def readable(self, number: int) -> Entry | None:
        """None for one that is missing, and for one that cannot be read."""
        try:
            return self.found(number)
        except FormatError:
            return None

    def numbers(self) -> Iterator[int]:
        """Of all that are there, ascending."""
        return (n for stored in self._storage.list(paths.LOG_PREFIX) if (n := paths.parse_log_key(stored.key)) is not None)

    def each(self, read: Callable[[int], T], numbers: Iterable[int]) -> Iterator[tuple[int, T]]:
        """What one of the ways to read an entry tells of each of these, several at a time."""
        wanted = list(numbers)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as pool:
            yield from zip(wanted, pool.map(read, wanted), strict=True)

    def _first_after(self, number: int) -> int | None:
        keys = (stored.key for stored in self._storage.list(paths.LOG_PREFIX, paths.log_key(number)))
        return next((n for n in map(paths.parse_log_key, keys) if n is not None), None)
