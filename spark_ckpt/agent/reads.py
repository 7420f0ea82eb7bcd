"""Ranges of objects, read to files of the agent's own folder, through the one small pool that all reads of an agent share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from spark_ckpt.agent.staging import Staging
from spark_ckpt.errors import DamagedError, StorageError
from spark_ckpt.process import owner_only
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.checksums import combined
from spark_ckpt.stored.damage import read_twice
from spark_ckpt.stored.ranges import parts_of

_ENDING = "the agent ends with its executor, and reads nothing more"


class Reading:
    """A range on its way to the new file `path`, from `begin` on. Where `wait` raises the file is gone, else it is whose reading it is."""

    def __init__(self, storage: Storage, name: str, offset: int, length: int, path: Path) -> None:
        self.path = path
        self._storage = storage
        self._name = name
        self._offset = offset
        self._parts = parts_of(length)
        self._whole: Future[int] = Future()
        self._lock = threading.Lock()
        self._left = {at for at, _ in self._parts}

    def begin(self, pool: ThreadPoolExecutor, done: Callable[[bool], object]) -> None:
        """`done` hears, once and in any thread, whether the range is there when nothing is read any more. Raises OSError where no file can
        be made; `done` hears nothing then."""
        crcs: dict[int, int] = {}
        errors: list[Exception] = []

        def one(at: int, size: int) -> None:
            with self._lock:
                if at not in self._left:
                    return
            try:
                crcs[at] = read_twice(lambda: self._storage.get_to_file(self._name, self._offset + at, size, self.path, at))
            except Exception as error:
                errors.append(error)
            ended(at)

        def ended(at: int) -> None:
            with self._lock:
                if at not in self._left:
                    return
                self._left.remove(at)
                if self._left:
                    return
            if errors:
                unlink(self.path)
                self._whole.set_exception(errors[0])
            else:
                self._whole.set_result(combined((crcs[at], size) for at, size in self._parts))
            done(not errors)

        def given_up(at: int, part: Future[None]) -> None:
            if part.cancelled():
                errors.append(StorageError(_ENDING))
                ended(at)

        try:
            self.path.touch(owner_only.FILE, exist_ok=False)
        except OSError as error:
            self._whole.set_exception(error)
            raise
        for at, size in self._parts:
            try:
                pool.submit(one, at, size).add_done_callback(partial(given_up, at))
            except RuntimeError as error:  # the pool is shut; or no thread can be started, and another one may still run what was queued
                errors.append(StorageError(_ENDING if "shutdown" in str(error) else f"a read could not be begun: {error}"))
                ended(at)

    def wait(self) -> int:
        """The CRC-32 of the range. Raises `DamagedError`, `ObjectMissingError`, `StorageError`, OSError."""
        return self._whole.result()


class Reader:
    """Long ranges are read in parts, several at once. What arrives damaged is read a second time, part by part."""

    def __init__(self, staging: Staging, pool: ThreadPoolExecutor) -> None:
        self._staging = staging
        self._pool = pool

    def reading(self, storage: Storage, name: str, offset: int, length: int) -> Reading:
        """Of a range of the object `name`, not begun yet."""
        return Reading(storage, name, offset, length, self._staging.path())

    def begin(self, reading: Reading, done: Callable[[bool], object] = lambda _: None) -> None:
        reading.begin(self._pool, done)


class Span:
    """A range of one object that is read once, for all that lies in it: `waiting` files have not been taken out of it yet.

    Belongs to the `Restore` that has made it, whose lock is held for all but `take`.
    """

    __slots__ = ("length", "name", "offset", "reading", "single", "waiting")

    def __init__(self, name: str, offset: int, length: int, waiting: int) -> None:
        self.name = name
        self.offset = offset
        self.length = length
        self.waiting = waiting
        self.single = waiting == 1
        self.reading: Reading | None = None

    def covers(self, offset: int, length: int) -> bool:
        return self.offset <= offset and offset + length <= self.offset + self.length


def unlink(path: Path) -> None:
    """What cannot be unlinked goes with the agent's folder: who waits is told, and room given back, all the same."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def check(checksum: int, wanted: int) -> None:
    """Raises `DamagedError`; who reads the range by itself says more."""
    if checksum != wanted:
        raise DamagedError(f"the CRC-32 is {checksum:08x} instead of {wanted:08x}")
