"""Scratch folders of living processes. Those that dead ones left behind are known by their lock, which nobody holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from spark_ckpt.errors import ConfigError
from spark_ckpt.process import owner_only
from spark_ckpt.process.at_exit import done_at_exit

TEMPORARY = ".spark-ckpt-"
"""What every folder of this package begins with where the system has its temporary files."""
_LOCK = "lock"
_RACES = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""What lies there may be somebody else's: a link leads nowhere, and no pipe is waited for."""


class ScratchFolder:
    """A new folder in `parent`, its name begins with `prefix` and `purpose`; those of dead processes that begin with `prefix` are removed.
    Raises OSError.

    Its lock is the first thing in it and the last that goes: whoever is killed leaves an empty folder, or one whose lock is free.
    """

    def __init__(self, parent: Path, prefix: str, purpose: str = "") -> None:
        self._pid = os.getpid()
        owner_only.make_folder(parent)
        for _ in range(_RACES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix + purpose, dir=parent))
            lock = _locked(self.path)
            if lock is not None:
                break
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            raise OSError(errno.ENOLCK, "a lock in a new folder is taken or gone at once, so its file system keeps no locks", str(parent))
        self._lock: int | None = lock
        try:
            remove_dead(parent, prefix)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """In a process that was forked from the folder's own one nothing is removed. May be called again."""
        if self._lock is None:
            return
        if self._pid == os.getpid():
            with contextlib.suppress(OSError), _opened(self.path) as at:
                _remove(self.path, at)
        lock, self._lock = self._lock, None
        if lock is not None:  # else another thread has closed it meanwhile
            os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _locked(folder: Path) -> int | None:
    """The lock of a folder that has just been made. None: somebody took it for a dead one's, and removes it."""
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | _FILE, 0o600)
    except FileNotFoundError:
        return None
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_named(lock):
            return lock
    except BlockingIOError:
        pass
    except OSError:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
        os.close(lock)
        raise
    os.close(lock)
    return None


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A new folder where the system has its temporary files, removed at the end of the block or of the process, or when the next one is
    made after its process has been killed, for whatever purpose. Raises ConfigError where there is no such place."""
    try:
        parent = Path(tempfile.gettempdir())
        parent.stat()  # what TMPDIR names by mistake is not made
        folder = ScratchFolder(parent, TEMPORARY, f"{purpose}-")
    except OSError as error:
        raise ConfigError(
            f"no folder for temporary files can be made ({error.strerror or error}); set TMPDIR to one that is writable and has free space"
        ) from error
    with done_at_exit(folder.close), folder as path:
        yield path


def remove_dead_temporaries() -> None:
    """All of this package, whatever they were for."""
    remove_dead(Path(tempfile.gettempdir()), TEMPORARY)


def remove_dead(parent: Path, prefix: str) -> None:
    """Remove this user's scratch folders in `parent` whose processes are dead.

    Others' stay: where all may write, somebody can make one that is too deep or too large to be removed.
    """
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _opened(folder) as at:
            if os.fstat(at).st_uid == os.geteuid():
                _remove_if_dead(folder, at)


def _remove_if_dead(folder: Path, at: int) -> None:
    try:
        with if_free(_LOCK, os.O_RDWR, at) as free:
            if free:
                _remove(folder, at)
    except FileNotFoundError:
        folder.rmdir()  # empty: its maker has died, or makes another one. Else it is somebody else's, and stays


def _remove(folder: Path, at: int) -> None:
    """`at`: the open folder, whose lock is held. Raises OSError."""
    with os.scandir(at) as entries:
        names = [entry.name for entry in entries if entry.name != _LOCK]
    for name in names:
        _remove_in(at, name)
    with os.scandir(at) as entries:
        if any(entry.name != _LOCK for entry in entries):
            return  # it cannot be removed, now
    os.unlink(_LOCK, dir_fd=at)
    try:
        folder.rmdir()
    except OSError:  # a thread still writes into it
        os.close(os.open(_LOCK, os.O_CREAT | os.O_RDWR | _FILE, 0o600, dir_fd=at))
        raise


def _remove_in(at: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=at)
    except IsADirectoryError:
        shutil.rmtree(name, ignore_errors=True, dir_fd=at)
    except OSError:
        pass


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    at = os.open(folder, _FOLDER)
    try:
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def if_free(lock: Path | str, flags: int, at: int | None = None) -> Iterator[bool]:
    """Whether nobody holds this lock; then it is held until the block ends. `flags` open the file, `at` is its folder. Raises OSError if
    they cannot."""
    file = os.open(lock, flags | _FILE, 0o600, dir_fd=at)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _is_named(file)
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(file)


def _is_named(file: int) -> bool:
    """False: it has been removed since it was opened."""
    return os.fstat(file).st_nlink > 0
