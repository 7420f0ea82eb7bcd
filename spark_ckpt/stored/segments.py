"""Snapshots whose files lie on the local disk, stored as a checkpoint has them (docs/format.md): small files of many stores back to back in
segments, long ones as objects of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from spark_ckpt.model import Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.paths import segment_key, sst_key
from spark_ckpt.protocol.large_files import DIGITS
from spark_ckpt.storage.base import Slice, Storage
from spark_ckpt.storage.checksums import crc32_of

SHARED = 1 << 20
"""Bytes from which an SST is an object of its own."""
_SEGMENT = 32 << 20


@dataclass(frozen=True)
class Place:
    """Where objects go: under the prefix of a run. In their names are `name`, so that they are nobody else's, and a digest of their
    ranges' checksums: what is stored again with another content does not touch what is there.

    `storage`: None where it is only asked which objects it would be. `keys`: of all that were put there, also in vain."""

    storage: Storage | None
    run: int
    epoch: int
    name: str
    keys: set[str] = field(default_factory=set, compare=False)

    def store_sst(self, path: Path, handle: Handle, unique: str) -> Handle:
        """A long one, as an object of its own. `unique`: its name among those of this place."""
        stored = replace(handle, object=sst_key(self.run, _digest(f"{self.name}/{unique}", [handle])))
        self.store(stored.object, [Slice(path, 0, handle.length)])
        return stored

    def segment(self, number: int, handles: Sequence[Handle]) -> str:
        """The name of a segment that holds what these name, in their order."""
        return segment_key(self.run, self.epoch, f"{self.name}-{number}-{_digest('', handles)}")

    def store(self, key: str, slices: Sequence[Slice]) -> None:
        if self.storage is not None:
            self.keys.add(key)
            self.storage.put_slices(key, slices)


def _digest(name: str, handles: Iterable[Handle]) -> str:
    """Of what an object is called and holds."""
    ranges = "".join(f"\n{handle.kind.value} {handle.length} {handle.checksum} {handle.name}" for handle in handles)
    return hashlib.sha256(f"{name}{ranges}".encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class LocalSnapshot:
    """`handles` with their objects, or without one for what lies in a local file of `local`, by their name."""

    store: StoreId
    version: int
    uid: str
    handles: tuple[Handle, ...]
    num_keys: int | None
    local: dict[str, Path] = field(default_factory=dict)


class Segments:
    """Stores one snapshot after the other; local files are gone then. Raises `StorageError`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._number = 0
        self._waiting: list[LocalSnapshot] = []
        self._bytes = 0
        self.snapshots: list[Snapshot] = []
        """Of what has been stored, in the order in which it came."""

    def take(self, made: LocalSnapshot) -> None:
        self._waiting.append(made)
        self._bytes += sum(handle.length for handle in made.handles if not handle.object)
        if self._bytes >= _SEGMENT:
            self.flush()

    def flush(self) -> None:
        key = self._place.segment(self._number, [handle for made in self._waiting for handle in made.handles if not handle.object])
        slices: list[Slice] = []
        end = 0
        for made in self._waiting:
            handles = []
            for handle in made.handles:
                if handle.object:
                    handles.append(handle)
                    continue
                slices.append(Slice(made.local[handle.name], 0, handle.length))
                handles.append(replace(handle, object=key, offset=end))
                end += handle.length
            self.snapshots.append(Snapshot(made.store, made.version, made.uid, tuple(handles), made.num_keys))
        if slices:
            self._place.store(key, slices)
            self._number += 1
        for made in self._waiting:
            for path in made.local.values():
                path.unlink(missing_ok=True)
        self._waiting, self._bytes = [], 0


def local_handle(kind: HandleKind, name: str, path: Path) -> Handle:
    """Of a file that has no object yet."""
    with open(path, "rb") as file:
        return Handle(kind, name, "", 0, path.stat().st_size, crc32_of(file))
