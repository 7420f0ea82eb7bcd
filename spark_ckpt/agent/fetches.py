"""Putting a version's files into a store's spool folder (Flink: `RocksDBStateDownloader`)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_ckpt.agent.staging import Staging, local_error
from spark_ckpt.errors import DamagedError, ObjectMissingError
from spark_ckpt.model import CheckpointId, Handle, StoreId
from spark_ckpt.paths import check_file, check_object
from spark_ckpt.process import owner_only
from spark_ckpt.storage.base import Storage
from spark_ckpt.storage.checksums import combined

PIECE_BYTES = 8 << 20
"""A file longer than this is read in pieces, several at once. Smaller ones are more requests, which cost processor time."""
_NEAR_BYTES = 64 << 10
_RANGE_BYTES = 4 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """What had to be read: `files` and `bytes` leave out what was there, or elsewhere on this machine (`linked` files)."""

    files: int
    bytes: int
    linked: int

    def to_json(self) -> dict[str, int]:
        return {"files": self.files, "bytes": self.bytes, "linked": self.linked}


@dataclass(frozen=True)
class Wanted:
    """A version that a task needs (docs/pipes.md, `fetch`): from the base checkpoint, or by `handles` where no checkpoint holds it yet."""

    store: StoreId
    version: int
    uid: str
    base: CheckpointId | None
    folder: Path
    handles: tuple[Handle, ...] | None = None

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Wanted:
        rows = doc.get("handles")
        handles = None if rows is None else tuple(Handle.from_json(row) for row in rows)
        return Wanted(
            StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"])),
            int(doc["version"]),
            str(doc["uid"]),
            CheckpointId.from_json(doc["base"]) if doc.get("base") else None,
            Path(doc["dir"]),
            handles,
        )


class Fetcher:
    """Reads ranges through one small pool that all fetches of the agent share. `earlier` tells, for a store's folder, where else on this
    machine its files may lie: those are linked if their checksums match."""

    def __init__(self, staging: Staging, pool: ThreadPoolExecutor, earlier: Callable[[Path], Sequence[Path]] = lambda _: ()) -> None:
        self._staging = staging
        self._pool = pool
        self._earlier = earlier

    def fetch(self, storage: Storage, handles: Sequence[Handle], folder: Path, checkpoint: str) -> Fetched:
        """All files in place, or an error and the version's own file not in place.

        `checkpoint` says in messages whose files they are. Raises `DamagedError`, `ObjectMissingError`, `StorageError`.
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
                groups = [(group, [fresh[id(h)] for h in group]) for group in near(absent)]
                reads = [read for group, targets in groups for read in self._begin(storage, group, targets, checkpoint)]
                errors = [error for read in reads if (error := read.exception()) is not None]
                if errors:
                    raise errors[0]
                for (group, targets), crc in self._joined(groups, reads):
                    if crc != group[0].checksum:  # it may have been damaged on its way only
                        self._read(storage, group, targets, checkpoint)
                for handle in missing:  # in their order: the version's own file comes last
                    target = folder / handle.name
                    owner_only.make_folder(target.parent)
                    os.replace(fresh[id(handle)], target)
            finally:
                for path in fresh.values():
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise local_error(error, folder) from error
        return Fetched(len(absent), sum(h.length for h in absent), len(missing) - len(absent))

    def _begin(self, storage: Storage, group: list[Handle], targets: list[Path], checkpoint: str) -> list[Future[int]]:
        if _pieces(group) == [(0, 0)]:
            return [self._pool.submit(self._read, storage, group, targets, checkpoint)]
        targets[0].touch(owner_only.FILE, exist_ok=False)
        return [self._pool.submit(self._read_piece, storage, group[0], at, length, targets[0], checkpoint) for at, length in _pieces(group)]

    def _joined(
        self, groups: Sequence[tuple[list[Handle], list[Path]]], reads: Sequence[Future[int]]
    ) -> Iterator[tuple[tuple[list[Handle], list[Path]], int]]:
        """What was read in pieces, with the checksum of the whole."""
        crcs = iter(read.result() for read in reads)
        for group, targets in groups:
            pieces = [(next(crcs), length) for _, length in _pieces(group)]
            if len(pieces) > 1:
                yield (group, targets), combined(pieces)

    def _read_piece(self, storage: Storage, handle: Handle, at: int, length: int, target: Path, checkpoint: str) -> int:
        with _told(storage, handle, checkpoint):
            try:
                return storage.get_to_file(handle.object, handle.offset + at, length, target, at)
            except DamagedError:
                return storage.get_to_file(handle.object, handle.offset + at, length, target, at)

    def _read(self, storage: Storage, group: list[Handle], targets: list[Path], checkpoint: str) -> int:
        """One ranged read; a second one if what came is damaged: it may have been damaged on its way only."""
        with _told(storage, group[0], checkpoint):
            try:
                self._read_once(storage, group, targets)
            except DamagedError:
                for target in targets:
                    target.unlink(missing_ok=True)
                self._read_once(storage, group, targets)
        return 0

    def _read_once(self, storage: Storage, group: list[Handle], targets: list[Path]) -> None:
        begin, end = group[0].offset, max(h.offset + h.length for h in group)
        if begin == end:
            for handle, target in zip(group, targets, strict=True):
                target.touch(owner_only.FILE)
                _compare(handle, zlib.crc32(b""))
            return
        if len(group) == 1:
            _compare(group[0], storage.get_to_file(group[0].object, begin, end - begin, targets[0]))
            return
        whole = self._staging.path()
        try:
            storage.get_to_file(group[0].object, begin, end - begin, whole)
            for handle, target in zip(group, targets, strict=True):
                _compare(handle, _copy(whole, handle.offset - begin, handle.length, target))
        finally:
            whole.unlink(missing_ok=True)


