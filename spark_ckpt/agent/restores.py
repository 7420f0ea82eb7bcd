"""The start of a run: each range of the checkpoint that it goes on from is read once, however many partitions need a part of it.

Changelogs of all partitions lie back to back in segments, a segment for each epoch. If every task read its own part of each, a hundred
partitions with a hundred changelogs would be ten thousand requests. So whichever task asks first has a segment read for all, and what it
brings is kept in the agent's folder until the others have taken theirs, or until the start is over.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from spark_ckpt.agent.reads import Reader, Reading, Span, check, unlink
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.errors import DamagedError, ObjectMissingError, StorageError
from spark_ckpt.model import Handle, Snapshot, StoreId
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.ranges import NEAR_BYTES, PIECE_BYTES, copy_part, near, span_of

READ_AHEAD_AT_ONCE = 8
IDLE_S = 60.0
"""Longer than most starts take until their first task asks, and than most tasks take that have begun at once: to give way too early costs
a second read."""


@dataclass(frozen=True)
class Reach:
    """What is read together: files at most `apart` bytes from each other, `together` bytes in all. `ahead`: without being asked for."""

    apart: int
    together: int
    ahead: bool


ALONE = Reach(256 << 10, PIECE_BYTES, ahead=True)
"""Of the only executor, that of a local master: all partitions are its own. The bytes between are read faster than asked for."""
ONE_OF_MANY = Reach(NEAR_BYTES, 256 << 10, ahead=False)
"""Of an executor that does not know which partitions it will get. A request costs as much as some hundred KB, so what lies around a file
that is needed is read with it up to there, and nothing else before a task asks."""


@dataclass(frozen=True)
class Load:
    """Stores, and the bytes it takes to load them."""

    snapshots: int = 0
    bytes: int = 0

    @staticmethod
    def of(snapshot: Snapshot) -> Load:
        return Load(1, snapshot.size)

    def __add__(self, other: Load) -> Load:
        return Load(self.snapshots + other.snapshots, self.bytes + other.bytes)

    def __sub__(self, other: Load) -> Load:
        return Load(self.snapshots - other.snapshots, self.bytes - other.bytes)


class Restore:
    """What one checkpoint holds, for the tasks of one executor. Thread-safe.

    `room`: what may lie here, read and not taken, of this and of all other restores of the agent; beyond it each task reads for itself.
    `is_here`: whether a file is on this machine already, so that nothing need be read ahead for it.
    """

    def __init__(
        self,
        storage: Storage,
        snapshots: Mapping[StoreId, Snapshot],
        reader: Reader,
        reach: Reach,
        room: RestoreRoom,
        is_here: Callable[[StoreId, Handle], bool] = lambda _, __: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshots: Collection[Snapshot] = snapshots.values()
        self._storage = storage
        self._reader = reader
        self._room = room
        self._lock = threading.Lock()
        self._closed = False
        self._on_the_way: set[Reading] = set()
        self._read_spans: set[Span] = set()
        ordered = sorted(snapshots.values(), key=lambda s: (s.store.partition, s.store.operator, s.store.store))
        needed = [handle for snapshot in ordered for handle in snapshot.handles if not is_here(snapshot.store, handle)]
        self._spans = _spans(needed, reach)
        self._ahead: Iterator[Span] = self._in_order(needed) if reach.ahead else iter(())
        self._next: Span | None = None
        self._clock = clock
        self._asking = 0
        self._asked_at = clock()
        self._patience_s = IDLE_S
        room.hold(self._give_way)

    def bring(self, wanted: Sequence[tuple[Handle, Path]]) -> list[tuple[Handle, Path]]:
        """Put files where they are wanted, each compared with its checksum. Returns those that have to be read by themselves: they are not
        among what is read together, or did not come out of it intact, and only who needs one should hear of that.

        Raises `StorageError` for a read that was begun for these, OSError for the local disk.
        """
        with self._asks():
            return self._bring(wanted)

    def _bring(self, wanted: Sequence[tuple[Handle, Path]]) -> list[tuple[Handle, Path]]:
        found = [(self._span(handle), handle, target) for handle, target in wanted]
        try:
            mine = {span: self._begin(span) for span in dict.fromkeys(span for span, _, _ in found if span is not None)}
        finally:
            self.go_on()
        left = []
        for span, handle, target in found:
            try:
                if span is None or not self._take(span, mine[span] or span.reading, handle, target):
                    left.append((handle, target))
            except StorageError:
                if span is not None:
                    if mine[span] is not None and not self._closed:
                        raise
                    self._taken(span)
                left.append((handle, target))
        return left

    def go_on(self) -> None:
        """Read ahead, as far as there is room; and so do other streams."""
        self._read_ahead()
        self._room.tell()

    def close(self) -> None:
        """Nothing that is kept is needed any more."""
        with self._lock:
            self._closed = True
            self._ahead, self._next = iter(()), None
            self._spans = {}
            for span in list(self._read_spans):
                self._give_up(span)
        self._room.release(self._give_way)
        self.go_on()

    @contextmanager
    def _asks(self) -> Iterator[None]:
        with self._lock:
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                self._asked_at = self._clock()

    def _is_idle(self) -> bool:
        """Under the lock."""
        return not self._asking and self._clock() >= self._asked_at + self._patience_s

    def _give_way(self) -> None:
        """To who needs the room. What is asked for after all is read a second time: then, for a task, and given up less soon."""
        with self._lock:
            if not self._is_idle():
                return
            self._ahead, self._next = iter(()), None
            self._room.leave(self._read_ahead)
            given_up = [span for span in self._read_spans if span.reading not in self._on_the_way]
            for span in given_up:
                self._give_up(span)
            if given_up:
                self._patience_s *= 2

    def _span(self, handle: Handle) -> Span | None:
        with self._lock:
            spans = self._spans.get(handle.object, ())
            at = bisect_right(spans, handle.offset, key=lambda span: span.offset) - 1
            found = spans[at] if at >= 0 else None
            return found if found is not None and found.waiting > 0 and found.covers(handle.offset, handle.length) else None

    def _in_order(self, needed: Iterable[Handle]) -> Iterator[Span]:
        """As tasks will ask: partition by partition."""
        for handle in needed:
            spans = self._spans.get(handle.object, ())
            at = bisect_right(spans, handle.offset, key=lambda span: span.offset) - 1
            if at >= 0:
                yield spans[at]

    def _read_ahead(self) -> None:
        while (found := self._next_ahead()) is not None:
            with suppress(OSError, StorageError):  # a full disk, or the end: who needs the file says so
                self._read(*found)

    def _next_ahead(self) -> tuple[Span, Reading] | None:
        with self._lock:
            while len(self._on_the_way) < READ_AHEAD_AT_ONCE:
                span, self._next = self._next or next(self._ahead, None), None
                if span is None:
                    break
                if span.reading is not None or span.waiting <= 0 or span.length > self._room.limit_ahead:
                    continue
                if not self._room.take_ahead(span.length, self._read_ahead):
                    self._next = span
                    if self._is_idle():
                        self._room.leave(self._read_ahead)
                    return None
                return span, self._new_reading(span)
            self._room.leave(self._read_ahead)
            return None

    def _begin(self, span: Span) -> Reading | None:
        """For a task; unless it has begun, or there is no room to keep it. Raises like `Reading.begin`."""
        with self._lock:
            is_to_be_kept = self._is_to_be_read(span) and not span.single
        if is_to_be_kept:
            self._room.make_way(span.length)
        with self._lock:
            if not self._is_to_be_read(span):
                return None
            if span.single:
                self._room.take_at_once(span.length)
            elif not self._room.take(span.length):
                span.waiting = 0  # what one reads by itself is not read again for the others
                return None
            reading = self._new_reading(span)
        self._read(span, reading)
        return reading

    def _is_to_be_read(self, span: Span) -> bool:
        """Under the lock."""
        return not self._closed and span.reading is None and span.waiting > 0

    def _new_reading(self, span: Span) -> Reading:
        """Under the lock."""
        reading = span.reading = self._reader.reading(self._storage, span.name, span.offset, span.length)
        self._on_the_way.add(reading)
        self._read_spans.add(span)
        return reading

    def _read(self, span: Span, reading: Reading) -> None:
        try:
            self._reader.begin(reading, lambda is_there: self._ended(span, reading, is_there))
        except BaseException:
            self._settle(span, reading, is_there=False)
            raise

    def _ended(self, span: Span, reading: Reading, is_there: bool) -> None:
        self._settle(span, reading, is_there)
        self.go_on()

    def _settle(self, span: Span, reading: Reading, is_there: bool) -> None:
        """Nothing of it is on its way any more: only now can room be given back of what was given up meanwhile."""
        with self._lock:
            self._on_the_way.remove(reading)
            if span.reading is not reading:
                unlink(reading.path)
                self._room.give_back(span.length)
            elif not is_there:
                self._forget(span)
        if not is_there:
            self._stop_ahead()

    def _stop_ahead(self) -> None:
        """No more is asked of a storage or a disk in trouble than what is needed."""
        with self._lock:
            self._ahead, self._next = iter(()), None

    def _take(self, span: Span, reading: Reading | None, handle: Handle, target: Path) -> bool:
        """False: the file has to be read by itself. Raises `StorageError`, OSError."""
        if reading is None:
            return False
        try:
            checksum = reading.wait()
        except (DamagedError, ObjectMissingError):
            with self._lock:
                span.waiting = 0  # each reads what it needs for itself: that may be intact
            return False
        try:
            if span.single:
                check(checksum, handle.checksum)
                os.replace(reading.path, target)
            else:
                check(copy_part(reading.path, handle.offset - span.offset, handle.length, target), handle.checksum)
            return True
        except (DamagedError, FileNotFoundError):
            target.unlink(missing_ok=True)
            return False
        finally:  # also where the disk is full: then less lies on it, and who tries again may have to read for itself
            self._taken(span)

    def _taken(self, span: Span) -> None:
        with self._lock:
            span.waiting -= 1
            if span.waiting <= 0:
                self._give_up(span)
        self.go_on()

    def _give_up(self, span: Span) -> None:
        """Under the lock."""
        if span.reading is not None:
            unlink(span.reading.path)
            self._forget(span)

    def _forget(self, span: Span) -> None:
        """Under the lock."""
        reading, span.reading = span.reading, None
        self._read_spans.discard(span)
        if reading is not None and reading not in self._on_the_way:
            self._room.give_back(span.length)


def _spans(handles: Iterable[Handle], reach: Reach) -> dict[str, list[Span]]:
    """By object, in their order."""
    found: dict[str, list[Span]] = {}
    for group in near(handles, reach.apart, reach.together):
        offset, length = span_of(group)
        found.setdefault(group[0].object, []).append(Span(group[0].object, offset, length, len(group)))
    return found
