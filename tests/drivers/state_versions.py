"""Checkpoints of one state store, made record by record: full snapshots in RocksDB's files, and changelogs, wherever a test wants them."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from rocksdict import Options, Rdict

from spark_ckpt.model import Checkpoint, CheckpointId, Content, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.state.changelogs import Change, Record
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage.base import Storage
from tests.drivers.stored_stream import JOB

SEGMENT = "run-00000001/seg/0-a"


def changelog(records: Sequence[Record]) -> bytes:
    """In the form v4, compressed with zstd."""
    out = b"\0\2v4\0\2[]"
    for change, key, value in records:
        out += bytes([change.value]) + len(key).to_bytes(4, "big") + key
        out += b"\xff\xff\xff\xff" if change is Change.DELETE else len(value).to_bytes(4, "big") + value
    return bytes(pa.compress(out + b"\0", "zstd", asbytes=True))


def applied(versions: Sequence[Sequence[Record]]) -> dict[bytes, bytes]:
    """The entries after them, where nothing stands between what is appended."""
    found: dict[bytes, bytes] = {}
    for change, key, value in (record for version in versions for record in version):
        if change is Change.DELETE:
            found.pop(key, None)
        else:
            found[key] = (found.get(key, b"") if change is Change.MERGE else b"") + value
    return found


class StoreVersions:
    """Versions of one store in `storage`; a version is what one epoch has changed."""

    def __init__(
        self, storage: Storage, files: Mapping[str, Content], families: Mapping[str, int], store: str = "default", segment: str = SEGMENT
    ) -> None:
        self._segment = segment
        self._storage, self._files, self._families, self._store = storage, files, families, store
        self._data = b""

    def checkpoint(self, versions: Sequence[Sequence[Record]], snapshot: int) -> StateOfCheckpoint:
        """After all of them. `snapshot`: of how many there is a full snapshot; 0 for none."""
        handles = self._snapshot(applied(versions[:snapshot]), snapshot) if snapshot else []
        for number, records in list(enumerate(versions, 1))[snapshot:]:
            handles.append(self._handle(HandleKind.CHANGELOG, f"{number}_u{number}.changelog", changelog(records)))
        self._storage.put(self._segment, self._data)
        epoch = len(versions)
        stored = Snapshot(StoreId(0, 0, self._store), epoch, f"u{epoch}", tuple(handles))
        conf = {
            "spark.sql.streaming.stateStore.compression.codec": "zstd",
            "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "2",
        }
        offsets = b"v1\n" + json.dumps({"conf": conf}).encode()
        files = {**self._files, f"offsets/{epoch}": offsets}
        made = Checkpoint(CheckpointId(1, epoch), 1, 1, "query", 0, JOB, files, (stored,), {})
        return StateOfCheckpoint(self._storage, made)

    def _handle(self, kind: HandleKind, name: str, data: bytes) -> Handle:
        handle = Handle(kind, name, self._segment, len(self._data), len(data), zlib.crc32(data))
        self._data += data
        return handle

    def _snapshot(self, entries: Mapping[bytes, bytes], version: int) -> list[Handle]:
        handles, ssts = [], []
        archive = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w") as file:
            db = Rdict(f"{folder}/db", Options(raw_mode=True))
            for key, value in entries.items():
                db.put(key, value)
            db.flush()
            db.close()
            for path in sorted(Path(folder, "db").iterdir()):
                if path.suffix == ".sst":
                    name = f"{path.stem}-u{version}.sst"
                    ssts.append({"localFileName": path.name, "dfsSstFileName": name, "sizeBytes": path.stat().st_size})
                    handles.append(self._handle(HandleKind.SST, f"SSTs/{name}", path.read_bytes()))
                elif path.name.startswith(("MANIFEST", "CURRENT")):
                    file.writestr(path.name, path.read_bytes())
            said = {"sstFiles": ssts, "numKeys": -1, "numInternalKeys": 0, "columnFamilyMapping": dict(self._families)}
            file.writestr("metadata", b"v1\n" + json.dumps(said).encode())
        return [*handles, self._handle(HandleKind.SNAPSHOT, f"{version}_u{version}.zip", archive.getvalue())]
