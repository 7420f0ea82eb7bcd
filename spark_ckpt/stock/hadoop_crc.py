"""The checksums that Hadoop writes beside each file on a local disk (`ChecksumFileSystem`): `.7.zip.crc` for `7.zip`.

`crc` and a zero byte, bytes in a chunk as a 32-bit number, then the CRC-32 of each chunk, all big-endian.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

from spark_ckpt.errors import DamagedError
from spark_ckpt.storage.base import Storage

_HEAD = 8
_LARGEST = 1 << 20


def check(location: Storage, key: str, content: Path | bytes) -> None:
    """Compare what was read of `key`, a local copy or the bytes, with the checksums beside it, which are there. Raises `DamagedError`."""
    folder, slash, name = key.rpartition("/")
    if not matches_hadoop_crc(content, location.get(f"{folder}{slash}.{name}.crc")):
        raise DamagedError(f"{location.url_of(key)} is not what was written: its checksums in .{name}.crc differ; put it back")


def matches_hadoop_crc(content: Path | bytes, sums: bytes) -> bool:
    """Whether a file is what the checksums say. True as well where they are of another form, which says nothing of the file."""
    if len(sums) < _HEAD or sums[:4] != b"crc\0" or (len(sums) - _HEAD) % 4:
        return True
    (size,) = struct.unpack(">i", sums[4:_HEAD])
    if not 0 < size <= _LARGEST:
        return True
    with io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb") as file:
        for (wanted,) in struct.iter_unpack(">I", sums[_HEAD:]):
            if zlib.crc32(file.read(size)) != wanted:
                return False
        return not file.read(1)
