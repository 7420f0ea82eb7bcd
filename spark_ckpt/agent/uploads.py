"""Packing what is queued into segments and packs, and storing it.

Changelogs and zips go into a segment: a store's next full snapshot makes them superfluous. SSTs live on through many checkpoints, so they
are kept apart: large ones as objects of their own, small ones in packs.

Flink's counterparts: `FileMergingSnapshotManager` (many snapshots in one file) and `RocksDBStateUploader` (shared files).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_ckpt.agent.staging import FileState, StateFile, local_error
from spark_ckpt.errors import CheckpointError, DamagedError, StorageError, StorageSetupError
from spark_ckpt.model import Handle, HandleKind
from spark_ckpt.paths import pack_key, segment_key, sst_key
from spark_ckpt.storage.base import Slice, Storage

OWN_OBJECT_BYTES = 1 << 20
"""SSTs from this size on are objects of their own."""
PACK_BYTES = 64 << 20
"""A pack is not much larger than that."""
_UPLOADS_AT_ONCE = 4
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


Done = Callable[[list[StateFile], str], None]
"""The files of one object, now stored, or gone because they are not what was staged, or still uploading: then with the cause."""


class Uploader:
    """Stores files of one stream; several objects at once, each retried by itself until `retry_s` seconds after it was asked for."""

    def __init__(self, storage: Storage, retry_s: float, warn: Callable[[str], None]) -> None:
        self._storage = storage
        self._retry_s = retry_s
        self._warn = warn
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="upload")
        self._closing = threading.Event()

    def upload(self, run: int, epoch: int, files: Sequence[StateFile], done: Done) -> None:
        """Store claimed files of one checkpoint, as few objects. `done` hears of each object, in another thread."""
        until = time.monotonic() + self._retry_s
        ssts = [p for p in files if p.kind is HandleKind.SST]
        segment = [p for p in files if p.kind is not HandleKind.SST]
        alone = [[p] for p in ssts if p.length >= OWN_OBJECT_BYTES]
        for group in ([segment] if segment else []) + into_packs([p for p in ssts if p.length < OWN_OBJECT_BYTES]) + alone:
            self._pool.submit(self._run, run, epoch, group, until, done)

    def end(self) -> None:
        """No more retries, and nothing is begun that has not been."""
        self._closing.set()

    def close(self) -> None:
        """Drop what has not begun; nobody hears of it."""
        self.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, run: int, epoch: int, group: list[StateFile], until: float, done: Done) -> None:
        cause = ""
        try:
            if self._closing.is_set():
                raise StorageError("uploads have ended")
            self._store(run, epoch, group, until)
        except CheckpointError as error:
            cause = str(error)
        except OSError as error:
            cause = str(local_error(error, Path(error.filename or "the spool")))
        except Exception as error:
            cause = f"internal error, please report it: {type(error).__name__}: {error}"
            raise
        finally:
            done(group, cause)

    def _store(self, run: int, epoch: int, group: list[StateFile], until: float) -> None:
        checksums = {id(p): _checksum(p) for p in group}
        while files := [p for p in group if p.state is FileState.UPLOADING]:
            key = _new_key(run, epoch, files)
            try:
                self._put(key, [Slice(p.check(), 0, p.length) for p in files], until)
            except DamagedError:
                before = len(files)
                _drop_changed(files)
                if len([p for p in files if p.state is FileState.UPLOADING]) == before:
                    raise
                continue  # the others under a new key: a key never holds two contents
            _drop_changed(files)
            offset = 0
            for file in files:
                if file.state is FileState.UPLOADING:
                    file.store(Handle(file.kind, file.name, key, offset, file.length, checksums[id(file)]))
                offset += file.length

    def _put(self, key: str, slices: list[Slice], until: float) -> None:
        """A put whose answer was lost is sent again: same key, same content."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._storage.put_slices(key, slices)
            except StorageError as error:
                if isinstance(error, StorageSetupError) or time.monotonic() + pause >= until:
                    raise
                self._warn(f"upload of {key} failed and is tried again: {error}")
                if self._closing.wait(pause):
                    raise
                pause = min(pause * 2, _LONGEST_PAUSE_S)


def into_packs(ssts: Sequence[StateFile]) -> list[list[StateFile]]:
    """Small SSTs in as few packs as their size allows."""
    found: list[list[StateFile]] = []
    room = 0
    for file in ssts:
        if not found or file.length > room:
            found.append([])
            room = PACK_BYTES
        found[-1].append(file)
        room -= file.length
    return found


def _new_key(run: int, epoch: int, files: Sequence[StateFile]) -> str:
    unique = uuid.uuid4().hex
    if files[0].kind is not HandleKind.SST:
        return segment_key(run, epoch, unique)
    return sst_key(run, unique) if files[0].length >= OWN_OBJECT_BYTES else pack_key(run, unique, sum(p.length for p in files))


def _checksum(file: StateFile) -> int:
    try:
        return file.checksum()
    except DamagedError as error:
        file.drop(str(error))
    except OSError as error:
        file.drop(f"{file.name} cannot be read: {error.strerror}")
    return 0


def _drop_changed(files: list[StateFile]) -> None:
    for file in files:
        if trouble := file.trouble():
            file.drop(trouble)
