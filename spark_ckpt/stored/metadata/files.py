"""The driver's files inside `_metadata`'s JSON document: their content, or for large ones the object that they are in.

`commits/N` lists the unique id of every snapshot, which the rows hold as well, in their names: written out it would be most of the file.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Content, FileHandle
from spark_ckpt.paths import file_handle

LONG = 1024
"""Bytes above which a file is compressed; base64 alone keeps the small ones readable."""
_REFERENCE = re.compile(rb"\0(\d{1,10})\0")


def files_to_json(files: Mapping[str, Content], names: Sequence[str], rows: Iterable[int]) -> dict[str, Any]:
    """Path -> base64, or of long files `{"zlib": base64}`: a unique id in quotes is there the number of the row whose name holds it,
    between NULs. A file that is an object of its own: `{"object": key, "length": bytes, "checksum": CRC-32}`.

    `names`: of all rows; `rows`: those that may be referred to.
    """
    references = {_id(names[row]).encode(): b"\0%d\0" % row for row in rows}
    doc: dict[str, Any] = {}
    for path, content in sorted(files.items()):
        if isinstance(content, FileHandle):
            doc[path] = content.to_json()
        elif len(content) <= LONG:
            doc[path] = base64.b64encode(content).decode()
        else:
            pieces = content.split(b'"') if b"\0" not in content else []
            referring = b'"'.join(map(references.get, pieces, pieces))
            # Ids shorter than a reference would make it longer than the file, and than a reader's limit for that.
            refers = bool(pieces) and len(referring) <= len(content)
            doc[path] = {"zlib": _compressed(referring), "rows": True} if refers else {"zlib": _compressed(content)}
    return doc


def files_from_json(doc: Mapping[str, Any], names: Sequence[str], limit: int) -> dict[str, Content]:
    """What `files_to_json` was given. Raises DamagedError, also where the contents together are longer than `limit` bytes."""
    files: dict[str, Content] = {}
    left = limit
    for path, value in doc.items():
        if not isinstance(value, str) and "object" in value:
            files[path] = file_handle(value)
            continue
        if isinstance(value, str):
            content = _unbase64(value)
        else:
            content = _decompressed(_unbase64(value["zlib"]), left)
            if value.get("rows"):
                content = _resolved(content, names, left)
        left -= len(content)
        if left < 0:
            raise _too_long()
        files[path] = content
    return files


def _id(name: str) -> str:
    """The unique id of `7_<uid>.changelog` and `7_<uid>.zip`; of any other name something that is none."""
    return name[name.find("_") + 1 : name.rfind(".")]


def _resolved(content: bytes, names: Sequence[str], limit: int) -> bytes:
    """With the unique id in the place of each reference: of few bytes of a forged file, many. Never holds much more than `limit` bytes."""
    found, end = bytearray(), 0
    for reference in _REFERENCE.finditer(content):
        found += content[end : reference.start()]
        found += _uid(names, int(reference.group(1)))
        end = reference.end()
        if len(found) > limit:
            raise _too_long()
    found += content[end:]
    return bytes(found)


def _uid(names: Sequence[str], row: int) -> bytes:
    if row >= len(names):
        raise DamagedError("a driver file in a checkpoint's metadata names a row that is not there; the metadata is damaged")
    return _id(names[row]).encode()


def _compressed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _decompressed(data: bytes, limit: int) -> bytes:
    engine = zlib.decompressobj()
    try:
        content = engine.decompress(data, limit + 1)
    except zlib.error as error:
        raise DamagedError("a driver file in a checkpoint's metadata cannot be decompressed; the metadata is damaged") from error
    if len(content) > limit:
        raise _too_long()
    if not engine.eof:
        raise DamagedError("a driver file in a checkpoint's metadata ends too early; the metadata is damaged")
    return content


def _unbase64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as e:
        raise DamagedError("a driver file in a checkpoint's metadata is not base64; the metadata is damaged") from e


def _too_long() -> DamagedError:
    return DamagedError("the driver's files in a checkpoint's metadata are longer than any; the metadata is damaged")
