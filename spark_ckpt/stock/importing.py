"""A savepoint out of a `checkpointLocation` of stock Spark: a query with the plugin goes on from it (`spark.ckpt.restore.path`).

The location is only read. Order: everything that `_metadata` names is durable before that is put; before, it is looked whether stock Spark
has committed another batch meanwhile. What is written has the same names and contents each time, so that an import that was cut short is
done again. State of checkpoint format 1 gets unique ids and, in front of its changelogs, their lineage; all else is copied as it is.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from spark_ckpt.errors import ConflictError, DamagedError, FormatError, ObjectMissingError, without_way_out
from spark_ckpt.model import Checkpoint, CheckpointId, Content, FileHandle, Handle, HandleKind, Imported, Job, Snapshot
from spark_ckpt.paths import METADATA_NAME, driver_file_key
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.protocol.large_files import DIGITS
from spark_ckpt.stock import hadoop_crc
from spark_ckpt.stock.changelog_forms import check_changelog, read_lineage, with_lineage
from spark_ckpt.stock.reading import StockCheckpoint, StockStore, StoreFile, chain, newest_batch, newest_begun, read
from spark_ckpt.storage.base import Slice, Storage
from spark_ckpt.storage.checksums import CHUNK
from spark_ckpt.storage.slices import local_write_error
from spark_ckpt.stored.copies import RestorePath, put_savepoint, refuse_stream
from spark_ckpt.stored.presence import absent
from spark_ckpt.stored.segments import SHARED, LocalSnapshot, Place, Segments, local_handle
from spark_ckpt.stored.state.archive import FullSnapshot, as_v1, read_whole_snapshot

RUN = 1
"""The objects of a savepoint have the prefix of a run, whichever."""
_THREADS = 8
_AHEAD = 16
"""State stores that are fetched before those in front of them are stored."""
_DIGITS_OF_LOCATION = 16


def import_checkpoint(location: Storage, target: Storage, tell: Tell = nobody) -> Checkpoint:
    """Out of the `checkpointLocation` at `location` into the savepoint's folder at `target`; returns what its `_metadata` says.

    Done again, it finds its own savepoint there, reads the location once more to compare what is in it, and is content. Raises
    `ConflictError` where another one is, and for what cannot be imported; `DamagedError` and `ObjectMissingError` for what the location
    lacks, `StorageError`.
    """
    found = read(location, tell)
    refuse_stream(target)
    is_new = target.size(METADATA_NAME) is None
    if not is_new:
        there = RestorePath.at(target.url).read(target)
        if (there.query_id, there.id.epoch, there.imported) != (found.query_id, found.batch, Imported(found.location, found.planned)):
            raise _another(target, there, found)
    with temporary_folder("import") as folder:
        made = copied(location, found, target if is_new else None, RUN, folder, tell)
    _still_newest(location, found)
    if is_new and put_savepoint(target, made):
        return made
    there = RestorePath.at(target.url).read(target)
    if _content(there) != _content(made):
        raise _another(target, there, found)
    lost = next(absent(target, there.handles), None)
    if lost is not None:
        raise ConflictError(f"the savepoint at {target.url} is not whole any more: {lost}; import it again under another name")
    return there


def _another(target: Storage, there: Checkpoint, found: StockCheckpoint) -> ConflictError:
    return ConflictError(
        f"there is another savepoint at {target.url} already (epoch {there.id.epoch} of query {there.query_id}), and not of what is in "
        f"{found.location} now; choose another name"
    )


def _content(checkpoint: Checkpoint) -> Checkpoint:
    """What two imports of the same files have in common: neither the time of a file nor, since names have a digest in them, an object's."""
    snapshots = (
        replace(snapshot, handles=tuple(replace(handle, object="", offset=0) for handle in snapshot.handles))
        for snapshot in checkpoint.snapshots
    )
    return replace(checkpoint, time_ms=0, snapshots=tuple(snapshots))


