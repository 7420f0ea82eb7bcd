"""A state store written from its entries: a full snapshot as Spark's `RocksDBFileManager` has it, which Spark opens like its own."""

from __future__ import annotations

import json
import shutil
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_ckpt.errors import ConflictError, StorageError
from spark_ckpt.model import Handle, HandleKind, Snapshot
from spark_ckpt.process import owner_only
from spark_ckpt.stored.segments import SHARED, LocalSnapshot, Place, local_handle
from spark_ckpt.stored.state.archive import METADATA_MEMBER

_SMALL = ("MANIFEST-", "CURRENT", "OPTIONS-")
_BUFFER = 32 << 20
_BLOCK = 16 << 10


class StoreWriter:
    """The entries of one store, put in any order. `folder`: a new one; what is left of it at the end are the files of the snapshot.

    Raises `StorageError` where the local disk takes no more.
    """

    def __init__(self, folder: Path, buffer: int) -> None:
        """`buffer`: bytes that are held in memory."""
        from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteOptions

        owner_only.make_folder(folder)
        self._folder = folder
        table = BlockBasedOptions()
        table.set_format_version(5)  # Spark's own default, of which it takes note with the offsets
        table.set_block_size(_BLOCK)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(min(buffer, _BUFFER))
        options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(table)
        unlogged = WriteOptions()
        unlogged.disable_wal = True  # type: ignore[method-assign, assignment]  # it is an attribute, whatever its stub says
        with _disk():
            self._db = Rdict(str(folder / "db"), options)
            self._db.set_write_options(unlogged)
        self._last: bytes | None = None
        self._ascending, self._closed = True, False
        self.entries = 0

    def put(self, keys: Sequence[bytes], values: Sequence[bytes], distinct: bool = False) -> None:
        """`distinct`: it is known that these are nowhere else."""
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        last = self._last
        for key, value in zip(keys, values, strict=True):
            if not distinct:
                if last is not None and key <= last:
                    self._ascending = False
                last = key
            batch.put(key, value)
        self._last = last
        self.entries += len(keys)
        with _disk():
            self._db.write(batch)

    def close(self) -> None:
        """What is not finished is given up."""
        if not self._closed:
            self._closed = True
            with _disk():
                self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def finish(self, place: Place, like: Snapshot, told: Mapping[str, Any], num_keys: int | None) -> LocalSnapshot:
        """A full snapshot of the version that `like` has, under a new unique id. `told`: what its metadata says of column families.

        Raises `ConflictError` where a key was put twice.
        """
        with _disk():
            self._db.flush()
            if not self._ascending:
                self._refuse_twice()
            self._closed = True
            self._db.close()
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
        said = {"sstFiles": files, **told, "numKeys": -1 if num_keys is None else num_keys}
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

    def _refuse_twice(self) -> None:
        cursor = self._db.iter()
        cursor.seek_to_first()
        found = 0
        while cursor.valid():
            found += 1
            cursor.next()
        cursor.status()
        if found != self.entries:
            raise ConflictError(
                f"{self.entries - found} keys of one partition are given more than once; each key has one value, so leave out the others"
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
