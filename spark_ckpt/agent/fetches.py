"""Putting a version's files into a store's spool folder (Flink: `RocksDBStateDownloader`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_ckpt.agent.reads import Reader
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.restores import Reach, Restore
from spark_ckpt.agent.staging import Staging, local_error
from spark_ckpt.errors import DamagedError, ObjectMissingError
from spark_ckpt.model import CheckpointId, Handle, Snapshot, StoreId
from spark_ckpt.paths import check_file, check_object
from spark_ckpt.process import owner_only
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.checksums import combined, crc32_of
from spark_ckpt.stored.ranges import RangeDamagedError, near, pieces, read_piece, read_to_files

StoreFolder = Callable[[StoreId], Path]


@dataclass(frozen=True)
class Fetched:
    """What had to be read: `files` and `bytes` leave out what was there, or elsewhere on this machine (`linked` files)."""

    files: int
    bytes: int
    linked: int

    def to_json(self) -> dict[str, int]:
        return {"files": self.files, "bytes": self.bytes, "linked": self.linked}


@dataclass(frozen=True)
class FetchRequest:
    """A version that a task needs (docs/pipes.md, `fetch`): from the base checkpoint, or by `handles` where no checkpoint holds it yet."""

    run: int
    store: StoreId
    version: int
    uid: str
    base: CheckpointId | None
    folder: Path
    handles: tuple[Handle, ...] | None = None

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> FetchRequest:
        rows = doc.get("handles")
        handles = None if rows is None else tuple(Handle.from_json(row) for row in rows)
        return FetchRequest(
            int(doc["run"]),
            StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"])),
            int(doc["version"]),
            str(doc["uid"]),
            CheckpointId.from_json(doc["base"]) if doc.get("base") else None,
            Path(doc["dir"]),
            handles,
        )


class Fetcher:
    """Reads ranges through one small pool that all fetches of the agent share, as all restores share the `room`. `earlier` tells, for a
    store's folder, where else on this machine its files may lie: those are linked if their checksums match."""

    def __init__(
        self, staging: Staging, pool: ThreadPoolExecutor, room: RestoreRoom, earlier: Callable[[Path], Sequence[Path]] = lambda _: ()
    ) -> None:
        self._staging = staging
        self._pool = pool
        self._room = room
        self._earlier = earlier

    def restore(self, storage: Storage, snapshots: Mapping[StoreId, Snapshot], reach: Reach, store_folder: StoreFolder) -> Restore:
        """Of the checkpoint that holds these; `store_folder` tells where a store's files are to lie."""
        folders: dict[StoreId, Sequence[Path]] = {}

        def is_here(store: StoreId, handle: Handle) -> bool:
            if store not in folders:
                own = store_folder(store)
                folders[store] = [folder for folder in (own, *self._earlier(own)) if folder.is_dir()]
            return any(_has_length(folder / handle.name, handle.length) for folder in folders[store])

        return Restore(storage, snapshots, Reader(self._staging, self._pool), reach, self._room, is_here)

    def fetch(
        self, storage: Storage, handles: Sequence[Handle], folder: Path, checkpoint: str, restore: Restore | None = None
    ) -> Fetched:
        """All files in place, or an error and the version's own file not in place.

        `checkpoint` says in messages whose files they are, `restore` reads what it has together with what others need.
        Raises `DamagedError`, `ObjectMissingError`, `StorageError`.
        """
        for handle in handles:
            check_object(handle.object)
            check_file(handle.name)
        try:
            owner_only.make_folder(folder / "SSTs")
            missing = [h for h in handles if not _is_there(folder / h.name, h)]
            fresh = {id(h): self._staging.path() for h in missing}
            try:
                folders = self._earlier(folder) if missing else ()
                absent = [h for h in missing if not _link(h, folders, fresh[id(h)])]
                alone = absent
                if restore is not None:
                    alone = [h for h, _ in restore.bring([(h, fresh[id(h)]) for h in absent])]
                groups = [(group, [fresh[id(h)] for h in group]) for group in near(alone)]
                reads = [read for group, targets in groups for read in self._begin(storage, group, targets, checkpoint)]
                errors = [error for read in reads if (error := read.exception()) is not None]
                if errors:
                    raise errors[0]
                for (group, targets), crc in self._joined(groups, reads):
                    if crc != group[0].checksum:  # it may have been damaged on its way only
                        self._read(storage, group, targets, checkpoint)
                for parent in {(folder / h.name).parent for h in missing} - {folder}:
                    owner_only.make_folder(parent)
                for handle in missing:  # in their order: the version's own file comes last
                    os.replace(fresh[id(handle)], folder / handle.name)
            finally:
                for path in fresh.values():
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise local_error(error, folder) from error
        return Fetched(len(absent), sum(h.length for h in absent), len(missing) - len(absent))

    def _begin(self, storage: Storage, group: list[Handle], targets: list[Path], checkpoint: str) -> list[Future[int]]:
        parts = pieces(group)
        if not parts:
            return [self._pool.submit(self._read, storage, group, targets, checkpoint)]
        targets[0].touch(owner_only.FILE, exist_ok=False)
        return [self._pool.submit(self._read_piece, storage, group[0], at, length, targets[0], checkpoint) for at, length in parts]

    def _joined(
        self, groups: Sequence[tuple[list[Handle], list[Path]]], reads: Sequence[Future[int]]
    ) -> Iterator[tuple[tuple[list[Handle], list[Path]], int]]:
        """What was read in pieces, with the checksum of the whole."""
        crcs = iter(read.result() for read in reads)
        for group, targets in groups:
            parts = [(next(crcs), length) for _, length in pieces(group) or [(0, 0)]]
            if len(parts) > 1:
                yield (group, targets), combined(parts)

    def _read_piece(self, storage: Storage, handle: Handle, at: int, length: int, target: Path, checkpoint: str) -> int:
        with _naming_the_object(storage, handle, checkpoint):
            return read_piece(storage, handle, at, length, target)

    def _read(self, storage: Storage, group: list[Handle], targets: list[Path], checkpoint: str) -> int:
        with _naming_the_object(storage, group[0], checkpoint):
            read_to_files(storage, group, targets, self._staging.path())
        return 0


