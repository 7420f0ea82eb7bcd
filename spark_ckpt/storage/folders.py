"""The folders below a root, none of which is a link: what lies behind a link is elsewhere, and nobody's to read, to write or to delete."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from spark_ckpt.errors import StorageSetupError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
"""What systems answer who is not to follow a link, and finds one."""
_STALE_LOOKS = 5

T = TypeVar("T")


def looked_again(look: Callable[[], T]) -> T:
    """`look` opens a folder and looks into it. Where another machine removes that meanwhile, a network file system says ESTALE; the next
    look finds it gone, or made anew. Raises OSError: ESTALE if it stays so, which is no sign that nothing is there."""
    for _ in range(_STALE_LOOKS):
        try:
            return look()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return look()


class Folders:
    """The root itself, and what it lies in, may be links: who configures the storage names it."""

    def __init__(self, root: Path, called: str) -> None:
        """`called`: `Storage.called`."""
        self._root, self._called = root, called

    @contextmanager
    def open(self, folder: str, make: bool = False, listed: bool = False) -> Iterator[Sequence[int]]:
        """Descriptors of the root and of each folder on the way down to `folder`, part by part: whoever changes a name meanwhile leads
        nowhere else. `make`: those that are not there; all can be synced. `listed`: the last one can be read. Those of others may be good
        for nothing but the names below, which is what a user needs who may search a folder and not read it.

        Raises OSError; for a file or a link on the way NotADirectoryError, or `StorageSetupError` with `make`.
        """
        opened: list[int] = []
        try:
            names = [name for name in folder.split("/") if name]
            opened.append(self._open_root(make, make or (listed and not names)))
            path = self._root
            for number, name in enumerate(names, 1):
                path /= name
                opened.append(self._open_below(opened[-1], name, path, make, make or (listed and number == len(names))))
            yield opened
        finally:
            for fd in opened:
                os.close(fd)

    def _open_root(self, make: bool, read: bool) -> int:
        try:
            return _open_folder(self._root, read)
        except FileNotFoundError:
            if not make:
                raise
        self._root.mkdir(parents=True, exist_ok=True)
        return _open_folder(self._root, read)

    def _open_below(self, at: int, name: str, path: Path, make: bool, read: bool) -> int:
        try:
            return _open_folder(name, read, at)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if error.errno not in NO_FOLDER:
                raise
            if make:
                raise StorageSetupError(
                    f"{path} is a file or a link where a folder is needed; remove it or choose another {self._called}"
                ) from None
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=at)
        return _open_folder(name, read, at)


def _open_folder(name: Path | str, read: bool, at: int | None = None) -> int:
    """A name in the folder `at` is no link. Where it can be it is opened for reading, whether that is needed or not: then a network file
    system asks anew what lies in it (nfs(5), close-to-open)."""
    flags = _FOLDER | (os.O_NOFOLLOW if at is not None else 0)
    try:
        return os.open(name, flags, dir_fd=at)
    except PermissionError:
        if read:
            raise
        return os.open(name, flags | os.O_PATH, dir_fd=at)
