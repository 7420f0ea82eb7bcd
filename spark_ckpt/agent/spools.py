"""Local recovery: what earlier runs and dead executors of this machine have left (Flink: `state.backend.local-recovery`).

An executor's spool is `<spool.dir>/spark-ckpt-<unique>/<stream>/run-<run>/<operator>/<partition>/<store>`. It outlives an executor that
was killed only where `spark.ckpt.spool.dir` is set; Spark's own local folders go with the application.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from spark_ckpt.model import StoreId
from spark_ckpt.process.scratch import if_free

_PREFIX = "spark-ckpt-"
_LOCK = ".lock"
_LOOK_S = 300.0
_KEPT_S = 3600.0
"""How long a dead executor's spool may be of use, in seconds: its successor is there within minutes, and its files go on in links."""


def store_folder(run: Path, store: StoreId) -> Path:
    """Where a store's files are, below the folder of its run."""
    return run / str(store.operator) / str(store.partition) / store.store


class Spools:
    """The spool of this executor; if `persistent` (it lies in `spark.ckpt.spool.dir`) those beside it as well. Whoever shares the lock in a
    spool is a living agent of it; who removes it has the lock alone.

    An agent that dies alone is replaced within seconds, perhaps while it is not quite dead; a spool counts as abandoned when nobody has
    held its lock for an hour.
    """

    def __init__(self, spool: Path, persistent: bool) -> None:
        self._spool = spool
        self._persistent = persistent
        self._ended = threading.Event()
        self._lock = os.open(spool / _LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody looks whether it is held
            threading.Thread(target=self._hold, name="spool lock", daemon=True).start()
        if persistent:
            threading.Thread(target=self._watch, name="spools", daemon=True).start()

    def _hold(self) -> None:
        with contextlib.suppress(OSError):  # the executor has gone meanwhile
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def earlier(self, folder: Path) -> Sequence[Path]:
        """Folders of other runs and executors for the store whose spool folder this is; the newest run's first."""
        try:
            stream, _, *store = folder.relative_to(self._spool).parts
        except ValueError:
            return []
        found: list[Path] = []
        for spool in [self._spool, *self._others()]:
            with contextlib.suppress(OSError):
                found += [run.joinpath(*store) for run in (spool / stream).iterdir() if run.joinpath(*store) != folder]
        return sorted((f for f in found if f.is_dir()), key=lambda f: f.parts[-len(store) - 1], reverse=True)

    def end(self) -> None:
        """The executor is gone. Its spool is left for the next one, where that could find it; else nobody else would remove it."""
        self._ended.set()
        if self._persistent:
            self._touch()
        else:
            shutil.rmtree(self._spool, ignore_errors=True)
        os.close(self._lock)

    def _others(self) -> list[Path]:
        if not self._persistent:
            return []
        with contextlib.suppress(OSError):
            siblings = [p for p in self._spool.parent.iterdir() if p.name.startswith(_PREFIX) and p != self._spool]
            return [p for p in siblings if p.lstat().st_uid == os.getuid() and p.is_dir() and not p.is_symlink()]
        return []

    def _watch(self) -> None:
        while True:
            self._touch()
            for spool in self._others():
                with contextlib.suppress(OSError):
                    _remove_abandoned(spool)
            if self._ended.wait(_LOOK_S):
                return

    def _touch(self) -> None:
        with contextlib.suppress(OSError):  # the JVM has removed it
            os.utime(self._spool / _LOCK)


def left_spools(folder: Path) -> list[tuple[Path, int]]:
    """Spools in `folder` that no living agent holds, with their sizes in bytes; those of other users are passed over."""
    return [(spool, _size(spool)) for spool in sorted(folder.glob(f"{_PREFIX}*")) if _is_left(spool)]


def _is_left(spool: Path) -> bool:
    try:
        with if_free(spool / _LOCK, os.O_RDWR) as free:
            return free
    except OSError:
        return False


def _size(spool: Path) -> int:
    """A file with several links counts once."""
    found: dict[int, int] = {}
    for folder, _, names in os.walk(spool):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                found[status.st_ino] = status.st_size
    return sum(found.values())


def _remove_abandoned(spool: Path) -> None:
    if not _is_old(spool):
        return
    with contextlib.suppress(FileExistsError):
        _make_lock(spool)
    with if_free(spool / _LOCK, os.O_RDWR) as free:
        if free and _is_old(spool):
            shutil.rmtree(spool, ignore_errors=True)


def _make_lock(spool: Path) -> None:
    """As old as the folder: nobody has lived there since. Raises FileExistsError."""
    last_ns = spool.stat().st_mtime_ns
    lock = os.open(spool / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.utime(lock, ns=(last_ns, last_ns))
    finally:
        os.close(lock)


def _is_old(spool: Path) -> bool:
    return time.time() - _last_alive(spool) >= _KEPT_S


def _last_alive(spool: Path) -> float:
    try:
        return (spool / _LOCK).stat().st_mtime
    except FileNotFoundError:  # its agent has not begun yet, or is of an older version
        return spool.stat().st_mtime
