"""Checkpoints for tests that read, write and copy them."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

from spark_ckpt import paths
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId
from spark_ckpt.storage import Storage
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.taken_over import TakenOver
from tests.drivers.stored_stream import JOB


def sample(stores: int = 3, **changes: Any) -> Checkpoint:
    found = []
    for i in range(stores):
        sst = Handle(HandleKind.SST, f"SSTs/00000{i}-u.sst", f"run-00000001/sst/u{i}.sst", 0, 100 + i, zlib.crc32(b"%d" % i))
        full = Handle(HandleKind.SNAPSHOT, f"7_u{i}.zip", "run-00000001/seg/7-a", 1000 * i, 500, 1)
        log = Handle(HandleKind.CHANGELOG, f"8_v{i}.changelog", "run-00000001/seg/8-b", 1000 * i, 50, 2)
        found.append(Snapshot(StoreId(0, i, "default"), 8, f"v{i}", (sst, full, log), i if i % 2 else None))
    fields: dict[str, Any] = {
        "id": CheckpointId(1, 7),
        "log": 12,
        "claim": 3,
        "query_id": "q",
        "time_ms": 1_700_000_000_000,
        "job": Job(("stateStoreSave",), ("FileStreamSource",), "ForeachBatch"),
        "files": {"offsets/7": b"v1\n{}", "commits/7": b"v2\n\xff"},
        "snapshots": tuple(found),
        "counters": {"acked": stores, "sync_ms_max": 1.5},
    }
    return Checkpoint(**{**fields, **changes})


def taken_over(target: Storage, copy: Checkpoint | None) -> None:
    """Deletes the savepoint at `target` as a stream does that has gone on from it with CLAIM, and has that `copy`."""
    going = TakenOver()
    if copy is not None:
        with MemoryStorage("memory://taken-over/stream") as stream:
            stream.put(paths.metadata_key(copy.id), encode_metadata(copy))
            going.look_at_copy(stream, copy.id)
        wipe("taken-over")
    going.delete(RestorePath.at(target.url), target)


SEED = 20


def written(stream: Storage, rng: random.Random, stores: int = 12) -> Checkpoint:
    """Random snapshots over random segments with dead space between the ranges, and SSTs that several of them share."""
    segments: dict[str, bytearray] = {}
    ssts = {paths.sst_key(1, f"s{i}"): rng.randbytes(rng.choice([1, 700, 6 << 20])) for i in range(3)}
    for key, data in ssts.items():
        stream.put(key, data)
    snapshots = []
    for partition in range(stores):
        handles = [
            Handle(HandleKind.SST, f"SSTs/{Path(k).name}", k, 0, len(d), zlib.crc32(d)) for k, d in ssts.items() if rng.random() < 0.5
        ]
        for version in range(rng.randint(1, 4)):
            key = paths.segment_key(1, version, f"seg{rng.randint(0, 1)}")
            segment = segments.setdefault(key, bytearray())
            segment += b"dead" * rng.randint(0, 50_000)
            data = rng.randbytes(rng.choice([0, 5, 3000, 100_000]))
            handles.append(Handle(HandleKind.CHANGELOG, f"{version}_u.changelog", key, len(segment), len(data), zlib.crc32(data)))
            segment += data
        snapshots.append(Snapshot(StoreId(0, partition, "default"), 9, f"u{partition}", tuple(handles), 3))
    for key, content in segments.items():
        stream.put(key, bytes(content) + b"dead")
    files = {"offsets/8": b"o", "commits/8": b"c", "state/0/_metadata/schema": b"s"}
    return Checkpoint(CheckpointId(1, 8), 11, 1, "q", 1, JOB, files, tuple(snapshots), {"acked": stores})
