"""Changelogs of checkpoint format 1 written as those of format 2, with the lineage in front, and back (forms: `state/changelogs.py`).

v1 becomes v3 and v2 becomes v4; what they say of keys stays as it is. An lz4 stream is not packed anew: the lineage is a block in front of
its blocks, or is taken out of its first ones, so that a changelog of any size costs a copy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.process import owner_only
from spark_ckpt.state.changelogs import LZ4_MAGIC, LZ4_RAW, lz4_checksum, next_lz4_block, read_records, unpacked
from spark_ckpt.storage.checksums import CHUNK

Lineage = Sequence[tuple[int, str]]
"""Versions and their unique ids, the oldest first: the full snapshot that a changelog builds on, and the changelogs between."""

_LEVEL = 7
"""Of a block: up to 128 KiB (`LZ4BlockOutputStream`: 2 to the power of 10 and this)."""
_BLOCK = 1 << (10 + _LEVEL)
_LONGEST = 0xFFFF
"""Bytes of a string that a `DataOutputStream` writes as UTF."""
_MAX_VALUES = 100_000
_V2 = b"\0\x02v2"


def read_lineage(path: Path, name: str, codec: str) -> Lineage:
    """Of a changelog of format 2. Raises `DamagedError`, `FormatError` for one that has none."""
    with open(path, "rb") as file:
        try:
            found = _Head(unpacked(file, name, codec), name).lineage()
            return [(int(one["version"]), str(one["checkpointUniqueId"])) for one in parse_json(found, _MAX_VALUES)]
        except (KeyError, TypeError, ValueError, RecursionError, pa.ArrowInvalid, OSError) as e:
            raise DamagedError(f"the changelog {name} does not say what it builds on ({type(e).__name__}: {e}); it is damaged") from e


def check_changelog(path: Path, name: str, codec: str) -> None:
    """Whether it can be unpacked to its end. Raises `DamagedError`, `FormatError` for a codec that is not read.

    A snappy stream that was cut between two blocks looks whole: there the last record says that it is the last one.
    """
    with open(path, "rb") as file:
        try:
            for _ in read_records(file, name, codec) if "snappy" in codec.lower() else unpacked(file, name, codec):
                pass
        except (OSError, pa.ArrowInvalid, struct.error) as e:
            raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged, put it back") from e


def with_lineage(source: Path, target: Path, lineage: Lineage, name: str, codec: str) -> None:
    """A changelog of format 1 at `source` to the new file `target`, as one of format 2.

    Raises `DamagedError`, and `FormatError` for a codec or form that is not read, or a lineage that is longer than Spark can write.
    """
    try:
        with open(source, "rb") as old, open(target, "xb", opener=owner_only.opener) as new:
            if _is_lz4(codec):
                _lz4(old, new, lineage, name)
            else:
                _packed_anew(old, new, lineage, name, codec)
    except (pa.ArrowInvalid, struct.error) as e:
        raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged") from e


def without_lineage(source: Path, target: Path, name: str, codec: str) -> None:
    """A changelog of format 2 at `source` to the new file `target`, as one of format 1. Raises like `with_lineage`."""
    try:
        with open(source, "rb") as old, open(target, "xb", opener=owner_only.opener) as new:
            if _is_lz4(codec):
                head = _Head(iter(lambda: next_lz4_block(old, name), b""), name)
                _write_block(new, head.plain() + head.rest)
                _copy(old, new)
            else:
                pieces = unpacked(old, name, codec)
                head = _Head(pieces, name)
                _pack(new, chain((head.plain() + head.rest,), pieces), codec)
    except (pa.ArrowInvalid, struct.error) as e:
        raise DamagedError(f"the changelog {name} cannot be unpacked ({e}); it is damaged") from e


def _is_lz4(codec: str) -> bool:
    return codec.lower().endswith(("lz4", "lz4compressioncodec"))


def _beginning(begins: bytes, lineage: Lineage, name: str) -> tuple[bytes, bytes]:
    """What stands in front of the records, and the first bytes of those. `begins`: the old changelog's first bytes, at least 4."""
    if begins[:3] == b"\0\x02v" and begins[:4] != _V2:
        form = begins[2:4].decode(errors="replace")
        raise FormatError(f"the changelog {name} has the form {form!r}, and those of checkpoint format 1 are v1 and v2")
    new_form, records = (b"v4", begins[len(_V2) :]) if begins[:4] == _V2 else (b"v3", begins)
    said = json.dumps([{"version": v, "checkpointUniqueId": uid} for v, uid in lineage], separators=(",", ":")).encode()
    if len(said) > _LONGEST:
        raise FormatError(
            f"the changelog {name} is the last of {len(lineage)}, more than Spark can name in one; run the query once more with stock "
            "Spark until its maintenance has written a full snapshot"
        )
    return struct.pack(">H", len(new_form)) + new_form + struct.pack(">H", len(said)) + said, records


