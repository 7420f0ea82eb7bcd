"""Scratch folders of living processes. Those that dead ones left behind are known by their lock, which nobody holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from spark_ckpt.errors import ConfigError
from spark_ckpt.process import owner_only

TEMPORARY = ".spark-ckpt-"
"""What every folder of this package begins with where the system has its temporary files."""
_LOCK = "lock"


class ScratchFolder:
    """A new folder in `parent`, its name begins with `prefix`; those of dead processes beside it are removed. Raises OSError."""

    def __init__(self, parent: Path, prefix: str) -> None:
        owner_only.make_folder(parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        new = self.path / f"{_LOCK}.new"
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK)  # now: a folder without it is just being made, one whose lock is free is dead
        remove_dead(parent, prefix)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A new folder where the system has its temporary files, removed at the end, or when the next one is made after its process has been
    killed. Raises ConfigError where there is no such place."""
    try:
        parent = Path(tempfile.gettempdir())
        parent.stat()  # what TMPDIR names by mistake is not made
        folder = ScratchFolder(parent, f"{TEMPORARY}{purpose}-")
    except OSError as error:
        raise ConfigError(
            f"no folder for temporary files can be made ({error.strerror or error}); set TMPDIR to one that is writable and has free space"
        ) from error
    with folder as path:
        yield path


def remove_dead_temporaries() -> None:
    """All of this package, whatever they were for."""
    remove_dead(Path(tempfile.gettempdir()), TEMPORARY)


def remove_dead(parent: Path, prefix: str) -> None:
    """Remove the scratch folders in `parent` whose processes are dead."""
    for folder in parent.glob(f"{prefix}*"):
        _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    # One without a lock is just being made, just being removed, or somebody else's.
    with contextlib.suppress(OSError), if_free(folder / _LOCK, os.O_RDWR) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def if_free(lock: Path, flags: int) -> Iterator[bool]:
    """Whether nobody holds this lock; then it is held until the block ends. `flags` open the file. Raises OSError if they cannot."""
    file = os.open(lock, flags, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(file)
