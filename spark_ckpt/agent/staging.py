"""The agent's own folder in the spool: what still has to be uploaded is linked here, out of reach of Spark's maintenance."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import zlib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import Handle, HandleKind

_PREFIX = ".agent-"
_LOCK = "lock"
_BLOCK = 1 << 20


class PartState(Enum):
    STAGED = "STAGED"
    STORED = "STORED"
    FAILED = "FAILED"


@dataclass(eq=False)
class Part:
    """One file of a store on its way to the storage, or already there; shared by all chains that need it.

    Written by the thread that uploads it, read by all: `state` changes last.
    """

    kind: HandleKind
    name: str
    length: int
    path: Path | None = None
    changed_ns: int = 0
    handle: Handle | None = None
    cause: str = ""
    state: PartState = field(default=PartState.STAGED)

    @staticmethod
    def stored(handle: Handle) -> Part:
        return Part(handle.kind, handle.name, handle.length, handle=handle, state=PartState.STORED)

    def store(self, handle: Handle) -> None:
        self.handle = handle
        self.state = PartState.STORED
        self._drop()

    def fail(self, cause: str) -> None:
        self.cause = cause
        self.state = PartState.FAILED
        self._drop()

    def _drop(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def trouble(self) -> str:
        """Why the staged file is not what was staged any more; empty if it is."""
        try:
            now = self.path.stat() if self.path is not None else None
        except FileNotFoundError:
            now = None
        if now is None:
            return f"{self.name} has vanished from the spool before it was uploaded"
        if (now.st_size, now.st_mtime_ns) != (self.length, self.changed_ns):
            return f"{self.name} was changed in the spool after it was committed ({self.length} bytes then, {now.st_size} now)"
        return ""

    def check(self) -> Path:
        """The staged file, if it is still what was staged. Raises `DamagedError`."""
        if (trouble := self.trouble()) or self.path is None:
            raise DamagedError(trouble)
        return self.path

    def checksum(self) -> int:
        """CRC-32 of the file, read in blocks. Raises `DamagedError` if it is not as staged."""
        crc = 0
        with self.check().open("rb") as file:
            while block := file.read(_BLOCK):
                crc = zlib.crc32(block, crc)
        self.check()
        return crc


class Staging:
    """A folder of one agent process. Those that dead agents left behind are removed at start; a living one holds a lock on its own."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.folder = spool / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        self._numbers = itertools.count()
        try:
            self.folder.mkdir(parents=True)
            self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise local_error(error, spool) from error
        for other in spool.glob(_PREFIX + "*"):
            if other != self.folder:
                _remove_dead(other)

    def path(self) -> Path:
        """A new name in the folder."""
        return self.folder / f"{next(self._numbers)}"

    def stage(self, kind: HandleKind, folder: Path, name: str) -> Part:
        """Link a committed file. Raises FileNotFoundError if it is not there, `StorageError` if the disk does not take it."""
        source, target = folder / name, self.path()
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            try:
                shutil.copy2(source, target)
            except FileNotFoundError:
                raise
            except OSError as error:
                target.unlink(missing_ok=True)
                raise local_error(error, self.spool) from error
        now = target.stat()
        return Part(kind, name, now.st_size, path=target, changed_ns=now.st_mtime_ns)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _remove_dead(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return  # just being made, or just being removed
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def local_error(error: OSError, folder: Path) -> CheckpointError:
    """A sentence about the executor's disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"the disk of {folder} is full; free some space there, or set spark.ckpt.spool.dir to a larger disk")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"the folder {folder} cannot be written ({error.strerror}); set spark.ckpt.spool.dir to one that can")
    return StorageError(f"{folder}: {error.strerror or error}; the executor's spool must be on a local disk that works")
