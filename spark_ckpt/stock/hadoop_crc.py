"""The checksums that Hadoop writes beside each file on a local disk (`ChecksumFileSystem`): `.7.zip.crc` for `7.zip`.

`crc` and a zero byte, bytes in a chunk as a 32-bit number, then the CRC-32 of each chunk, all big-endian.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

_HEAD = 8
_LARGEST = 1 << 20


def matches_hadoop_crc(path: Path, sums: bytes) -> bool:
    """Whether a file is what the checksums say. True as well where they are of another form, which says nothing of the file."""
    if len(sums) < _HEAD or sums[:4] != b"crc\0" or (len(sums) - _HEAD) % 4:
        return True
    (size,) = struct.unpack(">i", sums[4:_HEAD])
    if not 0 < size <= _LARGEST:
        return True
    with open(path, "rb") as file:
        for (wanted,) in struct.iter_unpack(">I", sums[_HEAD:]):
            if zlib.crc32(file.read(size)) != wanted:
                return False
        return not file.read(1)
