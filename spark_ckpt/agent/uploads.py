"""Packing what is queued into segments, and storing it.

Flink's counterparts: `FileMergingSnapshotManager` (many snapshots in one file) and `RocksDBStateUploader` (shared files).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_ckpt.agent.staging import Part, PartState, local_error
from spark_ckpt.errors import CheckpointError, DamagedError, StorageError, StorageSetupError
from spark_ckpt.model import Handle, HandleKind
from spark_ckpt.paths import segment_key, sst_key
from spark_ckpt.storage.base import Slice, Storage

OWN_OBJECT_BYTES = 1 << 20
"""SSTs from this size on are objects of their own: they are reused by many checkpoints, a segment would outlive its other content."""
_UPLOADS_AT_ONCE = 4
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


class Uploader:
    """Stores parts of one stream; several objects at once, each retried by itself until `retry_s` seconds have passed."""

    def __init__(self, storage: Storage, retry_s: float, warn: Callable[[str], None]) -> None:
        self._storage = storage
        self._retry_s = retry_s
        self._warn = warn
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="upload")
        self._closing = threading.Event()

    def upload(self, run: int, epoch: int, parts: Sequence[Part], done: Callable[[], None]) -> None:
        """Store the parts of one checkpoint; `done` is called, in another thread, after each object, when its parts have settled."""
        alone = [p for p in parts if p.kind is HandleKind.SST and p.length >= OWN_OBJECT_BYTES]
        packed = [p for p in parts if p not in alone]
        for group in ([packed] if packed else []) + [[p] for p in alone]:
            self._pool.submit(self._run, run, epoch, group, group is not packed, done)

    def end(self) -> None:
        """No more retries."""
        self._closing.set()

    def close(self) -> None:
        """Drop what has not begun."""
        self.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, run: int, epoch: int, group: list[Part], alone: bool, done: Callable[[], None]) -> None:
        try:
            self._store(run, epoch, group, alone)
        except CheckpointError as error:
            _fail(group, str(error))
        except OSError as error:
            _fail(group, str(local_error(error, Path(error.filename or "the spool"))))
        except Exception as error:
            _fail(group, f"internal error, please report it: {type(error).__name__}: {error}")
            raise
        finally:
            done()

    def _store(self, run: int, epoch: int, group: list[Part], alone: bool) -> None:
        checksums = {id(p): _checksum(p) for p in group}
        while parts := [p for p in group if p.state is PartState.STAGED]:
            unique = uuid.uuid4().hex
            key = sst_key(run, unique) if alone else segment_key(run, epoch, unique)
            try:
                self._put(key, [Slice(p.check(), 0, p.length) for p in parts])
            except DamagedError:
                before = len(parts)
                _fail_changed(parts)
                if len([p for p in parts if p.state is PartState.STAGED]) == before:
                    raise
                continue  # the others under a new key: a key never holds two contents
            _fail_changed(parts)
            offset = 0
            for part in parts:
                if part.state is PartState.STAGED:
                    part.store(Handle(part.kind, part.name, key, offset, part.length, checksums[id(part)]))
                offset += part.length

    def _put(self, key: str, slices: list[Slice]) -> None:
        """A put whose answer was lost is sent again: same key, same content."""
        end = time.monotonic() + self._retry_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._storage.put_slices(key, slices)
            except StorageError as error:
                if isinstance(error, StorageSetupError) or time.monotonic() + pause >= end:
                    raise
                self._warn(f"upload of {key} failed and is tried again: {error}")
                if self._closing.wait(pause):
                    raise
                pause = min(pause * 2, _LONGEST_PAUSE_S)


def _checksum(part: Part) -> int:
    try:
        return part.checksum()
    except DamagedError as error:
        part.fail(str(error))
    except OSError as error:
        part.fail(f"{part.name} cannot be read: {error.strerror}")
    return 0


def _fail(group: list[Part], cause: str) -> None:
    for part in group:
        if part.state is PartState.STAGED:
            part.fail(cause)


def _fail_changed(parts: list[Part]) -> None:
    for part in parts:
        if trouble := part.trouble():
            part.fail(trouble)
