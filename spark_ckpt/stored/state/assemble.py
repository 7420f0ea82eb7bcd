"""From a checkpoint's handles to a folder that RocksDB opens: the newest full snapshot of one store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spark_ckpt import paths
from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint, Handle, HandleKind, Snapshot
from spark_ckpt.process import owner_only
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.ranges import RangeDamagedError, read_to_file
from spark_ckpt.stored.state.archive import FullSnapshot, unpack


@dataclass(frozen=True)
class AssembledStore:
    """A RocksDB folder with one store's newest full snapshot; `zip_name` tells its version (`7_<uid>.zip`)."""

    folder: Path
    zip_name: str
    content: FullSnapshot


def full_snapshot(snapshot: Snapshot) -> Handle | None:
    """The handle of the newest full snapshot's zip; None: the store's state is changelogs from its first version on."""
    zips = [handle for handle in snapshot.handles if handle.kind is HandleKind.SNAPSHOT]
    return zips[-1] if zips else None


def assemble(
    storage: Storage, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path, before_each: Callable[[], None] = lambda: None
) -> AssembledStore | None:
    """Download, verify and unpack the newest full snapshot into `folder`, which must be new or empty. None: there is no full one yet.

    `before_each` file it may raise, so that no more are downloaded. Raises `DamagedError`, `ObjectMissingError` and `StorageError`, each
    naming checkpoint and store.
    """
    newest = full_snapshot(snapshot)
    if newest is None:
        return None
    try:
        return _assemble(storage, snapshot, newest, folder, before_each)
    except (DamagedError, StorageError) as e:
        raise _named(e, checkpoint, snapshot) from e


def _assemble(storage: Storage, snapshot: Snapshot, newest: Handle, folder: Path, before_each: Callable[[], None]) -> AssembledStore:
    owner_only.make_last(folder)
    if any(folder.iterdir()):
        raise ValueError(f"the folder {folder} is not empty")
    archive = folder / ".snapshot.zip"
    before_each()
    _fetch(storage, newest, archive)
    content = unpack(archive, folder, newest.name)
    archive.unlink()
    stored = {handle.name: handle for handle in snapshot.handles if handle.kind is HandleKind.SST}
    for sst in content.ssts:
        handle = stored.get(f"SSTs/{sst.stored_name}")
        if handle is None:
            raise DamagedError(f"{newest.name} needs {sst.stored_name}, which the checkpoint does not hold")
        if handle.length != sst.size:
            raise DamagedError(f"{newest.name} says {sst.stored_name} has {sst.size} bytes, the checkpoint says {handle.length}")
        target = folder / sst.local_name
        if target.exists():
            raise DamagedError(f"{newest.name} holds {sst.local_name} and names it as an SST too")
        before_each()
        _fetch(storage, handle, target)
    return AssembledStore(folder, newest.name, content)


def _fetch(storage: Storage, handle: Handle, path: Path) -> None:
    paths.check_object(handle.object)
    try:
        read_to_file(storage, handle, path)
    except RangeDamagedError as e:
        raise DamagedError(str(e)) from e


def _named(error: CheckpointError, checkpoint: Checkpoint, snapshot: Snapshot) -> CheckpointError:
    store = snapshot.store
    where = f"operator {store.operator}, partition {store.partition}, store {store.store}"
    return type(error)(f"{paths.checkpoint_prefix(checkpoint.id).rstrip('/')}: {where}: {error}")
