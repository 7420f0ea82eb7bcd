"""A state store written from its entries: a full snapshot as Spark's `RocksDBFileManager` has it, which Spark opens like its own."""

from __future__ import annotations

import json
import shutil
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any

import numpy as np

from spark_ckpt.errors import ConflictError, StorageError
from spark_ckpt.model import Handle, HandleKind, Snapshot
from spark_ckpt.process import owner_only
from spark_ckpt.stored.segments import SHARED, LocalSnapshot, Place, local_handle
from spark_ckpt.stored.state.archive import METADATA_MEMBER

_SMALL = ("MANIFEST-", "CURRENT", "OPTIONS-")
_BUFFER = 64 << 20
_BLOCK = 16 << 10
_FORMAT = 5
"""Of RocksDB's tables: Spark's own default."""
_MEMORY = 256 << 20
_OVERHEAD = 120
"""Bytes of Python's for each entry that is held."""
_AT_ONCE = 10_000


class Held:
    """What several stores that are written hold in memory, together about 256 MiB."""

    def __init__(self, limit: int = _MEMORY) -> None:
        self._limit, self._size = limit, 0
        self._writers: list[StoreWriter] = []

    def join(self, writer: StoreWriter) -> None:
        self._writers.append(writer)

    def add(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            for writer in self._writers:
                writer.spill()
            self._size = 0


class StoreWriter:
    """The entries of one store, put in any order. `folder`: a new one; what is left of it at the end are the files of the snapshot.

    RocksDB is open only at the end, for it takes files as long as it is. Raises `StorageError` where the local disk takes no more.
    """

    def __init__(self, folder: Path, held: Held) -> None:
        self._folder, self._held = folder, held
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._last: bytes | None = None
        self._ascending = True
        self.entries = 0
        held.join(self)

    def put(self, keys: Sequence[bytes], values: Sequence[bytes], distinct: bool = False) -> None:
        """`distinct`: it is known that these are nowhere else."""
        if not keys:
            return
        if not distinct and self._ascending:
            before = keys if self._last is None else [self._last, *keys]
            self._ascending = all(map(lt, before, islice(before, 1, None)))
            self._last = keys[-1]
        self._keys += keys
        self._values += values
        self.entries += len(keys)
        self._held.add(sum(map(len, keys)) + sum(map(len, values)) + _OVERHEAD * len(keys))

    def spill(self) -> None:
        """To the disk, what is held in memory: how many, the lengths of keys and values, keys, values."""
        if not self._keys:
            return
        lengths = [np.fromiter(map(len, values), "<u4", len(values)).tobytes() for values in (self._keys, self._values)]
        with _disk():
            owner_only.make_last(self._folder)
            with open(self._spilled, "ab", opener=owner_only.opener) as file:
                file.writelines([len(self._keys).to_bytes(8, "little"), *lengths, *self._keys, *self._values])
        self._keys, self._values = [], []

    def close(self) -> None:
        """What is not finished is given up, and nothing of it stays."""
        self._keys, self._values = [], []
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _spilled(self) -> Path:
        return self._folder / "spilled"

    def taken(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """What has been put, in its order, which is then gone."""
        if self._spilled.exists():
            with open(self._spilled, "rb") as file:
                while head := file.read(8):
                    count = int.from_bytes(head, "little")
                    lengths = [np.frombuffer(file.read(4 * count), "<u4").tolist() for _ in range(2)]
                    keys, values = ([file.read(length) for length in each] for each in lengths)
                    yield keys, values
            self._spilled.unlink()
        yield self._keys, self._values
        self._keys, self._values = [], []

    def _fill(self, db: Any) -> None:
        from rocksdict import WriteBatch

        for keys, values in self.taken():
            for begin in range(0, len(keys), _AT_ONCE):
                batch = WriteBatch(raw_mode=True)
                for key, value in zip(keys[begin : begin + _AT_ONCE], values[begin : begin + _AT_ONCE], strict=True):
                    batch.put(key, value)
                db.write(batch)
        db.flush()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteOptions

        owner_only.make_last(self._folder)
        table = BlockBasedOptions()
        table.set_format_version(_FORMAT)
        table.set_block_size(_BLOCK)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER)
        options.set_disable_auto_compactions(True)  # Spark's own RocksDB does that, when it has the store
        options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(table)
        unlogged = WriteOptions()
        unlogged.disable_wal = True  # type: ignore[method-assign, assignment]  # it is an attribute, whatever its stub says
        db = Rdict(str(self._folder / "db"), options)
        try:
            db.set_write_options(unlogged)
            yield db
        finally:
            db.close()

    def finish(self, place: Place, like: Snapshot, families: Mapping[str, Any], num_keys: int | None) -> LocalSnapshot:
        """A full snapshot of the version that `like` has, under a new unique id. `families`: what its metadata says of column families.

        Raises `ConflictError` where a key was put twice.
        """
        with _disk(), self._opened() as db:
            self._fill(db)
            if not self._ascending:
                self._refuse_twice(db)
        uid = str(uuid.uuid4())
        handles: list[Handle] = []
        local: dict[str, Path] = {}
        files: list[dict[str, Any]] = []
        small: list[Path] = []
        for path in sorted((self._folder / "db").iterdir()):
            if path.suffix == ".sst":
                stored = f"{path.stem}-{uid}.sst"
                handle = local_handle(HandleKind.SST, f"SSTs/{stored}", path)
                files.append({"localFileName": path.name, "dfsSstFileName": stored, "sizeBytes": handle.length})
                if handle.length < SHARED:
                    local[handle.name] = path
                else:
                    handle = place.store_sst(path, handle, stored)
                    path.unlink()
                handles.append(handle)
            elif path.name.startswith(_SMALL):
                small.append(path)
        said = {"sstFiles": files, **families, "numKeys": -1 if num_keys is None else num_keys}
        name = f"{like.version}_{uid}.zip"
        with _disk():
            archive = self._zip(small, said)
        handles.append(local_handle(HandleKind.SNAPSHOT, name, archive))
        local[name] = archive
        return LocalSnapshot(like.store, like.version, uid, tuple(handles), num_keys, local)

    def _zip(self, members: Sequence[Path], said: Mapping[str, Any]) -> Path:
        path = self._folder / "snapshot.zip"
        with open(path, "xb", opener=owner_only.opener) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for member in members:
                archive.write(member, member.name)
                member.unlink()
            archive.writestr(METADATA_MEMBER, b"v1\n" + json.dumps(said, separators=(",", ":")).encode())
        return path

    def _refuse_twice(self, db: Any) -> None:
        cursor = db.iter()
        cursor.seek_to_first()
        found = 0
        while cursor.valid():
            found += 1
            cursor.next()
        cursor.status()
        if found != self.entries:
            raise ConflictError(
                f"{self.entries - found} keys of one partition are given more than once, or are in the state already, and each key has one "
                "value: leave out the others; transform_state changes the values of keys that are there"
            )


@contextmanager
def _disk() -> Iterator[None]:
    """rocksdict raises plain Exception for whatever RocksDB reports."""
    try:
        yield
    except ConflictError:
        raise
    except Exception as e:
        raise StorageError(f"a state store cannot be written to the local disk ({e}); free space there or set TMPDIR") from e
