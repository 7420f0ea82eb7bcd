"""What a changelog of Spark's RocksDB state store says: records of keys that were put, deleted or appended to, behind the lineage.

The forms (Spark: `StateStoreChangelogWriterV1` … `V4`), big-endian, compressed as a whole: v1 `key length, key, value length or -1, value`,
an end of -1; v2 the same with a byte for the kind in front, and an end of that kind. v3 is v1 and v4 is v2, with the form's name and the
lineage first.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO

import pyarrow as pa
from xxhash import xxh32_intdigest

from spark_ckpt.errors import DamagedError, FormatError

LZ4_MAGIC = b"LZ4Block"
LZ4_RAW, LZ4_PACKED = 0x10, 0x20
_LZ4_HEAD = 21
_ZSTD = b"\x28\xb5\x2f\xfd"
_SNAPPY = b"\x82SNAPPY\0"
_MAX_BLOCK = 64 << 20
"""Bytes of one compressed block; Spark's have 32 KiB unless it was told otherwise."""
MAX_BYTES = 128 << 20
"""Of a key or value: both are in memory, some times over, while they become Arrow, and a small file can unpack to any number of bytes."""


class Change(Enum):
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11


Record = tuple[Change, bytes, bytes]
_KINDS = {kind.value: kind for kind in Change}


def read_records(source: BinaryIO, name: str, codec: str) -> Iterator[Record]:
    """Every record of a changelog, in the order in which it was written. `codec`: as Spark's configuration names it; `name` is for errors.

    Raises `DamagedError`, and `FormatError` for a form or compression that this version does not read.
    """
    try:
        yield from _records(_Input(unpacked(source, name, codec), name), name)
    except (pa.ArrowInvalid, OSError, struct.error, zlib.error) as e:
        raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged") from e


class _Input:
    """A `DataInputStream` over pieces."""

    def __init__(self, pieces: Iterator[bytes], name: str) -> None:
        self._pieces, self._name = pieces, name
        self._held, self._at = b"", 0

    def more(self, size: int) -> bool:
        """Whether so many bytes are there; then they are held."""
        if len(self._held) - self._at >= size:
            return True
        parts, count = [self._held[self._at :]], len(self._held) - self._at
        for piece in self._pieces:
            parts.append(piece)
            count += len(piece)
            if count >= size:
                break
        self._held, self._at = b"".join(parts), 0
        return count >= size

    def peek(self, size: int) -> bytes:
        self.more(size)
        return self._held[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        check_size(size, f"the changelog {self._name}")
        if not self.more(size):
            raise DamagedError(f"the changelog {self._name} ends within a record; it is damaged")
        end = self._at + size
        found = self._held[self._at : end]
        self._at = end
        return found

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def utf(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))


def check_size(size: int, where: str) -> None:
    """Of a key or value. Raises `FormatError` for one that is larger than what is read."""
    if size > MAX_BYTES:
        raise FormatError(
            f"{where} has a key or value of {size} bytes, and up to {MAX_BYTES} are read: it is damaged, or that is one for Spark's own "
            "reader over what `spark-ckpt export` writes"
        )


def _records(source: _Input, name: str) -> Iterator[Record]:
    version = 1
    head = source.peek(4)
    if len(head) == 4 and head[:3] == b"\0\x02v":
        version = head[3] - ord("0")
        source.utf()
        if version not in (2, 3, 4):
            raise FormatError(f"the changelog {name} has the form {version}, known are 1 to 4; take a newer spark-ckpt")
        if version >= 3:
            source.utf()
    yield from (_typed(source, name) if version in (2, 4) else _plain(source, name))


def _plain(source: _Input, name: str) -> Iterator[Record]:
    while (size := source.integer()) >= 0:
        key = source.take(size)
        size = source.integer()
        yield (Change.DELETE, key, b"") if size < 0 else (Change.PUT, key, source.take(size))
    _ended(source, name)


def _typed(source: _Input, name: str) -> Iterator[Record]:
    while kind := source.take(1)[0]:
        change = _KINDS.get(kind)
        if change is None:
            raise DamagedError(f"the changelog {name} has a record of the kind {kind}, which there is not; it is damaged")
        key = source.take(_length(source, name))
        if change is Change.DELETE:
            source.integer()
            yield change, key, b""
        else:
            yield change, key, source.take(_length(source, name))
    _ended(source, name)


def _length(source: _Input, name: str) -> int:
    size = source.integer()
    if size < 0:
        raise DamagedError(f"the changelog {name} has a record of {size} bytes; it is damaged")
    return size


def _ended(source: _Input, name: str) -> None:
    if source.more(1):
        raise DamagedError(f"the changelog {name} goes on behind its end; it is damaged")


