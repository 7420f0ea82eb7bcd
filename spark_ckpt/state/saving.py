"""A savepoint in which some state stores are other ones than in the checkpoint that it is made of; all else is copied as it is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConflictError, DamagedError
from spark_ckpt.model import Checkpoint, Snapshot
from spark_ckpt.paths import METADATA_NAME
from spark_ckpt.protocol.driver_files import commits_file
from spark_ckpt.state.store_files import StoreWriter
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import finish_savepoint, import_objects
from spark_ckpt.stored.segments import Place, Segments

_RUN = 1
"""The objects of a savepoint have the prefix of a run, whichever."""
_MOST_IDS = 10_000_000


@dataclass
class Written:
    """A store that is written in the place of `snapshot`. `prefix`: with what the keys of the family begin that is changed, None where the
    store has none of its yet. `families`: the numbers of all. `internal`: how many keys are Spark's own."""

    snapshot: Snapshot
    writer: StoreWriter
    prefix: bytes | None = None
    families: dict[str, int] = field(default_factory=dict)
    internal: int = 0
    changed: bool = False

    def keep(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Entries that were there, of any family."""
        own = {number.to_bytes(2, "little") for name, number in self.families.items() if name.startswith("$")}
        self.writer.put(keys, values, distinct=True)
        if own:
            self.internal += sum(key[:2] in own for key in keys)


class Saving:
    """`storage` is what the objects of `checkpoint` are relative to, `target` the savepoint's folder. `files`: the driver's files that
    take the place of the checkpoint's."""

    def __init__(self, storage: Storage, checkpoint: Checkpoint, target: Storage, files: Mapping[str, bytes] | None = None) -> None:
        self._storage, self._checkpoint, self._target = storage, checkpoint, target
        self._files = files or {}
        self._place = Place(target, _RUN, checkpoint.id.epoch, f"edited-{secrets.token_hex(8)}")
        self._segments = Segments(self._place)
        self._ids: dict[str, str] = {}

    def take(self, written: Written) -> None:
        """Stores it as a full snapshot of its version, under a new unique id. Raises `ConflictError` where a key was put twice."""
        keys = written.writer.entries - written.internal if written.snapshot.num_keys is not None else None
        made = written.writer.finish(self._place, written.snapshot, _families_document(written), keys)
        self._ids[written.snapshot.uid] = made.uid
        self._segments.take(made)

    def done(self) -> Checkpoint:
        """Copies all other stores, and puts `_metadata`. Raises `ConflictError` where somebody has made a savepoint there meanwhile."""
        self._segments.flush()
        checkpoint = self._checkpoint
        same = tuple(snapshot for snapshot in checkpoint.snapshots if snapshot.uid not in self._ids)
        files = {name: content for name, content in checkpoint.files.items() if name not in self._files}
        copied = import_objects(self._storage, replace(checkpoint, snapshots=same, files=files), self._target, _RUN)
        by_store = {snapshot.store: snapshot for snapshot in (*copied.snapshots, *self._segments.snapshots)}
        saved = replace(
            copied,
            snapshots=tuple(by_store[snapshot.store] for snapshot in checkpoint.snapshots),
            files={**copied.files, **self._files, commits_file(checkpoint.id.epoch): _with_ids(checkpoint, self._ids)},
        )
        finish_savepoint(self._target, saved)
        return saved


def refuse_taken(target: Storage) -> None:
    """Raises `ConflictError`."""
    if target.size(METADATA_NAME) is not None:
        raise ConflictError(f"there is a savepoint at {target.url} already; choose another name")


def _families_document(written: Written) -> dict[str, Any]:
    """Of the column families, as Spark's metadata of a snapshot has it."""
    families = written.families
    return {
        "numInternalKeys": written.internal,
        "columnFamilyMapping": families,
        "columnFamilyTypeMap": {name: name.startswith("$") for name in families},
        "maxColumnFamilyId": max(families.values(), default=0),
    }


def _with_ids(checkpoint: Checkpoint, ids: dict[str, str]) -> bytes:
    """`commits/N` with the unique ids of what was written anew."""
    name = commits_file(checkpoint.id.epoch)
    version, _, body = (checkpoint.file(name) or b"").partition(b"\n")
    try:
        document = parse_json(body, _MOST_IDS)
        named = document["stateUniqueIds"]
        for operator, partitions in named.items():
            named[operator] = [[ids.get(uid, uid) for uid in stores] for stores in partitions]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{name} does not name the unique ids of the state ({type(e).__name__}: {e}); choose another checkpoint") from e
    return version + b"\n" + json.dumps(document, separators=(",", ":")).encode()