def _lz4(old: BinaryIO, new: BinaryIO, lineage: Lineage, name: str) -> None:
    first = next_lz4_block(old, name)
    if not first:
        raise DamagedError(f"the changelog {name} is empty; it is damaged")
    front, records = _beginning(first, lineage, name)
    _write_block(new, front)
    if records != first:
        _write_block(new, records)
    else:
        old.seek(0)
    _copy(old, new)


def _copy(old: BinaryIO, new: BinaryIO) -> None:
    while piece := old.read(CHUNK):
        new.write(piece)


def _write_block(new: BinaryIO, data: bytes) -> None:
    for at in range(0, len(data), _BLOCK):
        piece = data[at : at + _BLOCK]
        new.write(LZ4_MAGIC + bytes([LZ4_RAW | _LEVEL]) + struct.pack("<iiI", len(piece), len(piece), lz4_checksum(piece)))
        new.write(piece)


def _packed_anew(old: BinaryIO, new: BinaryIO, lineage: Lineage, name: str, codec: str) -> None:
    pieces = unpacked(old, name, codec)
    begins = b""
    for piece in pieces:
        begins += piece
        if len(begins) >= len(_V2):
            break
    front, records = _beginning(begins, lineage, name)
    _pack(new, chain((front, records), pieces), codec)


def _pack(new: BinaryIO, pieces: Iterable[bytes], codec: str) -> None:
    """As zstd or snappy: `unpacked` reads no other."""
    if "zstd" in codec.lower():
        with pa.CompressedOutputStream(pa.PythonFile(new, "w"), "zstd") as stream:
            for piece in pieces:
                stream.write(piece)
        return
    packer = pa.Codec("snappy")
    new.write(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    for whole in pieces:
        for at in range(0, len(whole), _BLOCK):
            block = packer.compress(whole[at : at + _BLOCK], asbytes=True)
            new.write(struct.pack(">i", len(block)) + block)


class _Head:
    """The first strings of a changelog."""

    def __init__(self, pieces: Iterator[bytes], name: str) -> None:
        self._pieces, self._name, self._held = pieces, name, b""

    @property
    def rest(self) -> bytes:
        """What has been read behind what was taken."""
        return self._held

    def plain(self) -> bytes:
        """What stands in front of the records in format 1."""
        form = self._utf()
        self._lineage(form)
        return _V2 if form == b"v4" else b""

    def lineage(self) -> bytes:
        return self._lineage(self._utf())

    def _lineage(self, form: bytes) -> bytes:
        if form not in (b"v3", b"v4"):
            raise FormatError(f"the changelog {self._name} is none of checkpoint format 2, but its name has a unique id; it is damaged")
        return self._utf()

    def _utf(self) -> bytes:
        return self._take(int.from_bytes(self._take(2), "big"))

    def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise DamagedError(f"the changelog {self._name} ends early; it is damaged")
            self._held += piece
        found, self._held = self._held[:size], self._held[size:]
        return found