def describe(location: Storage) -> Checkpoint:
    """What an import of the `checkpointLocation` at `location` would give, as far as a start asks before it copies: snapshots without
    handles, and no logs of sources that are large. Raises like `import_checkpoint`."""
    found = read(location)
    snapshots = tuple(Snapshot(store.id, store.version, store.uid, ()) for store in found.stores)
    return _checkpoint(found, RUN, {**found.files, **found.of_state}, snapshots)


def import_into(location: Storage, described: Checkpoint, target: Storage, run: int) -> Checkpoint:
    """What `describe` has told of, with its objects under the prefix of run `run` of the stream at `target`. Raises like it."""
    found = read(location)
    if (found.batch, found.planned) != (described.id.epoch, described.imported.planned if described.imported is not None else None):
        raise ConflictError(f"the query at {found.location} runs: it is at batch {found.batch} now; stop it, and start this one again")
    with temporary_folder("import") as folder:
        made = copied(location, found, target, run, folder, nobody)
    _still_newest(location, found)
    return made


def _still_newest(location: Storage, found: StockCheckpoint) -> None:
    begun, newest = newest_begun(location), newest_batch(location)
    if newest != found.batch or begun != found.batch + (found.planned is not None):
        raise ConflictError(
            f"the query at {found.location} has begun batch {begun} and committed batch {newest} while batch {found.batch} was imported; "
            "stop it, and import again"
        )


def copied(location: Storage, found: StockCheckpoint, target: Storage | None, run: int, folder: Path, tell: Tell) -> Checkpoint:
    """All objects, stored at `target` if there is one, and what `_metadata` is to say of them. `folder`: an empty one for what passes
    through.

    Two that import different things under one run, of which one will claim it, write different objects."""
    to = Place(target, run, found.batch, hashlib.sha256(f"{found.query_id}/{found.location}".encode()).hexdigest()[:_DIGITS_OF_LOCATION])
    files: dict[str, Content] = {**found.files, **{key: _large(location, to, found, key, folder) for key in found.large}}
    stores = Task(tell, "state stores imported", len(found.stores))
    segments = Segments(to)
    with ThreadPoolExecutor(_THREADS, "import") as pool:
        try:
            for store in _in_order(pool, location, found, to, folder):
                segments.take(store)
                stores.add()
            segments.flush()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return _checkpoint(found, run, files, tuple(segments.snapshots))


def _checkpoint(found: StockCheckpoint, run: int, files: Mapping[str, Content], snapshots: tuple[Snapshot, ...]) -> Checkpoint:
    return Checkpoint(
        id=CheckpointId(run, found.batch),
        log=0,
        claim=0,
        query_id=found.query_id,
        time_ms=found.time_ms,
        job=Job(tuple(operator.name for operator in found.operators), (), ""),
        files=files,
        snapshots=snapshots,
        counters={},
        imported=Imported(found.location, found.planned),
    )


def _in_order(pool: ThreadPoolExecutor, location: Storage, found: StockCheckpoint, target: Place, folder: Path) -> Iterator[LocalSnapshot]:
    waiting: deque[Future[LocalSnapshot]] = deque()
    for number, store in enumerate(found.stores):
        waiting.append(pool.submit(_fetch, location, found, store, target, folder / str(number)))
        if len(waiting) >= _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _fetch(location: Storage, found: StockCheckpoint, store: StockStore, target: Place, folder: Path) -> LocalSnapshot:
    """One store's chain: its newest full snapshot and the changelogs behind it."""
    try:
        return _chain_of(location, found, store, target, folder)
    except OSError as e:
        raise local_write_error(folder, e) from e