@contextmanager
def _told(storage: Storage, handle: Handle, checkpoint: str) -> Iterator[None]:
    """Errors say which object and checkpoint are concerned, and the way out."""
    told: DamagedError | ObjectMissingError
    try:
        yield
    except DamagedError as error:
        told = DamagedError(
            f"{storage.url}/{handle.object} of {checkpoint} is damaged: {error}; restart the query, "
            "it goes back to the newest intact checkpoint, and `spark-ckpt verify` lists all that is damaged"
        )
        told.object = handle.object
        raise told from error
    except ObjectMissingError as error:
        told = ObjectMissingError(
            f"{storage.url}/{handle.object}, which {checkpoint} needs, does not exist; something else deleted it: restart the query, "
            "it goes back to the newest intact checkpoint, and `spark-ckpt verify` lists all that is missing"
        )
        told.object = handle.object
        raise told from error


def _pieces(group: Sequence[Handle]) -> list[tuple[int, int]]:
    """Position and length of the pieces of a long file; (0, 0) for what is read at once."""
    length = group[0].length
    if len(group) > 1 or length <= PIECE_BYTES:
        return [(0, 0)]
    return [(at, min(PIECE_BYTES, length - at)) for at in range(0, length, PIECE_BYTES)]


def near(handles: Sequence[Handle]) -> list[list[Handle]]:
    """Groups that one ranged read covers: of one object, at most 64 KiB apart, 4 MiB together."""
    groups: list[list[Handle]] = []
    end = 0
    for handle in sorted(handles, key=lambda h: (h.object, h.offset, h.length)):
        after = handle.offset + handle.length
        if groups:
            first = groups[-1][0]
            if handle.object == first.object and handle.offset - end <= _NEAR_BYTES and max(end, after) - first.offset <= _RANGE_BYTES:
                groups[-1].append(handle)
                end = max(end, after)
                continue
        groups.append([handle])
        end = after
    return groups


def _compare(handle: Handle, checksum: int) -> None:
    if checksum != handle.checksum:
        raise DamagedError(
            f"the {handle.length} bytes from {handle.offset} on, {handle.name}, have CRC-32 {checksum:08x} instead of {handle.checksum:08x}"
        )


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
        crc = 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                crc = zlib.crc32(block, crc)
    except FileNotFoundError:
        return False
    return crc == handle.checksum


def _copy(source: Path, offset: int, length: int, target: Path) -> int:
    crc = 0
    with source.open("rb") as whole, open(target, "xb", opener=owner_only.opener) as file:
        whole.seek(offset)
        while length > 0 and (block := whole.read(min(length, _BLOCK))):
            file.write(block)
            crc = zlib.crc32(block, crc)
            length -= len(block)
    return crc


def missing_snapshot(store: StoreId, version: int, uid: str, base: CheckpointId | None) -> ObjectMissingError:
    where = f"checkpoint {base.run}/{base.epoch} does not hold" if base else "there is no completed checkpoint that holds"
    return ObjectMissingError(
        f"{where} version {version} ({uid}) of store {store.store}, operator {store.operator}, partition {store.partition}; "
        "restart the query: it begins again from the newest complete checkpoint"
    )
