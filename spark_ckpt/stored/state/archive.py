"""The zip of a full snapshot: what it says, and unpacking it without trusting it. The same rules as in jvm_shim/hooks/SnapshotZip.scala.

Members are RocksDB's small files (`MANIFEST-…`, `CURRENT`, `OPTIONS-…`, an empty `….log`) and `metadata` (Spark:
`RocksDBCheckpointMetadata`): a line `v1`, then one JSON document. SSTs lie beside the zip, below `SSTs/`, under names unique in the store.
"""

from __future__ import annotations

import errno
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import FormatError
from spark_ckpt.process import owner_only

METADATA_MEMBER = "metadata"
MAX_MEMBERS = 10_000
MAX_METADATA = 16 * 1024 * 1024
"""Bytes of the member `metadata`: an SST takes a hundred of them."""
MAX_VALUES = 2_000_000
"""Of its JSON: an SST takes eight."""
MAX_SSTS = 100_000
MAX_UNPACKED = 1024 * 1024 * 1024
"""Bytes of all members together: a manifest grows with the number of SSTs, and the SSTs themselves are not in the zip."""
_BLOCK = 1 << 20
_SAID_BY_4_0 = frozenset(
    ("sstFiles", "logFiles", "numKeys", "numInternalKeys", "columnFamilyMapping", "columnFamilyTypeMap", "maxColumnFamilyId")
)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_SST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}\.sst")


@dataclass(frozen=True)
class SstFile:
    """`stored_name` is below `SSTs/`, `local_name` is what the manifest calls it; `size` in bytes."""

    stored_name: str
    local_name: str
    size: int


@dataclass(frozen=True)
class FullSnapshot:
    """`num_keys` are the user's keys, `num_internal_keys` Spark's own (timers, TTL, row counters); None: Spark was told not to count.

    `families`: the number of each column family, with which its keys begin; empty for a store that has none.
    """

    ssts: tuple[SstFile, ...]
    num_keys: int | None
    num_internal_keys: int | None
    families: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_entries(self) -> int | None:
        """Entries in RocksDB: column families are prefixes of keys there (Spark: `RocksDBStateStoreProvider.useColumnFamilies`)."""
        if self.num_keys is None or self.num_internal_keys is None:
            return None
        return self.num_keys + self.num_internal_keys


_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError)
"""What zipfile raises for a damaged or forged archive; RuntimeError: for an encrypted one and a compression that it does not know."""


def unpack(path: Path, folder: Path, name: str | None = None) -> FullSnapshot:
    """Unpack the zip's members into `folder`, which exists, and return what its `metadata` says. `name`: what errors call it, else its own.

    Raises FormatError for a member with a path in its name, one that is there twice, too many, too large, or damaged. OSError: the disk.
    """
    name = path.name if name is None else name
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked(archive, name)
            for member in members:
                if member.filename != METADATA_MEMBER:
                    _extract(archive, member, folder / member.filename)
            with archive.open(METADATA_MEMBER) as source:
                text = source.read(MAX_METADATA + 1)
    except (*_UNREADABLE, OSError) as e:
        if _is_of_the_disk(e):
            raise
        raise FormatError(f"{name} is not a snapshot of Spark's state store ({type(e).__name__}: {e}); it is damaged") from e
    return parse_metadata(text, name)


def read_full_snapshot(path: Path) -> FullSnapshot:
    """Only what the zip's `metadata` says. Raises FormatError, also for a zip that is still being written; OSError: the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(METADATA_MEMBER)
            if info.file_size > MAX_METADATA:
                raise FormatError(f"{path.name} has {info.file_size} bytes of file names, more than any store can have; it is damaged")
            with archive.open(info) as member:
                text = member.read(MAX_METADATA + 1)
    except (*_UNREADABLE, OSError) as e:
        if _is_of_the_disk(e):
            raise
        raise FormatError(f"{path.name} is not a complete snapshot of Spark's state store ({type(e).__name__}: {e})") from e
    return parse_metadata(text, path.name)


def read_whole_snapshot(path: Path) -> FullSnapshot:
    """The same, after every member was read to its end and its CRC-32 compared. Raises like `unpack`."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in _checked(archive, path.name):
                with archive.open(member) as source:
                    while source.read(_BLOCK):
                        pass
    except (*_UNREADABLE, OSError) as e:
        if _is_of_the_disk(e):
            raise
        raise FormatError(f"{path.name} is not a snapshot of Spark's state store ({type(e).__name__}: {e}); it is damaged") from e
    return read_full_snapshot(path)