def _chain_of(location: Storage, found: StockCheckpoint, store: StockStore, target: Place, folder: Path) -> LocalSnapshot:
    folder.mkdir(mode=0o700)
    handles: list[Handle] = []
    local: dict[str, Path] = {}
    num_keys = None
    lineage = _lineage(location, found, store, folder)
    behind: list[tuple[int, str]] = []
    for file, uid in chain(found, store, lineage):
        full = file.name.endswith(".zip")
        name = f"{file.version}_{uid}.{'zip' if full else 'changelog'}"
        path = folder / name
        if full:
            _get(location, found, file.key, path)
            content = _full_snapshot(location, file, path)
            handles += _ssts(location, found, store, content, target, folder, local)
            num_keys = content.num_keys if file.version == store.version else None
        else:
            _get(location, found, file.key, path)
            check_changelog(path, location.url_of(file.key), found.codec)
            if found.format == 1:
                old = path.rename(folder / "old")
                with_lineage(old, path, behind, location.url_of(file.key), found.codec)
                old.unlink()
        handles.append(local_handle(HandleKind.SNAPSHOT if full else HandleKind.CHANGELOG, name, path))
        local[name] = path
        behind.append((file.version, uid))
    return LocalSnapshot(store.id, store.version, store.uid, tuple(handles), num_keys, local)


def _lineage(location: Storage, found: StockCheckpoint, store: StockStore, folder: Path) -> dict[int, str] | None:
    """In format 2 a changelog names what it builds on; None: format 1, or a full snapshot of the version itself."""
    newest = store.files.changelogs.get((store.version, store.uid))
    if found.format == 1 or newest is None or (store.version, store.uid) in store.files.zips:
        return None
    path = folder / "newest"
    _get(location, found, newest.key, path)
    try:
        return dict(read_lineage(path, location.url_of(newest.key), found.codec))
    finally:
        path.unlink()


def _ssts(
    location: Storage, found: StockCheckpoint, store: StockStore, full: FullSnapshot, target: Place, folder: Path, local: dict[str, Path]
) -> Iterable[Handle]:
    """Those that a full snapshot names, in its order. The long ones are stored at once."""
    for sst in full.ssts:
        name = f"SSTs/{sst.stored_name}"
        path = folder / sst.stored_name
        key = f"{store.folder}/{name}"
        _get(location, found, key, path)
        if path.stat().st_size != sst.size:
            raise DamagedError(
                f"{location.url_of(key)} has {path.stat().st_size} bytes, and the full snapshot that names it says {sst.size}; put it back"
            )
        handle = local_handle(HandleKind.SST, name, path)
        if handle.length < SHARED:
            local[name] = path
            yield handle
            continue
        stored = target.store_sst(path, handle, key)
        path.unlink()
        yield stored


def _large(location: Storage, target: Place, found: StockCheckpoint, key: str, folder: Path) -> FileHandle:
    """A file of the driver that is an object of its own."""
    path = folder / "driver"
    _get(location, found, key, path)
    length, checksum, digest = path.stat().st_size, 0, hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(CHUNK):
            checksum = zlib.crc32(piece, checksum)
            digest.update(piece)
    stored = FileHandle(driver_file_key(target.run, found.batch, digest.hexdigest()[:DIGITS]), length, checksum)
    target.store(stored.object, [Slice(path, 0, length)])
    path.unlink()
    return stored


def _get(location: Storage, found: StockCheckpoint, key: str, path: Path) -> None:
    """A whole object to a new local file, compared with the checksums that Hadoop has left beside it, if it has."""
    try:
        size = location.size(key)
        if size is None:
            raise ObjectMissingError(f"{location.url_of(key)} does not exist")
        location.get_to_file(key, 0, size, path)
    except ObjectMissingError as e:
        raise ObjectMissingError(
            f"{without_way_out(str(e))}; the import needs it: put it back, or if the query still runs, stop it and import again"
        ) from e
    if key in found.checked:
        hadoop_crc.check(location, key, path)


def _full_snapshot(location: Storage, file: StoreFile, path: Path) -> FullSnapshot:
    try:
        as_v1(path)
        return read_whole_snapshot(path)
    except FormatError as e:
        raise FormatError(f"{location.url_of(file.key)} cannot be read: {without_way_out(str(e))}; put it back") from e
