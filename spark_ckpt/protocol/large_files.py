"""The driver's large files: objects of their own (`drv/`), stored once for each content, which plans and checkpoints refer to.

Spark's file source keeps every file that it has ever seen, in a log that it writes anew, whole, with every tenth epoch. In each plan and
in each `_metadata` that would be most of what a stream stores. Order: an object is durable before a plan or a `_metadata` that names it is
put; nothing deletes it while either is there (`planned_files.py`, `shared_state.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from zlib import crc32

from spark_ckpt.model import Content, FileHandle, objects_of
from spark_ckpt.paths import driver_file_key, parse_driver_file_key
from spark_ckpt.protocol.driver_files import DriverFiles, is_numbered, needed
from spark_ckpt.protocol.events import LocalFile

LARGE = 64 * 1024
"""Bytes above which a file is an object of its own."""
TOGETHER = 4 * 1024 * 1024
"""Bytes that the files of one checkpoint may have that are none: the next one is an object, however small it is."""
DIGITS = 32
"""Of a SHA-256 in hexadecimal, which make a content's name."""


@dataclass(frozen=True)
class Unstored:
    """What is to be put: `source` is the content, or the path of the local file that holds it."""

    handle: FileHandle
    source: bytes | str


class LargeFiles:
    """Those of one run. `files`: all that the stream has now; `gone`: whether an object was given up for deletion."""

    def __init__(self, run: int, files: DriverFiles, gone: Callable[[str], bool]) -> None:
        self._run = run
        self._files = files
        self._gone = gone
        self._unstored: dict[str, Unstored] = {}

    @property
    def names(self) -> frozenset[str]:
        """Of those that are not stored yet."""
        return frozenset(self._unstored)

    def place(self, changes: Mapping[str, bytes | LocalFile | None], epoch: int) -> tuple[dict[str, Content | None], list[Unstored]]:
        """What the driver has written or deleted, with a reference in the place of each large content; and those still to be put.

        `offsets/` and `commits/` stay as they are: their size comes from the query's partitions, and they differ from epoch to epoch.
        """
        placed: dict[str, Content | None] = {}
        new: list[Unstored] = []
        left: int | None = None
        for path, content in changes.items():
            if content is None or (isinstance(content, bytes) and is_numbered(path)):
                placed[path] = content
                continue
            if isinstance(content, bytes) and len(content) <= LARGE:
                left = self._room(epoch) if left is None else left
                if len(content) <= left:
                    left -= len(content)
                    placed[path] = content
                    continue
            local = content if isinstance(content, LocalFile) else _local(content)
            handle = self._known(local)
            if handle is None:
                handle = FileHandle(driver_file_key(self._run, epoch, local.digest), local.length, local.checksum)
                self._unstored[handle.object] = one = Unstored(handle, content if isinstance(content, bytes) else content.path)
                new.append(one)
            placed[path] = handle
        return placed, new

    def stored(self, name: str) -> None:
        self._unstored.pop(name, None)

    def awaits(self, contents: Iterable[Content | None]) -> bool:
        """Whether any of them is not stored yet."""
        return bool(self._unstored) and not objects_of(contents).isdisjoint(self._unstored)

    def _room(self, epoch: int) -> int:
        inline = needed(self._files.as_mapping(), epoch).items()
        return TOGETHER - sum(len(content) for path, content in inline if isinstance(content, bytes) and not is_numbered(path))

    def _known(self, local: LocalFile) -> FileHandle | None:
        """An object that holds this content already, or is about to."""
        files = (content for content in self._files.as_mapping().values() if isinstance(content, FileHandle))
        for handle in (*(one.handle for one in self._unstored.values()), *files):
            same = parse_driver_file_key(handle.object) == local.digest
            if same and (handle.length, handle.checksum) == (local.length, local.checksum) and not self._gone(handle.object):
                return handle
        return None


def _local(content: bytes) -> LocalFile:
    return LocalFile("", len(content), crc32(content), sha256(content).hexdigest()[:DIGITS])
