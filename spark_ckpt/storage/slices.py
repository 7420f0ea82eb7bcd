"""Ranges of local files, seen as one file: what the storages stream uploads from."""

from __future__ import annotations

import io
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from spark_ckpt.errors import DamagedError, StorageError
from spark_ckpt.process import owner_only
from spark_ckpt.storage.base import Slice
from spark_ckpt.storage.checksums import crc32_of


def check_slices(slices: Sequence[Slice]) -> int:
    """Total length in bytes. Raises `DamagedError` where a file is missing or shorter than its slice says."""
    for piece in slices:
        try:
            size = os.stat(piece.path).st_size
        except FileNotFoundError:
            raise DamagedError(f"the local file {piece.path} vanished before it was uploaded; its snapshot must be taken again") from None
        if piece.offset < 0 or piece.length < 0 or piece.offset + piece.length > size:
            raise DamagedError(
                f"the local file {piece.path} has {size} bytes, but {piece.length} from {piece.offset} were to be uploaded; "
                "its snapshot must be taken again"
            )
    return sum(piece.length for piece in slices)


class SliceReader(io.RawIOBase):
    """Bytes `begin` to `end` of the slices laid back to back, as a read-only file. Not thread-safe: one reader per upload.

    `read` returns as much as was asked for unless the end comes first, and raises `DamagedError` if a file has shrunk.
    """

    def __init__(self, slices: Sequence[Slice], begin: int = 0, end: int | None = None) -> None:
        super().__init__()
        self._slices = [piece for piece in slices if piece.length > 0]
        self._starts: list[int] = []
        total = 0
        for piece in self._slices:
            self._starts.append(total)
            total += piece.length
        self._begin = begin
        self._size = (total if end is None else end) - begin
        self._position = 0
        self._open_index = -1
        self._file: BinaryIO | None = None

    def __len__(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        pieces = []
        while wanted > 0:
            data = self._read_some(wanted)
            pieces.append(data)
            wanted -= len(data)
            self._position += len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_some(self, wanted: int) -> bytes:
        at = self._begin + self._position
        index = bisect_right(self._starts, at) - 1
        piece = self._slices[index]
        skip = at - self._starts[index]
        if index != self._open_index or self._file is None:
            self._close_file()
            self._file = open(piece.path, "rb", buffering=0)  # noqa: SIM115 - closed in close()
            self._open_index = index
        self._file.seek(piece.offset + skip)
        data = self._file.read(min(wanted, piece.length - skip))
        if not data:
            raise DamagedError(f"the local file {piece.path} became shorter while it was uploaded; its snapshot must be taken again")
        return data

    def crc32(self) -> int:
        """CRC-32 of all of it; leaves the position at the start."""
        self.seek(0)
        crc = crc32_of(self)
        self.seek(0)
        return crc

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self._close_file()
        super().close()


class Download:
    """Takes the bytes that come for a local file. `checksum`: their CRC-32 so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.checksum = zlib.crc32(chunk, self.checksum)


@contextmanager
def download(path: Path, at: int | None) -> Iterator[Download]:
    """To a new file, or from byte `at` on into one that is there, for `Storage.get_to_file`. May be opened again for another attempt; a new
    file is gone after a failed one."""
    try:
        with open(path, "wb" if at is None else "r+b", opener=owner_only.opener) as out:
            out.seek(at or 0)
            yield Download(out)
    except BaseException:
        if at is None:
            with suppress(OSError):
                path.unlink()
        raise


def local_write_error(path: object, error: OSError) -> StorageError:
    """A download could not be written: a full or read-only local disk."""
    return StorageError(
        f"cannot write {path}: {error.strerror}; free space there or choose another folder, with "
        "spark.ckpt.spool.dir for an executor, with TMPDIR for all else"
    )
