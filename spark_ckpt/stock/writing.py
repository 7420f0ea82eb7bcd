"""Writing a stock `checkpointLocation`: what tells Spark that a query has been there, the file `metadata`, comes last.

By default it is of Spark's checkpoint format 1, which is Spark's own default. Format 2 is not noted with a query, so that the job has to be
told of it; and with it stock Spark does not start again once a sink has skipped a batch that it has. Real time demands it all the same.

Before all else a mark is put that says what is being written. Done again after an interruption, the same export finds its own mark and
puts everything once more; the mark goes when all is there. A folder that holds anything else is left alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from spark_ckpt.errors import ConfigError, ConflictError, DamagedError, ObjectMissingError
from spark_ckpt.model import FileHandle, Handle, HandleKind
from spark_ckpt.process import owner_only
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, Unit, nobody
from spark_ckpt.stock.changelog_forms import without_lineage
from spark_ckpt.stock.exporting import Exported
from spark_ckpt.stock.layout import METADATA, CheckpointFormat, for_stock, is_changed, query_metadata, state_file
from spark_ckpt.storage.base import PutResult, Slice, Storage
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.chosen_ranges import contents_of, to_file
from spark_ckpt.stored.ranges import is_long, near

MARK = "_spark_ckpt_export"
"""What is being written here, and is not complete."""
_THREADS = 8
_NUMBERED_LAST = ("commits/", "offsets/")
"""Spark looks at these first of all: nothing else is missing when they come."""


@dataclass(frozen=True)
class Written:
    """`files` and `size` in bytes are those of the whole folder."""

    files: int
    size: int


def write_stock(
    source: Storage,
    exported: Exported,
    target: Storage,
    location: str,
    tell: Tell = nobody,
    form: CheckpointFormat = CheckpointFormat.V1,
) -> Written:
    """Write it to the folder at `target`, which must be new or empty. `location`: that folder as Spark writes it, `file:/x`, `s3a://b/x`.

    `source` is what the checkpoint's objects are relative to. Raises `ConflictError` where something else lies there, `DamagedError` and
    `ObjectMissingError` for what the checkpoint lacks, `StorageError`, `ConfigError` where nothing can be written to the local disk; done
    again, it goes on.
    """
    mark = mark_of(exported, location, form)
    driver = {path: content for path, content in exported.files.items() if isinstance(content, bytes)}
    ranges = _ranges(exported, form)
    small = {path: for_stock(path, content, location, form) for path, content in driver.items()}
    small |= {path: for_stock(path, _whole(source, ranges.pop(path)), location, form) for path in list(ranges) if is_changed(path)}
    last = {path: small[path] for path in sorted(small) if path.startswith(_NUMBERED_LAST)}
    last[METADATA] = query_metadata(exported.checkpoint.query_id)
    if not _begin(target, mark, last):
        return _ended(target, mark)
    _copy(source, ranges, target, exported.codec if form is CheckpointFormat.V1 else None, tell)
    _put_all(target, {path: data for path, data in small.items() if path not in last}, tell)
    for path, content in last.items():
        target.put(path, content)
    return _ended(target, mark)


def mark_of(exported: Exported, location: str, form: CheckpointFormat) -> bytes:
    """What lies in the folder until it is whole: says whose files are there."""
    document = {
        "writes": "a checkpointLocation, not complete yet: run the same `spark-ckpt export` again, or delete this folder",
        "export_of": exported.source,
        "epoch": exported.checkpoint.id.epoch,
        "planned": None if exported.planned is None else exported.planned.epoch,
        "location": location,
        "content": _digest(exported, form),
    }
    if form is not CheckpointFormat.V1:
        document["checkpoint_format"] = int(form)
    return json.dumps(document, indent=1).encode()


def _digest(exported: Exported, form: CheckpointFormat) -> str:
    """Another checkpoint can have been made at the same URL since the export was begun: files of both would be one state of neither."""
    snapshots = exported.checkpoint.snapshots
    state = sorted((state_file(snapshot.store, handle, form), repr(handle)) for snapshot in snapshots for handle in snapshot.handles)
    return hashlib.sha256(repr((state, sorted(exported.files.items()))).encode()).hexdigest()


def _begin(target: Storage, mark: bytes, last: Mapping[str, bytes]) -> bool:
    """Whether there is anything left to be written. `last`: what is put last of all. Raises `ConflictError`.

    Two exports to one folder: (1) A sees that it is empty; (2) B marks it, writes all, and removes its mark; (3) A marks it. So what is
    there behind the mark as `metadata` is compared; until it is there, whoever meets the mark is the same export. One that is another's,
    B's or that of a query which was started here meanwhile, makes the folder that one's, and the mark goes.
    """
    if target.size(MARK) is None:
        there = next((stored.key for stored in target.list("") if stored.key != MARK), None)
        if there is not None:
            raise ConflictError(f"{target.url} is not empty ({there} is there); export to a folder that does not exist yet")
        marked = target.put_if_absent(MARK, mark) is PutResult.STORED
    else:
        marked = False
    if not marked and target.get(MARK, limit=1 << 20) != mark:
        raise ConflictError(
            f"{target.url} holds another export that is not complete, {MARK} there says which; finish that one, or delete the folder"
        )
    if target.size(METADATA) is None:
        return True
    changed = next((path for path, content in last.items() if not _holds(target, path, content)), None)
    if changed is None:
        return False
    target.delete([MARK])
    raise ConflictError(
        f"{target.url} is the checkpointLocation of a query, or of another export, by now ({changed} there is not this export's); export "
        "to a folder that does not exist yet"
    )


def _holds(target: Storage, path: str, content: bytes) -> bool:
    return target.size(path) == len(content) and target.get(path) == content


def _ended(target: Storage, mark: bytes) -> Written:
    if isinstance(target, FileStorage):
        # Spark would leave its temporary files alone, a person would wonder. The mark goes after them: it says whose they are.
        target.end(MARK, mark)
    target.delete([MARK])
    sizes = [found.size for found in target.list("")]
    return Written(len(sizes), sum(sizes))


def _ranges(exported: Exported, form: CheckpointFormat) -> dict[str, Handle]:
    """Everything that is in objects: path below the `checkpointLocation` -> where it is. Raises `DamagedError`."""
    found: dict[str, Handle] = {}
    for snapshot in exported.checkpoint.snapshots:
        for handle in snapshot.handles:
            if found.setdefault(path := state_file(snapshot.store, handle, form), handle) != handle:
                raise DamagedError(f"{exported.source} names {path} twice, with two contents; choose another checkpoint")
    for path, content in exported.files.items():
        if isinstance(content, FileHandle):
            found[path] = content.whole(path)
    return found


def _whole(source: Storage, handle: Handle) -> bytes:
    """A file of the driver that has to be changed on the way: those are small, unless a query has thousands of state schemas."""
    return b"".join(bytes(data) for data in _read(source, [handle]))


def _copy(source: Storage, ranges: Mapping[str, Handle], target: Storage, codec: str | None, tell: Tell) -> None:
    """Ranges near each other are read at once. Nothing more is begun once one has failed. `codec`: of changelogs whose lineage has to be
    taken out; None: they stay as they are."""
    paths: dict[Handle, list[str]] = {}
    for path, handle in ranges.items():
        paths.setdefault(handle, []).append(path)
    task = Task(tell, "writing state", sum(handle.length for handle in paths), Unit.BYTES)

    def copy(number: int, group: Sequence[Handle]) -> None:
        local = folder / str(number)
        if is_long(group):
            _to_file(source, group[0], local)
            put(group[0], local)
            return
        for handle, data in zip(group, _read(source, group), strict=True):
            if codec is not None and handle.kind is HandleKind.CHANGELOG:
                with open(local, "xb", opener=owner_only.opener) as file:
                    file.write(data)
                put(handle, local)
            else:
                for path in paths[handle]:
                    target.put(path, bytes(data))
                task.add(handle.length)

    def put(handle: Handle, local: Path) -> None:
        """A local file, which is gone then."""
        plain = local.with_suffix(".plain")
        try:
            if codec is not None and handle.kind is HandleKind.CHANGELOG:
                without_lineage(local, plain, handle.name, codec)
            else:
                local.rename(plain)
            for path in paths[handle]:
                target.put_slices(path, [Slice(plain, 0, plain.stat().st_size)])
        finally:
            local.unlink(missing_ok=True)
            plain.unlink(missing_ok=True)
        task.add(handle.length)

    with temporary_folder("export") as folder, ThreadPoolExecutor(_THREADS, "export") as pool:
        try:
            for done in as_completed([pool.submit(copy, number, group) for number, group in enumerate(near(paths))]):
                done.result()
        except OSError as e:
            pool.shutdown(cancel_futures=True)
            raise ConfigError(
                f"the folder for temporary files, {folder}, cannot be written ({e.strerror or e}); set TMPDIR to one that has free space, "
                "and run the same command again"
            ) from e
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _put_all(target: Storage, contents: Mapping[str, bytes], tell: Tell) -> None:
    task = Task(tell, "writing files of the driver", len(contents))
    with ThreadPoolExecutor(_THREADS, "export") as pool:
        for _ in task.each(pool.map(target.put, contents.keys(), contents.values())):
            pass


def _read(source: Storage, group: Sequence[Handle]) -> Iterable[memoryview]:
    try:
        yield from contents_of(source, group)
    except ObjectMissingError as e:
        raise _gone(e) from e


def _to_file(source: Storage, handle: Handle, path: Path) -> None:
    try:
        to_file(source, handle, path)
    except ObjectMissingError as e:
        raise _gone(e) from e


def _gone(error: ObjectMissingError) -> ObjectMissingError:
    return ObjectMissingError(
        f"{error}; if the query is running, it has deleted that checkpoint meanwhile: end it, or export a savepoint, into another folder"
    )
