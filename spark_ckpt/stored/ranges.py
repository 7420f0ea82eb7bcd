"""Ranges of objects, as handles name them: read together where they lie near each other, and compared with their CRC-32.

For all who read them: agents, copies, `verify`, starts. What arrives damaged is read a second time (`damage.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Handle
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.checksums import CHUNK
from spark_ckpt.storage.slices import download
from spark_ckpt.stored.damage import read_twice

IN_MEMORY = 4 << 20
"""Bytes of a group: what may be read into memory at once. Only one range alone can be longer."""
PIECE_BYTES = 8 << 20
"""A range longer than this can be read in pieces, several at once. Smaller ones are more requests, which cost processor time."""
NEAR_BYTES = 64 << 10
"""Bytes between two ranges that are sooner read than left out."""


class RangeDamagedError(DamagedError):
    """The bytes of a range have not the CRC-32 that its handle says. `difference`: the same without names, to go on a sentence."""

    def __init__(self, handle: Handle, checksum: int) -> None:
        self.difference = f"has the CRC-32 {checksum:08x} instead of {handle.checksum:08x}"
        super().__init__(f"{handle.name} in {handle.object} {self.difference}")
        self.handle = handle
        self.checksum = checksum


@dataclass(frozen=True)
class Range:
    """The bytes of one handle, and their CRC-32."""

    handle: Handle
    data: memoryview
    checksum: int

    @property
    def damage(self) -> RangeDamagedError | None:
        """None: they are what was stored."""
        return None if self.checksum == self.handle.checksum else RangeDamagedError(self.handle, self.checksum)


def near(handles: Iterable[Handle], apart: int = NEAR_BYTES, together: int = IN_MEMORY) -> list[list[Handle]]:
    """Groups that one read covers: of one object, at most `apart` bytes from each other, and `together` in all."""
    groups: list[list[Handle]] = []
    end = 0
    for handle in sorted(handles, key=lambda h: (h.object, h.offset, h.length)):
        after = handle.offset + handle.length
        if groups:
            first = groups[-1][0]
            if handle.object == first.object and handle.offset - end <= apart and max(end, after) - first.offset <= together:
                groups[-1].append(handle)
                end = max(end, after)
                continue
        groups.append([handle])
        end = after
    return groups


def is_long(group: Sequence[Handle]) -> bool:
    """Whether it is to be read to a file: one range, longer than what is read into memory."""
    return group[0].length > IN_MEMORY


def read(storage: Storage, group: Sequence[Handle]) -> list[Range]:
    """A group in memory, in its order; what is damaged for good says so (`Range.damage`).

    Raises `DamagedError` where the object is too short, `ObjectMissingError`, `StorageError`.
    """
    with suppress(DamagedError):
        found = _read(storage, group)
        if all(one.damage is None for one in found):
            return found
    return _read(storage, group)


def read_to_file(storage: Storage, handle: Handle, path: Path) -> None:
    """One range to a new local file, streaming. Raises `DamagedError`, `ObjectMissingError`, `StorageError`; no file is there then."""
    read_to_files(storage, [handle], [path], path)


def read_to_files(storage: Storage, group: Sequence[Handle], paths: Sequence[Path], whole: Path) -> None:
    """Each range of a group to a new local file of its own. `whole`: the path of one more, which is gone at the end: all that one read
    brings, so that memory does not grow with the number of groups that are read at once. Raises like `read_to_file`."""

    def once() -> None:
        try:
            _to_files(storage, group, paths, whole)
        except BaseException:
            for path in paths:
                path.unlink(missing_ok=True)
            raise

    read_twice(once)


def pieces(group: Sequence[Handle]) -> list[tuple[int, int]]:
    """Position and length of the parts in which a long range is read; none for a group that is read at once."""
    length = group[0].length
    return [] if len(group) > 1 or length <= PIECE_BYTES else parts_of(length)


def parts_of(length: int) -> list[tuple[int, int]]:
    """Position and length of the parts in which so many bytes are read."""
    return [(at, min(PIECE_BYTES, length - at)) for at in range(0, max(length, 1), PIECE_BYTES)]


def read_piece(storage: Storage, handle: Handle, at: int, length: int, path: Path) -> int:
    """One of them to its place in a file that is there; returns its CRC-32 (`storage/checksums.py` combines them). Raises like `read`."""
    return read_twice(lambda: storage.get_to_file(handle.object, handle.offset + at, length, path, at))


def span_of(group: Sequence[Handle]) -> tuple[int, int]:
    """Where it begins, and its length."""
    begin = group[0].offset
    return begin, max(h.offset + h.length for h in group) - begin


def _read(storage: Storage, group: Sequence[Handle]) -> list[Range]:
    begin, length = span_of(group)
    data = memoryview(storage.get(group[0].object, begin, length))
    parts = [data[h.offset - begin : h.offset - begin + h.length] for h in group]
    return [Range(handle, part, zlib.crc32(part)) for handle, part in zip(group, parts, strict=True)]


def _to_files(storage: Storage, group: Sequence[Handle], paths: Sequence[Path], whole: Path) -> None:
    begin, length = span_of(group)
    if len(group) == 1:
        _compare(group[0], storage.get_to_file(group[0].object, begin, length, paths[0]))
        return
    try:
        storage.get_to_file(group[0].object, begin, length, whole)
        for handle, path in zip(group, paths, strict=True):
            _compare(handle, copy_part(whole, handle.offset - begin, handle.length, path))
    finally:
        whole.unlink(missing_ok=True)


def copy_part(whole: Path, offset: int, length: int, path: Path) -> int:
    """Bytes of a local file to a new one. Returns their CRC-32."""
    with whole.open("rb") as file, download(path, None) as part:
        file.seek(offset)
        while length > 0 and (block := file.read(min(length, CHUNK))):
            part.write(block)
            length -= len(block)
    return part.checksum


def _compare(handle: Handle, checksum: int) -> None:
    if checksum != handle.checksum:
        raise RangeDamagedError(handle, checksum)
