"""The agent's own folder in the spool: what still has to be uploaded is linked here, out of reach of Spark's maintenance."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import Handle, HandleKind
from spark_ckpt.process import owner_only
from spark_ckpt.process.scratch import ScratchFolder
from spark_ckpt.storage.checksums import crc32_of

_PREFIX = ".agent-"


class FileState(Enum):
    STAGED = "STAGED"
    UPLOADING = "UPLOADING"
    STORED = "STORED"
    GONE = "GONE"
    """It will never be durable: changed or lost in the spool, or dropped because nothing needed it."""


@dataclass(eq=False, slots=True)
class StateFile:
    """One file of a store on its way to the storage, or already there; shared by all chains that need it.

    While it is uploading it belongs to the thread that uploads it, else to the stream's history; `state` changes last.
    """

    kind: HandleKind
    name: str
    length: int
    staging: Staging | None = None
    path: str | None = None
    """The staged file; None: it was never staged here."""
    changed_ns: int = 0
    handle: Handle | None = None
    cause: str = ""
    state: FileState = field(default=FileState.STAGED)

    @staticmethod
    def stored(handle: Handle) -> StateFile:
        return StateFile(handle.kind, handle.name, handle.length, handle=handle, state=FileState.STORED)

    def store(self, handle: Handle) -> None:
        self.handle = handle
        self.state = FileState.STORED
        self._unlink()

    def drop(self, cause: str) -> None:
        self.cause = cause
        self.state = FileState.GONE
        self._unlink()

    def _unlink(self) -> None:
        if self.staging is not None and self.path is not None:
            self.staging.remove(self.path, self.length)

    def trouble(self) -> str:
        """Why the staged file is not what was staged any more; empty if it is."""
        try:
            now = os.stat(self.path) if self.path is not None else None
        except FileNotFoundError:
            now = None
        if now is None:
            return f"{self.name} has vanished from the spool before it was uploaded"
        if (now.st_size, now.st_mtime_ns) != (self.length, self.changed_ns):
            return f"{self.name} was changed in the spool after it was committed ({self.length} bytes then, {now.st_size} now)"
        return ""

    def check(self) -> str:
        """The staged file, if it is still what was staged. Raises `DamagedError`."""
        if (trouble := self.trouble()) or self.path is None:
            raise DamagedError(trouble)
        return self.path

    def checksum(self) -> int:
        """CRC-32 of the file, read in blocks. Raises `DamagedError` if it is not as staged; whether it stays so is for a later `check`."""
        with open(self.check(), "rb", buffering=0) as file:
            return crc32_of(file)


class Staging:
    """A folder of one agent process. Those that dead agents left behind are removed at start; a living one holds a lock on its own.

    `bytes` are those of the staged files that are not stored yet; `changed` hears of every change of it, in any thread but in order.
    """

    def __init__(self, spool: Path, changed: Callable[[int], None] = lambda _: None) -> None:
        self.spool = spool
        self.bytes = 0
        self._changed = changed
        self._counting = threading.Lock()
        self._numbers = itertools.count()
        try:
            self._scratch = ScratchFolder(spool, _PREFIX)
        except OSError as error:
            raise local_error(error, spool) from error
        self._folder = str(self._scratch.path)

    def path(self) -> Path:
        """A new name in the folder."""
        return Path(self._new_name())

    def _new_name(self) -> str:
        return f"{self._folder}/{next(self._numbers)}"  # a Path takes longer to make than the link

    def stage(self, kind: HandleKind, folder: str, name: str) -> StateFile:
        """Link a committed file. Raises FileNotFoundError if it is not there, `StorageError` if the disk does not take it."""
        source, target = f"{folder}/{name}", self._new_name()
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            try:
                with open(source, "rb") as file, open(target, "xb", opener=owner_only.opener) as copy:
                    shutil.copyfileobj(file, copy)
            except FileNotFoundError:
                raise
            except OSError as error:
                Path(target).unlink(missing_ok=True)
                raise local_error(error, self.spool) from error
        now = os.stat(target)
        self._count(now.st_size)
        return StateFile(kind, name, now.st_size, self, target, now.st_mtime_ns)

    def remove(self, path: str, length: int) -> None:
        """A staged file is not needed any more."""
        with contextlib.suppress(OSError):  # what cannot be unlinked goes with the folder
            os.unlink(path)
        self._count(-length)

    def _count(self, more: int) -> None:
        with self._counting:
            self.bytes += more
            self._changed(self.bytes)

    def close(self) -> None:
        self._scratch.close()


def local_error(error: OSError, folder: Path) -> CheckpointError:
    """A sentence about the executor's disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"the disk of {folder} is full; free some space there, or set spark.ckpt.spool.dir to a larger disk")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"the folder {folder} cannot be written ({error.strerror}); set spark.ckpt.spool.dir to one that can")
    return StorageError(f"{folder}: {error.strerror or error}; the executor's spool must be on a local disk that works")
