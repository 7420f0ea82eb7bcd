"""Copies of checkpoints: into a savepoint's folder, and from there or from another stream into a stream (docs/format.md).

A copy holds the ranges that the checkpoint names and nothing else, each compared with its CRC-32 on the way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from spark_ckpt.errors import ConflictError, DamagedError, ObjectMissingError, StorageError
from spark_ckpt.model import Checkpoint, CheckpointId, Content, FileHandle, Handle
from spark_ckpt.paths import LOG_PREFIX, METADATA_NAME, copied_key, is_object, metadata_key, parse_checkpoint_url
from spark_ckpt.process import owner_only
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.storage.base import PutResult, Slice, Storage
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.chosen_ranges import contents_of, to_file
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.metadata.reading import read_metadata
from spark_ckpt.stored.presence import sizes
from spark_ckpt.stored.ranges import IN_MEMORY, is_long, near

_THREADS = 4
_OF_A_SAVEPOINT = ". If it is a savepoint, rename its folder: this is the name of a checkpoint"


@dataclass(frozen=True)
class RestorePath:
    """What a person named by the URL of its folder: a checkpoint of some stream, or a savepoint.

    `storage_url`: what its objects are relative to, the stream's URL or the savepoint's own. `key`: of its `_metadata` below that.
    """

    url: str
    storage_url: str
    key: str
    checkpoint: CheckpointId | None

    @staticmethod
    def at(url: str) -> RestorePath:
        folder = url.rstrip("/").removesuffix(f"/{METADATA_NAME}")
        found = parse_checkpoint_url(folder)
        if found is None:
            return RestorePath(folder, folder, METADATA_NAME, None)
        stream, checkpoint = found
        return RestorePath(folder, stream, metadata_key(checkpoint), checkpoint)

    @property
    def is_savepoint(self) -> bool:
        return self.checkpoint is None

    def read(self, storage: Storage) -> Checkpoint:
        """`storage` is rooted at `storage_url`. Raises `ObjectMissingError`, `DamagedError`, `StorageError`."""
        try:
            return read_metadata(storage, self.key, self.checkpoint, advice=_OF_A_SAVEPOINT)
        except ObjectMissingError as e:
            if self.is_savepoint and next(storage.list("offsets/"), None) is not None:
                raise ObjectMissingError(
                    f"{self.url} is no savepoint but a query's checkpointLocation; if the query has run without the plugin, "
                    "`spark-ckpt import` makes a savepoint of it; else give the URL of a checkpoint, as `spark-ckpt list` prints it"
                ) from e
            raise ObjectMissingError(
                f"there is no checkpoint or savepoint at {self.url}; give the URL of the folder that holds its {METADATA_NAME}, as "
                "`spark-ckpt list --json` and `spark-ckpt savepoint` print it"
            ) from e


def finish_savepoint(target: Storage, made: Checkpoint) -> None:
    """Puts its `_metadata`, and removes what earlier attempts at it have left: an edit that forgets somebody must not keep his state.

    Rule: only what was there before the put goes, for what comes later is of whoever has made this savepoint anew meanwhile, and nothing
    where that has happened already. A folder that holds anything else is left alone, as by `gc`: it may be a stream's. What is not removed
    here, `gc` removes. Raises `ConflictError` where somebody has made another one there meanwhile, and then takes this attempt's own
    objects away, or has deleted those; `StorageError`.
    """
    if not put_savepoint(target, made):
        withdraw(target, made.objects)
        raise made_meanwhile(target)


def put_savepoint(target: Storage, made: Checkpoint) -> bool:
    """The same, but for somebody else's savepoint that is there: False, and nothing is changed."""
    content = encode_metadata(made)
    there = _all_there(target, made)
    if not _stored(target, content) and not _holds(target, content):
        return False
    if not all(map(is_object, there)):
        return True
    left = there - made.objects
    if not left and not isinstance(target, FileStorage):
        return True
    try:
        if not _holds(target, content):
            return True
        target.delete(sorted(left))
        if isinstance(target, FileStorage):
            target.end_all()
    except StorageError as e:
        raise StorageError(
            f"the savepoint at {target.url} is complete, but what an earlier attempt may have left there could not be removed ({e}); make "
            "it again under another name if it must not hold what that one had"
        ) from e
    return True


