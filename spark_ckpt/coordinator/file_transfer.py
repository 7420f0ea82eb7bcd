"""The driver's files on their way between JVM, coordinator and storage (docs/pipes.md).

A line of the pipe holds small ones only. A larger one is a file in a folder of the JVM's, handed over by its path, length and checksum;
neither process keeps it in memory.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import uuid
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError, StorageError
from spark_ckpt.model import Content, FileHandle
from spark_ckpt.process import owner_only
from spark_ckpt.protocol.events import LocalFile
from spark_ckpt.storage.base import Slice, Storage
from spark_ckpt.storage.checksums import crc32_of
from spark_ckpt.stored.ranges import RangeDamagedError, read_to_file

SMALL = 64 * 1024
"""Bytes of a file that a message may hold."""
TOGETHER = 4 * 1024 * 1024
"""Bytes of all files that one message may hold."""
DOCUMENT = 16 * 1024 * 1024
"""Bytes of a part of a message that grows with the stream; a line of the pipe holds twice that."""
LARGEST = 64 * 1024 * 1024
"""Bytes of an `offsets/N` or `commits/N`, which the coordinator reads into memory."""


class FileTransfer:
    """Of one stream. `folder`: where the JVM wants what is too large for a message, from the stream's start on."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._lock = threading.Lock()
        self._fetched: dict[FileHandle, Path] = {}

    def begin(self, folder: str | None) -> None:
        """The stream starts anew: what was fetched for an earlier start is gone."""
        with self._lock:
            self.folder = Path(folder) if folder else None
            self._fetched.clear()

    def given(self, contents: Mapping[str, Content]) -> dict[str, Any]:
        """For a message to the JVM: base64, or where the content lies. Of a large file that must have been fetched."""
        left = TOGETHER
        given: dict[str, Any] = {}
        for path, content in contents.items():
            if isinstance(content, bytes) and len(content) <= min(SMALL, left):
                left -= len(content)
                given[path] = base64.b64encode(content).decode("ascii")
            elif isinstance(content, bytes):
                given[path] = self._written(content)
            else:
                given[path] = _file_message(self._fetched[content], content.length, content.checksum)
        return given

    def contents(self, contents: Mapping[str, Content]) -> dict[str, bytes]:
        """Themselves. A large one must have been fetched."""
        return {path: content if isinstance(content, bytes) else self._fetched[content].read_bytes() for path, content in contents.items()}

    def part(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a message that may be many: as they are, or as `rest`, a file that holds them."""
        document = json.dumps(fields, separators=(",", ":")).encode()
        return dict(fields) if len(document) <= DOCUMENT else {"rest": self._written(document)}

    def fetch(self, storage: Storage, handles: Iterable[FileHandle]) -> str | None:
        """Large files to the folder. Returns what is missing or damaged, in words. Raises `StorageError`."""
        for handle in handles:
            with self._lock:
                known = handle in self._fetched
            if not known:
                damage = self._fetch(storage, handle)
                if damage is not None:
                    return damage
        return None

    def _fetch(self, storage: Storage, handle: FileHandle) -> str | None:
        where = storage.url_of(handle.object)
        target = self._new_file()
        try:
            read_to_file(storage, handle.whole(handle.object), target)
        except ObjectMissingError:
            return f"{where} is missing"
        except RangeDamagedError as error:
            return f"{where} {error.difference}"
        except DamagedError as error:
            return str(error)
        with self._lock:
            self._fetched[handle] = target
        return None

    def _written(self, content: bytes) -> dict[str, Any]:
        target = self._new_file()
        with open(target, "xb", opener=owner_only.opener) as file:
            file.write(content)
        return _file_message(target, len(content), zlib.crc32(content))

    def _new_file(self) -> Path:
        if self.folder is None:
            raise CheckpointError("the JVM has named no folder for large files; JAR and Python package are of different versions")
        return self.folder / uuid.uuid4().hex


def taken(value: Any) -> bytes | LocalFile:
    """A file's content in a message of the JVM's."""
    if isinstance(value, Mapping):
        return LocalFile(str(value["file"]), int(value["length"]), int(value["checksum"]), str(value.get("digest", "")))
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise CheckpointError("a file's content in a message is not base64; JAR and Python package differ") from error


def read(value: Any) -> bytes:
    """The same of a file that is needed here: the content. Raises `DamagedError` for a file that is not what the message says, and
    `StorageError` for one that cannot be read."""
    content = taken(value)
    if isinstance(content, bytes):
        return content
    if content.length > LARGEST:
        raise CheckpointError(f"an entry of Spark's offsets or commits has {content.length} bytes; more than {LARGEST} cannot be stored")
    try:
        data = Path(content.path).read_bytes()
    except OSError as error:
        raise StorageError(
            f"{content.path}, which the JVM has handed over, cannot be read ({error.strerror or error}); look at the driver's local disk, "
            "and who else deletes files there"
        ) from error
    if (len(data), zlib.crc32(data)) != (content.length, content.checksum):
        raise DamagedError(f"{content.path}, which the JVM has handed over, is not what it has written")
    return data


def store(storage: Storage, handle: FileHandle, source: bytes | str) -> None:
    """Put a large file; `source` is its content, or the path of the file that holds it and is removed then.

    Raises `DamagedError` for a file that is not what was handed over, `StorageError`.
    """
    if isinstance(source, bytes):
        storage.put(handle.object, source)
        return
    path = Path(source)
    try:
        length, checksum = _sum(path)
    except FileNotFoundError:
        # (1) The object is stored and the file removed; (2) the coordinator dies before the plan that names it is there; (3) its
        # replacement is asked the same again.
        if storage.size(handle.object) == handle.length:
            return
        raise DamagedError(f"{path}, which the JVM has handed over, is gone; start the query again") from None
    if (length, checksum) != (handle.length, handle.checksum):
        raise DamagedError(f"{path}, which the JVM has handed over, is not what it has written; start the query again")
    storage.put_slices(handle.object, [Slice(path, 0, length)])
    path.unlink(missing_ok=True)


def _file_message(path: Path, length: int, checksum: int) -> dict[str, Any]:
    return {"file": str(path), "length": length, "checksum": checksum}


def _sum(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        checksum = crc32_of(file)
        return file.tell(), checksum
