"""The lineage at the head of a changelog, as Spark's `StateStoreChangelogWriterV3` and `V4` write it.

A changelog is a compressed `DataOutputStream`: the format's name as UTF (`v3`, `v4`), then the lineage as UTF: a JSON list of
`{"version", "checkpointUniqueId"}`, the newest full snapshot that the engine knew first, the version before this one last.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"^(\d+)_([A-Za-z0-9-]+)\.(changelog|zip)$")
_LZ4_MAGIC = b"LZ4Block"
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_MAX_BLOCK = 1 << 22
_MAX_HEAD = 2 + 2 + 2 + 0xFFFF
_FIRST = re.compile(rb'..v[34]..\[\{"version":(\d+),"checkpointUniqueId":"', re.DOTALL)
_FIRST_BYTES, _FIRST_PACKED = 128, 256


def parse_name(name: str) -> tuple[int, str, str] | None:
    """(version, unique id, extension) of `7_<uid>.changelog` and `7_<uid>.zip`."""
    m = _NAME.match(name)
    return (int(m.group(1)), m.group(2), m.group(3)) if m else None


def changelog_name(version: int, uid: str) -> str:
    return f"{version}_{uid}.changelog"


def zip_name(version: int, uid: str) -> str:
    return f"{version}_{uid}.zip"


def read_lineage(path: Path | str) -> Mapping[int, str] | None:
    """version -> unique id of the ancestors that a changelog names, or None where it cannot be told.

    Only Spark's default codec (lz4) is read: with another one the chain comes from the base checkpoint, which is the usual case anyway.
    """
    text = _read_head(path, _MAX_BLOCK, _MAX_HEAD)
    return None if text is None else _parse_head(text)


def read_oldest(path: Path | str) -> int | None:
    """The first version of the lineage, without reading more of the file than it takes; None where it cannot be told."""
    text = _read_head(path, _FIRST_PACKED, _FIRST_BYTES)
    m = None if text is None else _FIRST.match(text)
    return None if m is None else int(m.group(1))


def _read_head(path: Path | str, of_block: int, limit: int) -> bytes | None:
    """What the first `of_block` bytes of the first block hold, up to about `limit` bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(21 + of_block)
    except OSError:
        return None
    if len(head) < 21 or head[:8] != _LZ4_MAGIC:
        return None
    packed, size, _ = struct.unpack("<iii", head[9:21])
    if not (0 <= packed <= _MAX_BLOCK and 0 <= size <= _MAX_BLOCK):
        return None
    block = head[21 : 21 + packed]
    method = head[8] & 0xF0
    if method == _LZ4_RAW:
        return block
    if method == _LZ4_PACKED:
        return unpack_lz4(block, limit)
    return None


def _parse_head(text: bytes) -> Mapping[int, str] | None:
    name, rest = _utf(text)
    if name not in (b"v3", b"v4"):
        return None
    lineage, _ = _utf(rest)
    if lineage is None:
        return None
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in json.loads(lineage)}
    except (ValueError, TypeError, KeyError):
        return None


def _utf(data: bytes) -> tuple[bytes | None, bytes]:
    if len(data) < 2:
        return None, b""
    size = int.from_bytes(data[:2], "big")
    return (data[2 : 2 + size], data[2 + size :]) if len(data) >= 2 + size else (None, b"")


def unpack_lz4(block: bytes, limit: int) -> bytes | None:
    """The first `limit` bytes (or a few more) of an LZ4 block (lz4_Block_format.md); None if it is malformed or ends before that."""
    out = bytearray()
    at, end = 0, len(block)
    try:
        while at < end and len(out) < limit:
            token = block[at]
            at += 1
            size = token >> 4
            if size == 15:
                size, at = _more(block, at, size)
            if at + size > end:
                return None
            out += block[at : at + size]
            at += size
            if at >= end:
                break
            back = block[at] | block[at + 1] << 8
            at += 2
            size = token & 15
            if size == 15:
                size, at = _more(block, at, size)
            size = min(size + 4, limit)
            if back == 0 or back > len(out):
                return None
            while size > 0:
                piece = out[len(out) - back : len(out) - back + min(size, back)]
                out += piece
                size -= len(piece)
    except IndexError:
        return None
    return bytes(out)


def _more(block: bytes, at: int, size: int) -> tuple[int, int]:
    while True:
        extra = block[at]
        at += 1
        size += extra
        if extra != 255:
            return size, at