@contextmanager
def _naming_the_object(storage: Storage, handle: Handle, checkpoint: str) -> Iterator[None]:
    """Errors say which object and checkpoint are concerned, and the way out."""
    named: DamagedError | ObjectMissingError
    try:
        yield
    except DamagedError as error:
        named = DamagedError(
            f"{storage.url}/{handle.object} of {checkpoint} is damaged: {_what(error)}; restart the query, "
            "it goes back to the newest intact checkpoint, and `spark-ckpt verify` lists all that is damaged"
        )
        named.object = handle.object
        raise named from error
    except ObjectMissingError as error:
        named = ObjectMissingError(
            f"{storage.url}/{handle.object}, which {checkpoint} needs, does not exist; something else deleted it: restart the query, "
            "it goes back to the newest intact checkpoint, and `spark-ckpt verify` lists all that is missing"
        )
        named.object = handle.object
        raise named from error


def _what(error: DamagedError) -> str:
    if not isinstance(error, RangeDamagedError):
        return str(error)
    h = error.handle
    return f"the {h.length} bytes from {h.offset} on, {h.name}, have CRC-32 {error.checksum:08x} instead of {h.checksum:08x}"


def _has_length(path: Path, length: int) -> bool:
    try:
        return path.stat().st_size == length
    except OSError:
        return False


def _link(handle: Handle, folders: Sequence[Path], target: Path) -> bool:
    """Link the file from one of the folders, if it is the very one. What is checked is the link: the other one may go at any time."""
    for folder in folders:
        try:
            os.link(folder / handle.name, target, follow_symlinks=False)
        except OSError:
            continue
        if target.is_file() and not target.is_symlink() and _is_there(target, handle):
            return True
        target.unlink()
    return False


def _is_there(path: Path, handle: Handle) -> bool:
    try:
        if path.stat().st_size != handle.length:
            return False
        with path.open("rb") as file:
            return crc32_of(file) == handle.checksum
    except FileNotFoundError:
        return False


def missing_snapshot(store: StoreId, version: int, uid: str, base: CheckpointId | None) -> ObjectMissingError:
    where = f"checkpoint {base.run}/{base.epoch} does not hold" if base else "there is no completed checkpoint that holds"
    return ObjectMissingError(
        f"{where} version {version} ({uid}) of store {store.store}, operator {store.operator}, partition {store.partition}; "
        "restart the query: it begins again from the newest complete checkpoint"
    )
