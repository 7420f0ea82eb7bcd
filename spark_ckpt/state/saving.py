"""A savepoint in which some state stores are other ones than in the checkpoint that it is made of; all else is copied as it is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConflictError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint, Snapshot
from spark_ckpt.paths import METADATA_NAME
from spark_ckpt.protocol.driver_files import commits_file
from spark_ckpt.state.store_files import StoreWriter
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import copied_objects, finish_savepoint, import_objects, made_meanwhile, refuse_stream, withdraw
from spark_ckpt.stored.metadata.reading import GIVEN_UP
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
        self._attempt = f"edited-{secrets.token_hex(8)}"
        self._place = Place(target, _RUN, checkpoint.id.epoch, self._attempt)
        self._segments = Segments(self._place)
        self._ids: dict[str, str] = {}

    def take(self, written: Written) -> None:
        """Stores it as a full snapshot of its version, under a new unique id. Raises `ConflictError` where a key was put twice."""
        keys = written.writer.entries - written.internal if written.snapshot.num_keys is not None else None
        with self._before_others():
            made = written.writer.finish(self._place, written.snapshot, _families_document(written), keys)
            self._ids[written.snapshot.uid] = made.uid
            self._segments.take(made)

    def done(self) -> Checkpoint:
        """Copies all other stores, and puts `_metadata`. Raises `ConflictError` where somebody has made a savepoint there meanwhile."""
        checkpoint = self._checkpoint
        with self._before_others():
            self._segments.flush()
            copied = import_objects(self._storage, self._rest(), self._target, _RUN, self._attempt)
        by_store = {snapshot.store: snapshot for snapshot in (*copied.snapshots, *self._segments.snapshots)}
        saved = replace(
            copied,
            snapshots=tuple(by_store[snapshot.store] for snapshot in checkpoint.snapshots),
            files={**copied.files, **self._files, commits_file(checkpoint.id.epoch): _with_ids(checkpoint, self._ids)},
        )
        finish_savepoint(self._target, saved)
        return saved

    def _rest(self) -> Checkpoint:
        """What is copied as it is."""
        checkpoint = self._checkpoint
        same = tuple(snapshot for snapshot in checkpoint.snapshots if snapshot.uid not in self._ids)
        files = {name: content for name, content in checkpoint.files.items() if name not in self._files}
        return replace(checkpoint, snapshots=same, files=files)

    @contextmanager
    def _before_others(self) -> Iterator[None]:
        """Whoever completes the savepoint first takes what the others are just writing away. What they have stored goes too."""
        try:
            yield
        except StorageError as e:
            with suppress(StorageError):
                if self._target.size(METADATA_NAME) is not None:
                    withdraw(self._target, frozenset(self._place.keys) | copied_objects(self._rest(), _RUN, self._attempt))
                    raise made_meanwhile(self._target) from e
            raise


def refuse_taken(target: Storage) -> None:
    """Raises `ConflictError`."""
    refuse_stream(target)
    size = target.size(METADATA_NAME)
    if size == len(GIVEN_UP) and target.get(METADATA_NAME) == GIVEN_UP:
        raise ConflictError(f"the savepoint at {target.url} was never completed, and `gc` has given its name up; choose another name")
    if size is not None:
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