def _all_there(target: Storage, made: Checkpoint) -> frozenset[str]:
    """The keys in a savepoint's folder, less its `_metadata`. Raises `ConflictError` where objects of it are gone: they have the same names
    in each copy of a checkpoint, and (1) somebody else completes this savepoint; (2) a stream that owns it deletes it. And where a stream
    has begun in it meanwhile."""
    there = frozenset(found.key for found in target.list("")) - {METADATA_NAME}
    if any(key.startswith(LOG_PREFIX) for key in there):
        raise _in_a_stream(target)
    if not made.objects <= there and target.size(METADATA_NAME) is None:
        raise ConflictError(f"what the savepoint at {target.url} is made of has been deleted meanwhile; make it again")
    return there


def _stored(target: Storage, content: bytes) -> bool:
    """Whether this put has certainly made what is there. Otherwise that may be this one still, or another's."""
    try:
        return target.put_if_absent(METADATA_NAME, content) is PutResult.STORED
    except StorageError as error:
        if not _is_there(target):
            raise error
        return False  # its answer was lost; or the maker of what is there has taken away what this one was just writing


def _is_there(target: Storage) -> bool:
    """Where that cannot be said either, the error of the put is the one to tell: it says whether trying again can help."""
    try:
        return target.size(METADATA_NAME) is not None
    except StorageError:
        return False


def _holds(target: Storage, content: bytes) -> bool:
    """Whether the savepoint there is the one with this `_metadata`."""
    try:
        return target.size(METADATA_NAME) == len(content) and target.get(METADATA_NAME) == content
    except ObjectMissingError:
        return False


def refuse_stream(target: Storage) -> None:
    """Raises `ConflictError` where a stream is: a `_metadata` in its folder would be taken for it, and its objects for the savepoint's."""
    if any(next(target.list(place), None) is not None for place in (LOG_PREFIX, f"_ckpt/{LOG_PREFIX}")):
        raise _in_a_stream(target)


def _in_a_stream(target: Storage) -> ConflictError:
    return ConflictError(f"there is a stream at {target.url}, and a savepoint is not made in its folder; choose another name or place")


def made_meanwhile(target: Storage) -> ConflictError:
    return ConflictError(f"there is a savepoint at {target.url} already, which somebody has just made; choose another name")


def withdraw(target: Storage, own: frozenset[str]) -> None:
    """Of an attempt's own objects, those that the savepoint that is there does not name are nobody's."""
    try:
        named = RestorePath.at(target.url).read(target).objects
        target.delete(sorted(own - named))
    except (DamagedError, ObjectMissingError, StorageError):
        return  # what is there is not known, so all stays


def store_savepoint(source: Storage, checkpoint: Checkpoint, target: Storage) -> Checkpoint:
    """Copy a checkpoint of the stream at `source` into the folder at `target`; returns what the folder's `_metadata` says.

    Done again, it finds its own savepoint there, and copies once more what is no longer there of it. Raises `ConflictError` where another
    one is, or a stream; `DamagedError` and `ObjectMissingError` for what the checkpoint lacks, `StorageError`; nothing that was there
    before is changed by any of them.
    """
    refuse_stream(target)
    copies = _plan(checkpoint, None)
    made = _renamed(checkpoint, copies)
    if target.size(METADATA_NAME) is None:
        _copy(source, copies, target)
        _all_there(target, made)
        if _stored(target, encode_metadata(made)):
            return made
    there = RestorePath.at(target.url).read(target)
    if replace(there, counters={}) != replace(made, counters={}):
        raise ConflictError(
            f"there is another savepoint at {target.url} already (epoch {there.id.epoch} of query {there.query_id}); choose another name"
        )
    there_are = dict(sizes(target, (copy.key for copy in copies)))
    lost = [copy for copy in copies if there_are[copy.key] != copy.size]
    if lost:  # somebody has begun to remove it
        _copy(source, lost, target)
        if target.size(METADATA_NAME) is None:
            target.delete([copy.key for copy in lost])
            raise ConflictError(f"the savepoint at {target.url} is being deleted; make it again")
    return made