def as_v1(path: Path) -> None:
    """The zip in the form that every Spark reads, in its place. Spark 4.0 writes the same with a line `v2` where a task stores it in
    checkpoint format 2 (`RocksDBCheckpointMetadata.VERSION` is there the session's format). The same zip gives the same bytes.

    Nothing is done for one that is in that form, or says what that Spark does not, or is no such zip. OSError: the disk.
    """
    fresh = path.with_name(path.name + ".v1")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked(archive, path.name)
            with archive.open(METADATA_MEMBER) as source:
                version, _, said = source.read(MAX_METADATA + 1).partition(b"\n")
            if version.strip() != b"v2" or not _SAID_BY_4_0.issuperset(parse_json(said, MAX_VALUES)):
                return
            with open(fresh, "xb", opener=owner_only.opener) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as made:
                for member in members:
                    with archive.open(member) as source, made.open(zipfile.ZipInfo(member.filename), "w") as sink:
                        if member.filename == METADATA_MEMBER:
                            sink.write(b"v1\n" + said)
                            continue
                        while block := source.read(_BLOCK):
                            sink.write(block)
        fresh.replace(path)
    except (*_UNREADABLE, OSError) as e:
        if _is_of_the_disk(e):
            raise
    finally:
        fresh.unlink(missing_ok=True)


def _is_of_the_disk(error: Exception) -> bool:
    """A forged archive has its reader look before the file's beginning, which is EINVAL; what bz2 cannot read has no number."""
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)


def _checked(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise FormatError(f"{name} has {len(members)} members, more than any snapshot; it is damaged or forged")
    seen: set[str] = set()
    for member in members:
        if not _PLAIN_NAME.fullmatch(member.filename) or member.filename in seen:
            raise FormatError(f"{name} holds the member {member.filename!r}, which leaves its folder or hides another one; it is forged")
        seen.add(member.filename)
    if METADATA_MEMBER not in seen:
        raise FormatError(f"{name} holds no member {METADATA_MEMBER!r}; it is not a snapshot of Spark's state store")
    if archive.getinfo(METADATA_MEMBER).file_size > MAX_METADATA or sum(m.file_size for m in members) > MAX_UNPACKED:
        raise FormatError(f"{name} would unpack to more than any snapshot holds; it is damaged or forged")
    return members


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    # A member that unpacks to more than the `file_size` that was checked ends there: ZipExtFile reads no further and checks its CRC.
    with archive.open(member) as source, open(target, "xb", opener=owner_only.opener) as sink:
        while block := source.read(_BLOCK):
            sink.write(block)


def parse_metadata(text: bytes, name: str) -> FullSnapshot:
    """Parse the member `metadata`; `name` is named in errors. Raises FormatError."""
    version, _, body = text.partition(b"\n")
    if version.strip() != b"v1":
        shown = version[:20].decode(errors="replace")
        raise FormatError(f"{name} has the format {shown!r}, known is v1; this Spark needs a newer spark-ckpt")
    try:
        document = parse_json(body, MAX_VALUES)
        if document.get("logFiles"):
            raise FormatError(f"{name} names write-ahead log files, which Spark's state store does not write; it is damaged or forged")
        files = document.get("sstFiles") or ()
        if len(files) > MAX_SSTS:
            raise FormatError(f"{name} names {len(files)} SSTs, more than any store has; it is damaged or forged")
        ssts = tuple(SstFile(_sst(f["dfsSstFileName"], name), _sst(f["localFileName"], name), int(f["sizeBytes"])) for f in files)
        counts = _count(document.get("numKeys")), _count(document.get("numInternalKeys", 0))
        families = {str(name): _family(number) for name, number in (document.get("columnFamilyMapping") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as e:
        raise FormatError(f"the metadata in {name} cannot be read ({type(e).__name__}: {e}); it is damaged") from e
    if len({sst.local_name for sst in ssts}) != len(ssts):
        raise FormatError(f"{name} names an SST twice; it is damaged or forged")
    return FullSnapshot(ssts, *counts, families)


def _sst(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _SST_NAME.fullmatch(value):
        raise FormatError(f"{name} names the SST {value!r}, which would leave its folder; it is damaged or forged")
    return value


def _family(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 15:
        raise ValueError(f"a column family has the number {value!r:.40}")
    return value


def _count(value: Any) -> int | None:
    """Spark writes -1 where `spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows` is off."""
    return None if value is None or int(value) < 0 else int(value)
