"""Files on the way to their name: written aside, synced, named, and swept when whoever wrote them has died."""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from spark_ckpt.storage.base import PutResult

_TEMP_NAME = re.compile(r"[0-9a-f]{32}")
_TEMP_KEPT_S = 24 * 3600


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def give_name(temps: int, temp: str, folder: int, name: str, replace: bool) -> PutResult:
    """Raises OSError; FileNotFoundError where either is gone."""
    if replace:
        os.replace(temp, name, src_dir_fd=temps, dst_dir_fd=folder)
        return PutResult.STORED
    os.utime(temp, dir_fd=temps, follow_symlinks=False)  # its age counts from its name on, however long it was written
    try:
        os.link(temp, name, src_dir_fd=temps, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return PutResult.EXISTS
    return PutResult.STORED


def changed_ms(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ctime_ns // 1_000_000
    except OSError:
        return None


def forget(folder: int, name: str) -> None:
    with suppress(OSError):  # leftover temporary files are swept later
        os.unlink(name, dir_fd=folder)


def sweep(temps: int) -> None:
    oldest = time.time() - _TEMP_KEPT_S
    with suppress(OSError), os.scandir(temps) as entries:  # somebody else sweeps at the same time; leftovers do no harm
        for entry in entries:
            if _TEMP_NAME.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                forget(temps, entry.name)


def end(temps: int, since_ns: int, first: bytes) -> None:
    """Of a user who has had the storage for itself, from when `first` was put on: what was written since `since_ns`, of the file system's
    clock, and `first` itself, or as much of it as was written. Whatever else lies there stays. Raises OSError."""
    with os.scandir(temps) as entries:
        found = [entry.name for entry in entries if _TEMP_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for name in found:
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=temps, follow_symlinks=False).st_mtime_ns >= since_ns or _begins(temps, name, first):
                os.unlink(name, dir_fd=temps)


def _begins(temps: int, name: str, data: bytes) -> bool:
    """Whether a file holds the beginning of `data`, or all of it."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=temps)
    try:
        return data.startswith(os.read(fd, len(data) + 1))
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def sync(fd: int) -> None:
    """Of a folder."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