def import_objects(source: Storage, checkpoint: Checkpoint, target: Storage, run: int, attempt: str = "") -> Checkpoint:
    """Copy the objects of a checkpoint under the prefix of run `run` of the stream at `target`; returns it with the names that they have
    there: the same each time, of the same `attempt`.

    Raises like `store_savepoint`.
    """
    copies = _plan(checkpoint, run, attempt)
    _copy(source, copies, target)
    return _renamed(checkpoint, copies)


def copied_objects(checkpoint: Checkpoint, run: int, attempt: str) -> frozenset[str]:
    """The keys that `import_objects` gives them."""
    return frozenset(copy.key for copy in _plan(checkpoint, run, attempt))


@dataclass(frozen=True)
class _Copy:
    """The copy of one object: its ranges in their order, back to back."""

    key: str
    handles: tuple[Handle, ...]

    @property
    def size(self) -> int:
        return sum(handle.length for handle in self.handles)

    def renamed(self) -> Iterable[tuple[Handle, Handle]]:
        begin = 0
        for handle in self.handles:
            yield handle, replace(handle, object=self.key, offset=begin)
            begin += handle.length


def _plan(checkpoint: Checkpoint, run: int | None, attempt: str = "") -> list[_Copy]:
    """One copy of each object, of the distinct ranges that are named. The same checkpoint gives the same plan to the same attempt."""
    objects: dict[str, dict[tuple[int, int, int], Handle]] = {}
    for handle in checkpoint.handles:
        objects.setdefault(handle.object, {}).setdefault((handle.offset, handle.length, handle.checksum), handle)
    copies = []
    for key, ranges in sorted(objects.items()):
        chosen = zlib.crc32(f"{sorted(ranges)!r}{attempt}".encode())
        copies.append(_Copy(copied_key(key, chosen, run), tuple(ranges[place] for place in sorted(ranges))))
    return copies


def _renamed(checkpoint: Checkpoint, copies: Iterable[_Copy]) -> Checkpoint:
    places: dict[tuple[str, int, int, int], Handle] = {}
    for copy in copies:
        places.update(((old.object, old.offset, old.length, old.checksum), new) for old, new in copy.renamed())

    def there(handle: Handle) -> Handle:
        copied = places[handle.object, handle.offset, handle.length, handle.checksum]
        return replace(handle, object=copied.object, offset=copied.offset)

    def file(path: str, content: Content) -> Content:
        return replace(content, object=there(content.whole(path)).object) if isinstance(content, FileHandle) else content

    snapshots = tuple(replace(s, handles=tuple(there(h) for h in s.handles)) for s in checkpoint.snapshots)
    return replace(checkpoint, snapshots=snapshots, files={path: file(path, content) for path, content in checkpoint.files.items()})


def _copy(source: Storage, copies: Iterable[_Copy], target: Storage) -> None:
    """Nothing more is begun once one has failed: where the storage is away, each would wait for it."""
    with temporary_folder("copy") as folder, ThreadPoolExecutor(_THREADS, "copy") as pool:
        numbered = enumerate(copies)
        try:
            for done in as_completed([pool.submit(_copy_one, source, copy, target, folder / str(number)) for number, copy in numbered]):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _copy_one(source: Storage, copy: _Copy, target: Storage, path: Path) -> None:
    if copy.size <= IN_MEMORY:
        target.put(copy.key, b"".join(data for group in near(copy.handles) for data in contents_of(source, group)))
        return
    pieces = []
    try:
        for number, group in enumerate(near(copy.handles)):
            pieces.append(path.with_suffix(f".{number}"))
            if is_long(group):
                to_file(source, group[0], pieces[-1])
            else:
                with open(pieces[-1], "xb", opener=owner_only.opener) as file:
                    file.writelines(contents_of(source, group))
        target.put_slices(copy.key, [Slice(piece, 0, piece.stat().st_size) for piece in pieces])
    finally:
        for piece in pieces:
            piece.unlink(missing_ok=True)
