"""A savepoint with another number of state partitions, out of a checkpoint: Spark itself repartitions an export, which is then imported.

Spark writes the repartitioned state as one more batch, without input, that no sink sees. A file sink does not get over a number that it
never had (its log is compacted number by number), and a batch that was begun could not run again under its own. So the state is put in
the place of the batch that it was made of (`settle`), and numbers go on as they would have.

An operator with one partition by its nature, a limit, an aggregation or a session without keys, keeps it: Spark knows no limit here, and
would move the others' rows to a partition that the query does not have.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConfigError, ConflictError, DamagedError
from spark_ckpt.model import Checkpoint, CheckpointId, Imported, StoreId
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.progress import Task, Tell, nobody
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.offsets_conf import partitions_of
from spark_ckpt.state.saving import refuse_taken
from spark_ckpt.state.schemas import Operator, read_operators
from spark_ckpt.stock.exporting import Exported, to_export
from spark_ckpt.stock.importing import RUN, copied
from spark_ckpt.stock.layout import OURS, STOCK, location_of, store_folder, with_provider
from spark_ckpt.stock.reading import read
from spark_ckpt.stock.repartition_process import ROOM, Repartition
from spark_ckpt.stock.writing import write_stock
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.copies import finish_savepoint
from spark_ckpt.stored.reading import StreamReader

MOST_PARTITIONS = 100_000
_PARTITIONS = "spark.sql.shuffle.partitions"
_VERSION_FILE = re.compile(r"(\.?)(\d+)\.((?:zip|changelog)(?:\.crc)?)", re.ASCII)
_UNUSUAL = re.compile(r"[^A-Za-z0-9/._-]")
_LOOK_S = 0.5
_LOOK_SHARE = 20
"""Looking how far Spark is takes at most one part in so many of the time."""


def rescale(
    storage: Storage, reader: StreamReader, wanted: CheckpointId | None, partitions: int, target: Storage, tell: Tell = nobody
) -> Checkpoint:
    """A savepoint in the new folder at `target` whose state is that of a checkpoint of `reader`, in so many partitions; returns what its
    `_metadata` says. `wanted`: None for the checkpoint that a start would go on from.

    Nothing that was there is changed, and there is no savepoint unless all of it is stored. Raises `ConflictError` for what Spark does not
    repartition, or has already so many partitions; `ConfigError` where Spark, Java or room on the local disk is missing; `DamagedError`,
    `StorageError`.
    """
    if not 0 < partitions <= MOST_PARTITIONS:
        raise ConfigError(f"{partitions} is no number of state partitions; write 1 to {MOST_PARTITIONS}")
    refuse_taken(target)
    exported = to_export(storage, reader, wanted, tell, "rescaled")
    before = _partitions_before(exported)
    if before == partitions:
        raise ConflictError(f"{exported.source} has {partitions} state partitions already; nothing is to be done")
    with temporary_folder("rescale") as scratch:
        if _UNUSUAL.search(str(scratch)) is not None:
            raise ConfigError(
                f"the folder for temporary files, {scratch.parent}, has a character in its name that Spark may write in another way; set "
                "TMPDIR to a folder of letters, digits, '.', '_' and '-'"
            )
        free = shutil.disk_usage(scratch).free
        if free < 2 * exported.checkpoint.size:
            raise ConfigError(
                f"the folder for temporary files, {scratch.parent}, has {free >> 20} MiB of free space, and the state takes "
                f"{exported.checkpoint.size >> 20} MiB; {ROOM}"
            )
        try:
            location = scratch / "location"
            _export(storage, exported, location, tell)
            planned = _repartitioned(location, exported, before, partitions, scratch, tell)
            made = _import(location, target, scratch, tell)
        except OSError as e:
            raise ConfigError(f"the folder for temporary files, {scratch}, cannot be written ({e.strerror or e}); {ROOM}") from e
    checkpoint = exported.checkpoint
    _compare(checkpoint, made)
    imported = checkpoint.imported if planned is None else checkpoint.imported or Imported(exported.source)
    known = replace(imported, planned=planned) if imported is not None else None
    saved = replace(made, time_ms=checkpoint.time_ms, job=checkpoint.job, hooks=checkpoint.hooks, imported=known)
    finish_savepoint(target, saved)
    return saved


def _partitions_before(exported: Exported) -> int:
    if not exported.checkpoint.snapshots:
        raise ConflictError(f"{exported.source} has no state, so there are no state partitions to change; set {_PARTITIONS} as you like")
    found = partitions_of(exported.checkpoint)
    if found is None:
        raise DamagedError(f"{exported.source} does not say how many state partitions it has; choose another checkpoint")
    return found


def _export(storage: Storage, exported: Exported, location: Path, tell: Tell) -> None:
    folder = open_storage(f"file://{location}", S3Options())
    try:
        write_stock(storage, exported, folder, location_of(str(location)), tell)
    finally:
        folder.close()


def _repartitioned(location: Path, exported: Exported, before: int, partitions: int, scratch: Path, tell: Tell) -> bytes | None:
    """Leaves an export with so many partitions; returns the offsets of the epoch that was planned past it, as they have to be now."""
    epoch = exported.checkpoint.id.epoch
    planned = None
    if exported.planned is not None:
        path = location / offsets_file(epoch + 1)
        planned = with_provider(with_partitions(path.read_bytes(), partitions), STOCK, OURS)
        _unlink(path)
    operators = _operators(location)
    single = [operator for operator in operators if _has_one_partition(exported.checkpoint, operator, before)]
    others = [operator for operator in operators if operator not in single]
    if others:
        with _aside(location, single, scratch), Repartition(location, partitions, scratch / "spark") as spark:
            stores = [f"{location}/state/{o.id}/{{}}" + ("" if s.name == "default" else f"/{s.name}") for o in others for s in o.stores]
            _wait(spark, [f"{store.format(n)}/{epoch + 2}.zip" for store in stores for n in range(partitions)], tell)
    settle(location, epoch, others, partitions)
    return planned


def _wait(spark: Repartition, files: Sequence[str], tell: Tell) -> None:
    task = Task(tell, "repartitioning state stores", len(files))
    waiting, cost = set(files), 0.0
    while not spark.wait(max(_LOOK_S, cost * _LOOK_SHARE)):
        began = time.monotonic()
        waiting = {file for file in waiting if not Path(file).exists()}
        cost = time.monotonic() - began
        task.reach(len(files) - len(waiting))
    task.reach(len(files))


@contextmanager
def _aside(location: Path, operators: Sequence[Operator], scratch: Path) -> Iterator[None]:
    """What Spark is not to see."""
    aside = scratch / "aside"
    aside.mkdir()
    for operator in operators:
        (location / "state" / str(operator.id)).rename(aside / str(operator.id))
    yield
    for operator in operators:
        (aside / str(operator.id)).rename(location / "state" / str(operator.id))


def _has_one_partition(checkpoint: Checkpoint, operator: Operator, partitions: int) -> bool:
    """Whatever the number of partitions of the query, which is `partitions`."""
    if partitions == 1:
        return operator.has_one_partition
    return {s.store.partition for s in checkpoint.snapshots if s.store.operator == operator.id} == {0}


def settle(location: Path, epoch: int, operators: Sequence[Operator], partitions: int) -> None:
    """The batch after `epoch`, in which Spark has repartitioned `operators`, becomes `epoch`."""
    version = epoch + 1
    for operator in operators:
        for store in operator.stores:
            for partition in range(partitions):
                _settle_store(location / store_folder(StoreId(operator.id, partition, store.name)), version)
        for folder in (location / "state" / str(operator.id)).iterdir():
            if folder.name.isdecimal() and int(folder.name) >= partitions:
                shutil.rmtree(folder)
        _settle_metadata(location / "state" / str(operator.id) / "_metadata", epoch, partitions)
    for name in (offsets_file(epoch + 1), commits_file(epoch + 1)):
        _unlink(location / name)
    path = location / offsets_file(epoch)
    _write(path, with_partitions(path.read_bytes(), partitions))


def _settle_store(folder: Path, version: int) -> None:
    """The full snapshot of the version after becomes that of `version`, and all others go."""
    for path in list(folder.iterdir()):
        found = _VERSION_FILE.fullmatch(path.name)
        if found is None:
            continue
        if int(found.group(2)) == version + 1 and found.group(3).startswith("zip"):
            path.replace(folder / f"{found.group(1)}{version}.{found.group(3)}")
        elif int(found.group(2)) != version:
            path.unlink()


def _settle_metadata(folder: Path, epoch: int, partitions: int) -> None:
    """An operator's metadata says how many partitions its stores have."""
    newer = folder / "v2" / str(epoch + 1)
    if newer.exists():
        _write(folder / "v2" / str(epoch), newer.read_bytes())
        _unlink(newer)
        return
    path = folder / "metadata"
    version, newline, body = path.read_bytes().partition(b"\n")
    document = parse_json(body, 2_000_000)
    for store in document["stateStoreInfo"]:
        store["numPartitions"] = partitions
    _write(path, version + newline + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def with_partitions(offsets: bytes, partitions: int) -> bytes:
    """`offsets/N` of a query with so many state partitions. Raises `DamagedError`."""
    lines = offsets.split(b"\n", 2)
    try:
        metadata = parse_json(lines[1], 2_000_000)
        metadata["conf"][_PARTITIONS] = str(partitions)
        lines[1] = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode()
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as e:
        raise DamagedError(f"the offsets of an epoch cannot be read ({type(e).__name__}: {e}); choose another checkpoint") from e
    return b"\n".join(lines)


def _operators(location: Path) -> Sequence[Operator]:
    state = location / "state"
    names = [p for p in state.rglob("*") if p.is_file() and ("/_metadata/" in str(p) or "/_stateSchema/" in str(p)) and p.name[0] != "."]
    return read_operators({str(p.relative_to(location)): p.read_bytes() for p in names})


def _import(location: Path, target: Storage, scratch: Path, tell: Tell) -> Checkpoint:
    """Ids of state are new: one with the same id elsewhere has other contents."""
    folder = open_storage(f"file://{location}", S3Options())
    try:
        found = read(folder, tell, salt=str(uuid.uuid4()))
        local = scratch / "import"
        local.mkdir()
        return copied(folder, found, target, RUN, local, tell)
    finally:
        folder.close()


def _compare(before: Checkpoint, after: Checkpoint) -> None:
    """Keys are neither lost nor made: by Spark's own counts, where it has them of every partition."""
    counts: list[dict[tuple[int, str], int | None]] = []
    for checkpoint in (before, after):
        found: dict[tuple[int, str], int | None] = {}
        for snapshot in checkpoint.snapshots:
            name = snapshot.store.operator, snapshot.store.store
            so_far = found.get(name, 0)
            found[name] = None if so_far is None or snapshot.num_keys is None else so_far + snapshot.num_keys
        counts.append(found)
    for name in sorted(counts[0].keys() | counts[1].keys()):
        there, made = counts[0].get(name), counts[1].get(name)
        if there is not None and made is not None and there != made:
            raise DamagedError(
                f"operator {name[0]}, store {name[1]} had {there} keys, and {made} after it was repartitioned; the checkpoint may be "
                "damaged, `spark-ckpt verify` tells"
            )


def _write(path: Path, content: bytes) -> None:
    """With it goes what Hadoop says of its content."""
    _unlink(path)
    path.write_bytes(content)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
