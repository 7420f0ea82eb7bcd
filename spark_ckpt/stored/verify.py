"""Does a stream hold what its checkpoints say? Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_ckpt.errors import CheckpointError, DamagedError, ObjectMissingError, StorageError, StorageSetupError
from spark_ckpt.model import Checkpoint, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, Unit, nobody
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.presence import sizes
from spark_ckpt.stored.ranges import is_long, near, read, read_to_file
from spark_ckpt.stored.state import CountResult, assemble, count_keys
from spark_ckpt.stored.state.assemble import full_snapshot

_PURPOSE = "verify"


@dataclass(frozen=True)
class Problem:
    """`what` names the thing: an object, a store or a driver file. `unreadable`: nobody here may read it, so it may be intact."""

    what: str
    message: str
    unreadable: bool = False

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "message": self.message}


@dataclass
class Verified:
    """What was looked at in one checkpoint; all of it intact where `problems` is empty. `stores` and `keys` count opened ones (deep)."""

    checkpoint: Checkpoint
    objects: int = 0
    files: int = 0
    bytes: int = 0
    stores: int = 0
    keys: int = 0
    without_full: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def damage(self) -> str | None:
        """Something that is certainly damaged or missing. Raises `StorageSetupError` where nothing is, as far as it may be read."""
        certain = next((problem for problem in self.problems if not problem.unreadable), None)
        if certain is None and self.problems:
            raise StorageSetupError(self.problems[0].message)
        return certain.message if certain is not None else None


class Verifier:
    """Checkpoints share objects: a range that was read once, and a snapshot that was opened once, is not read again."""

    def __init__(self, storage: Storage, threads: int = 8, tell: Tell = nobody) -> None:
        self._storage = storage
        self._tell = tell
        self._threads = threads
        self._sizes: dict[str, int | None] = {}
        self._checked: dict[Handle, CheckpointError | None] = {}
        self._opened: dict[tuple[StoreId, Handle], tuple[int, str | None]] = {}

    def verify(self, checkpoint: Checkpoint) -> Verified:
        """Every referenced object exists and has its length, every range its CRC-32, and the driver's files of the epoch are there; large
        ones of those are ranges like any other.

        Raises `StorageError` where the storage does not answer; what is damaged or missing is in the result.
        """
        handles = dict.fromkeys(checkpoint.handles)
        size = checkpoint.size + sum(h.length for h in handles if h.kind is HandleKind.FILE)
        found = Verified(checkpoint, objects=len(checkpoint.objects), bytes=size)
        for name in (f"offsets/{checkpoint.id.epoch}", f"commits/{checkpoint.id.epoch}"):
            if name not in checkpoint.files:
                found.problems.append(Problem(name, f"the driver's file {name} is not in the checkpoint; it cannot be restored"))
        found.files = len(handles)
        for handle, error in self.check(handles, checkpoint_name(checkpoint.id)).items():
            if error is not None:
                found.problems.append(Problem(handle.object, str(error), isinstance(error, StorageSetupError)))
        return found

    def check(self, handles: Iterable[Handle], whose: str = "files") -> dict[Handle, CheckpointError | None]:
        """What is wrong with each of these ranges, if anything: missing, damaged, or nobody here may read it. Raises `StorageError`.

        `whose` they are is said with the progress.
        """
        wanted = dict.fromkeys(handles)
        new = [h for h in wanted if h not in self._checked]
        self._sizes.update(sizes(self._storage, sorted({h.object for h in new} - self._sizes.keys()), self._tell))
        task = Task(self._tell, f"reading {whose}", sum(h.length for h in new), Unit.BYTES)
        with ThreadPoolExecutor(self._threads) as pool:
            for results in pool.map(self._check, near(new)):
                self._checked.update(results)
                task.add(sum(h.length for h in results))
        return {handle: self._checked[handle] for handle in wanted}

    def open_stores(self, found: Verified) -> None:
        """Open the newest full snapshot of every store and count its keys against the number recorded with it (deep)."""
        with temporary_folder(_PURPOSE) as folder, ThreadPoolExecutor(min(2, self._threads)) as pool:

            def one(item: tuple[int, Snapshot]) -> tuple[Snapshot, int, str | None]:
                return (item[1], *self._open(found.checkpoint, item[1], folder / str(item[0])))

            whole = [s for s in found.checkpoint.snapshots if full_snapshot(s) is not None]
            found.without_full = len(found.checkpoint.snapshots) - len(whole)
            task = Task(self._tell, f"opening stores of {checkpoint_name(found.checkpoint.id)}", len(whole))
            for snapshot, keys, message in pool.map(one, enumerate(whole)):
                task.add()
                found.stores += 1
                found.keys += keys
                if message is not None:
                    store = snapshot.store
                    found.problems.append(Problem(f"operator {store.operator}, partition {store.partition}, store {store.store}", message))

    def _check(self, group: list[Handle]) -> Mapping[Handle, CheckpointError | None]:
        """What is wrong with each of these ranges of one object, if anything."""
        size = self._sizes[group[0].object]
        if size is None:
            return dict.fromkeys(group, ObjectMissingError(f"the object {group[0].object} is missing"))
        results: dict[Handle, CheckpointError | None] = {}
        inside = []
        for handle in group:
            if handle.offset + handle.length > size:
                end = handle.offset + handle.length
                results[handle] = DamagedError(f"{handle.name} ends at byte {end} of {handle.object}, which has only {size}")
            else:
                inside.append(handle)
        if not inside:
            return results
        try:
            if is_long(inside):
                with temporary_folder(_PURPOSE) as folder:
                    read_to_file(self._storage, inside[0], folder / "range")
                return {inside[0]: None}
            return results | {one.handle: one.damage for one in read(self._storage, inside)}
        except (DamagedError, ObjectMissingError, StorageSetupError) as e:
            return results | dict.fromkeys(inside, e)

    def _open(self, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path) -> tuple[int, str | None]:
        newest = full_snapshot(snapshot)
        assert newest is not None
        key = snapshot.store, newest
        if key not in self._opened:
            self._opened[key] = self._count(checkpoint, snapshot, folder)
        return self._opened[key]

    def _count(self, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path) -> tuple[int, str | None]:
        try:
            store = assemble(self._storage, checkpoint, snapshot, folder)
            assert store is not None
            count = count_keys(store)
        except (DamagedError, ObjectMissingError, StorageSetupError) as e:
            return 0, str(e)
        except OSError as e:
            raise StorageError(f"snapshots cannot be unpacked in {folder.parent}: {e.strerror or e}; free space there or set TMPDIR") from e
        finally:
            _remove(folder)
        if count.result is CountResult.DIFFERENT:
            return count.entries, f"{store.zip_name} holds {count.entries} entries, {count.recorded} were recorded with it"
        return count.entries, None


def _remove(folder: Path) -> None:
    """Stores are removed one by one: together they can be larger than the disk."""
    if folder.exists():
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        folder.rmdir()


def to_json(found: Iterable[Verified], deep: bool) -> list[dict[str, Any]]:
    """For programs."""
    documents = []
    for v in found:
        doc: dict[str, Any] = {
            "checkpoint": checkpoint_name(v.checkpoint.id),
            "intact": not v.problems,
            "objects": v.objects,
            "files": v.files,
            "bytes": v.bytes,
        }
        if deep:
            doc |= {"stores_opened": v.stores, "entries_counted": v.keys, "stores_without_full_snapshot": v.without_full}
        documents.append({**doc, "problems": [p.to_json() for p in v.problems]})
    return documents