def unpacked(source: BinaryIO, name: str, codec: str) -> Iterator[bytes]:
    """What a compressed changelog holds, piece by piece. Raises like `read_records`, and pyarrow's own errors."""
    short = codec.rpartition(".")[2].lower().removesuffix("compressioncodec")
    readers = {"lz4": _lz4, "zstd": _zstd, "snappy": _snappy}
    if short not in readers:
        raise FormatError(
            f"the changelog {name} is compressed with {codec!r:.100}, and lz4, zstd and snappy are read; set "
            "spark.sql.streaming.stateStore.compression.codec to one of them in a new query"
        )
    return readers[short](source, name)


def _lz4(source: BinaryIO, name: str) -> Iterator[bytes]:
    while block := next_lz4_block(source, name):
        yield block
    if source.read(1):
        raise DamagedError(f"the changelog {name} goes on behind its end; it is damaged")


def next_lz4_block(source: BinaryIO, name: str) -> bytes:
    """One block of lz4-java's stream, unpacked; the empty one is the end. Raises `DamagedError`, also where a checksum is not that of what
    came out, as `LZ4BlockInputStream` does."""
    head = source.read(_LZ4_HEAD)
    if len(head) < _LZ4_HEAD or head[:8] != LZ4_MAGIC:
        raise DamagedError(f"the changelog {name} is no lz4 stream or ends early; it is damaged, or was written with another codec")
    packed, size, checksum = struct.unpack("<iiI", head[9:])
    if size == packed == checksum == 0:
        return b""
    if not (0 < packed <= _MAX_BLOCK and 0 < size <= _MAX_BLOCK) or (head[8] & 0xF0 == LZ4_RAW and packed != size):
        raise DamagedError(f"the changelog {name} has a block of {size} bytes; it is damaged")
    block = _exactly(source, packed, name)
    if head[8] & 0xF0 == LZ4_PACKED:
        block = _unpacked_block(block, size, name)
    elif head[8] & 0xF0 != LZ4_RAW:
        raise DamagedError(f"the changelog {name} has a block that was packed in no known way; it is damaged")
    if lz4_checksum(block) != checksum:
        raise DamagedError(f"the changelog {name} has a block whose checksum is another one; it is damaged")
    return block


def lz4_checksum(block: bytes) -> int:
    """Of what a block holds unpacked: xxHash32 with a seed of lz4-java's, without its highest four bits (`LZ4BlockOutputStream`)."""
    return xxh32_intdigest(block, 0x9747B28C) & 0x0FFFFFFF


def _unpacked_block(block: bytes, size: int, name: str) -> bytes:
    """Unpacked. Pyarrow gives `size` bytes and does not tell how many of them it has written: the rest would be what lay in this process's
    memory. So one byte less has to be too few. Raises `DamagedError`."""
    codec = pa.Codec("lz4_raw")
    found = _block(codec, block, size, name)
    try:
        codec.decompress(block, size - 1, asbytes=True)
    except (pa.ArrowInvalid, OSError):
        return found
    raise DamagedError(f"the changelog {name} has a block that holds less than its {size} bytes; it is damaged")


def _block(codec: pa.Codec, block: bytes, size: int, name: str) -> bytes:
    """An OSError of pyarrow's is not one of the disk."""
    try:
        found: bytes = codec.decompress(block, size, asbytes=True)
    except (pa.ArrowInvalid, OSError) as e:
        raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged") from e
    return found


def _zstd(source: BinaryIO, name: str) -> Iterator[bytes]:
    if source.read(4) != _ZSTD:
        raise DamagedError(f"the changelog {name} is no zstd stream; it is damaged, or was written with another codec")
    source.seek(0)
    with pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd") as stream:
        try:
            while piece := stream.read(1 << 20):
                yield piece
        except OSError as e:
            raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged") from e


def _snappy(source: BinaryIO, name: str) -> Iterator[bytes]:
    """The stream of snappy-java: a head of 16 bytes, then blocks with their packed length; a block says its length itself."""
    head = source.read(16)
    if head[:8] != _SNAPPY:
        raise DamagedError(f"the changelog {name} is no snappy stream; it is damaged, or was written with another codec")
    codec = pa.Codec("snappy")
    while prefix := source.read(4):
        packed = int.from_bytes(prefix, "big")
        if packed > _MAX_BLOCK:
            raise DamagedError(f"the changelog {name} has a block of {packed} bytes; it is damaged")
        block = _exactly(source, packed, name)
        size = shift = 0
        for byte in block[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if size > _MAX_BLOCK:
            raise DamagedError(f"the changelog {name} has a block of {size} bytes; it is damaged")
        yield _block(codec, block, size, name)


def _exactly(source: BinaryIO, size: int, name: str) -> bytes:
    block = source.read(size)
    if len(block) < size:
        raise DamagedError(f"the changelog {name} ends within a block; it is damaged")
    return block


def from_bytes(data: bytes | memoryview) -> BinaryIO:
    return io.BytesIO(data)
