"""A stream as the plugin stores it, made without Spark: real RocksDB files, real `_metadata`, real log entries."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from spark_ckpt import paths
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId
from spark_ckpt.protocol import entries
from spark_ckpt.storage import Storage
from spark_ckpt.stored.metadata.codec import encode_metadata

JOB = Job(("stateStoreSave",), ("FileStreamSource",), "ForeachBatchSink")


@dataclass
class SmallStore:
    """RocksDB files as Spark's state store leaves them: a zip of the small ones, and SSTs beside it."""

    zip_bytes: bytes
    ssts: dict[str, bytes]


def make_store(folder: Path, keys: int, uid: str = "u", recorded: int | None = None, internal: int = 0, **document: Any) -> SmallStore:
    """`keys` entries in two SSTs; `recorded` is what the zip's metadata says instead."""
    db_folder = folder / f"db-{uid}"
    db = Rdict(str(db_folder), Options(raw_mode=True))
    for i in range(keys):
        db.put(b"\0key%06d" % i, b"\0value" * 3)
        if i == keys // 2:
            db.flush()
    db.flush()
    db.close()
    ssts, files, small = {}, [], {}
    for path in sorted(db_folder.iterdir()):
        if path.suffix == ".sst":
            stored = f"{path.stem}-{uid}.sst"
            ssts[stored] = path.read_bytes()
            files.append({"localFileName": path.name, "dfsSstFileName": stored, "sizeBytes": path.stat().st_size})
        elif path.name.startswith(("MANIFEST", "CURRENT", "OPTIONS")):
            small[path.name] = path.read_bytes()
    said = {"sstFiles": files, "numKeys": (keys - internal) if recorded is None else recorded, "numInternalKeys": internal}
    said |= {"columnFamilyMapping": {}, "columnFamilyTypeMap": {}, "maxColumnFamilyId": 0, **document}
    small["metadata"] = b"v1\n" + json.dumps(said).encode()
    archive = folder / f"{uid}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in small.items():
            file.writestr(name, data)
    return SmallStore(archive.read_bytes(), ssts)


@dataclass
class StreamWriter:
    """Writes a stream's objects; `storage` is rooted at the stream."""

    storage: Storage
    log: int = 0
    claim: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)

    def append(self, entry: entries.Entry) -> None:
        self.log += 1
        self.storage.put(paths.log_key(self.log), entries.encode(entry))

    def begin(
        self,
        run: int,
        origin: CheckpointId | None = None,
        bad: tuple[CheckpointId, ...] = (),
        inherits: tuple[CheckpointId, ...] = (),
        retained: int = 3,
        savepoint_dir: str = "",
        unsure: tuple[CheckpointId, ...] = (),
    ) -> None:
        self.claim = self.log + 1
        claim = entries.Claim(self.claim, run, "query", JOB, origin, inherits, bad, "host", {}, 1, "nonce", retained=retained)
        self.append(replace(claim, savepoint_dir=savepoint_dir, unsure=unsure))

    def complete(
        self, run: int, epoch: int, stores: list[SmallStore], changelogs_only: int = 0, files: Mapping[str, bytes] | None = None
    ) -> Checkpoint:
        """Plan the epoch and store its checkpoint: one segment with the zips and changelogs, SSTs as objects of their own. `files`: more of
        the driver's."""
        self.append(entries.Plan(self.claim, run, epoch, b"v1\n{}"))
        segment, found = b"", []
        key = paths.segment_key(run, epoch, "a")
        for partition in range(len(stores) + changelogs_only):
            handles = []
            if partition < len(stores):
                store = stores[partition]
                for name, data in store.ssts.items():
                    sst = paths.sst_key(run, f"{epoch}-{partition}-{Path(name).stem}")
                    self.storage.put(sst, data)
                    handles.append(Handle(HandleKind.SST, f"SSTs/{name}", sst, 0, len(data), zlib.crc32(data)))
                handles.append(Handle(HandleKind.SNAPSHOT, "7_u.zip", key, len(segment), len(store.zip_bytes), zlib.crc32(store.zip_bytes)))
                segment += store.zip_bytes
            log = b"changelog %d" % partition
            handles.append(Handle(HandleKind.CHANGELOG, "8_v.changelog", key, len(segment), len(log), zlib.crc32(log)))
            segment += log
            found.append(Snapshot(StoreId(0, partition, "default"), 8, f"v{partition}", tuple(handles), 10))
        self.storage.put(key, segment)
        checkpoint = Checkpoint(
            id=CheckpointId(run, epoch),
            log=self.log,
            claim=self.claim,
            query_id="query",
            time_ms=1_764_000_000_000 + epoch,
            job=JOB,
            files={f"offsets/{epoch}": b"v1\n{}", f"commits/{epoch}": b"v2\n{}", **(files or {})},
            snapshots=tuple(found),
            counters={"acked": len(found), "required": len(found), "new_bytes": len(segment), "duration_ms": 12},
        )
        self.storage.put(paths.metadata_key(checkpoint.id), encode_metadata(checkpoint))
        self.checkpoints.append(checkpoint)
        return checkpoint


def flip(storage: Storage, key: str, at: int = 40) -> None:
    data = bytearray(storage.get(key))
    data[at] ^= 1
    storage.put(key, bytes(data))


def begun(storage: Storage, folder: Path, epochs: int) -> StreamWriter:
    """Run 1 of a stream has completed so many checkpoints of one store. `folder`: for what is made on the way."""
    writer = StreamWriter(storage)
    writer.begin(1)
    for epoch in range(epochs):
        writer.complete(1, epoch, [make_store(folder, 30 + epoch, f"s{epoch}")])
    return writer
