"""The entries of one state store at one checkpoint: its newest full snapshot in RocksDB, and over it what changelogs have changed since."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from spark_ckpt.errors import CheckpointError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint, Handle, HandleKind, Snapshot
from spark_ckpt.process import owner_only
from spark_ckpt.state.changelogs import MAX_BYTES, Change, check_size, from_bytes, read_records
from spark_ckpt.storage.base import Storage
from spark_ckpt.stored.ranges import IN_MEMORY, RangeDamagedError, read, read_to_file
from spark_ckpt.stored.state import assemble

SPILL_BYTES = 64 << 20
"""What changelogs have changed is held in memory up to so many bytes of one store, then it is put into RocksDB's files."""
_AT_ONCE, _BYTES_AT_ONCE = 1000, 1 << 20
"""Entries that are taken out of RocksDB together."""
_OVERHEAD = 200
"""Bytes of Python's for each entry that is held."""
_FULL = "No space left on device"

Entry = tuple[bytes, bytes]
Batch = tuple[list[bytes], list[bytes]]
"""Keys and their values."""


class Contents:
    """`families`: the numbers of column families, as the newest full snapshot has them; None: there is no full snapshot."""

    def __init__(self, folder: Path, name: str, families: dict[str, int] | None, has_snapshot: bool, delimiter: bytes) -> None:
        self.families = families
        self._folder, self._name, self._delimiter = folder, name, delimiter
        self._options = options_beside(folder)
        self._is_there, self._db = has_snapshot, _RocksDB(folder, self._options, delimiter, name) if has_snapshot else None
        self._changed = Changed(name, delimiter)

    def close(self) -> None:
        if self._db is not None:
            with suppress(CheckpointError):  # what it could not put on disk any more goes with its folder
                self._db.close()

    def apply(self, change: Change, key: bytes, value: bytes) -> None:
        self._changed.apply(change, key, value, over=self._db is not None)
        if self._changed.size > SPILL_BYTES:
            self._spill()

    def get(self, key: bytes) -> bytes | None:
        """One value. Raises `DamagedError`."""
        stored = self._db.get(key) if self._db is not None and self._changed.needs_stored(key) else None
        return self._changed.value(key, stored) if key in self._changed else stored

    def entries(self, prefix: bytes = b"") -> Iterator[Entry]:
        """In the order of their keys; those that begin with `prefix`. Raises `DamagedError`."""
        for keys, values in self.batches(prefix, _AT_ONCE, _BYTES_AT_ONCE):
            yield from zip(keys, values, strict=True)

    def batches(self, prefix: bytes, rows: int, size: int) -> Iterator[Batch]:
        """The same in batches: of at most so many entries, none of which begins behind about so many bytes. Raises `DamagedError`."""
        changed = self._changed.keys_from(prefix)
        at = 0
        for keys, values in self._db.batches(prefix, rows, size) if self._db is not None else ():
            until = bisect_right(changed, keys[-1], at)
            if until == at:
                yield keys, values
            else:
                yield from _divided(*self._merged(dict(zip(keys, values, strict=True)), changed[at:until]), rows, size)
            at = until
        yield from _divided(*self._merged({}, changed[at:]), rows, size)

    def _merged(self, entries: dict[bytes, bytes], changed: Iterable[bytes]) -> Batch:
        """Stored entries, with what these keys have now."""
        for key in changed:
            value = self._changed.value(key, entries.get(key))
            if value is not None:
                entries[key] = value
            else:
                entries.pop(key, None)
        keys = sorted(entries)  # two ascending runs, so this takes one pass
        return keys, list(map(entries.__getitem__, keys))

    def _spill(self) -> None:
        if self._db is not None:
            self._db.close()
        changed, self._changed = self._changed, Changed(self._name, self._delimiter)
        self._db = db = _RocksDB(self._folder, self._options, self._delimiter, self._name, writable=True)
        for key in changed.keys_from(b""):
            value = changed.value(key, db.get(key) if changed.needs_stored(key) else None)
            if value is None:
                db.delete(key)
            else:
                db.put(key, value)


def _divided(keys: list[bytes], values: list[bytes], rows: int, size: int) -> Iterator[Batch]:
    """All of them in batches of at most so many entries, which end when they have so many bytes."""
    if keys and len(keys) <= rows and sum(map(len, keys)) + sum(map(len, values)) < size:
        yield keys, values
        return
    begin = found = 0
    for end, (key, value) in enumerate(zip(keys, values, strict=True), 1):
        found += len(key) + len(value)
        if found >= size or end - begin >= rows:
            yield keys[begin:end], values[begin:end]
            begin, found = end, 0
    if begin < len(keys):
        yield keys[begin:], values[begin:]


class Changed:
    """What changelogs say of keys: put, deleted, appended to. `size`: bytes that are held, or a little more."""

    def __init__(self, name: str, delimiter: bytes) -> None:
        """`name`: of what errors speak."""
        self._name, self._delimiter = name, delimiter
        self._values: dict[bytes, bytes | _Appended | None] = {}
        self.size = 0

    def apply(self, change: Change, key: bytes, value: bytes, over: bool) -> None:
        """`over`: there may be values under these, which what is appended goes behind."""
        if change is Change.MERGE:
            self._append(key, value, over)
        else:
            self._values[key] = None if change is Change.DELETE else value
        self.size += len(key) + len(value) + _OVERHEAD

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def keys_from(self, prefix: bytes) -> list[bytes]:
        """Those that begin with `prefix`, in their order."""
        return sorted(key for key in self._values if key.startswith(prefix))

    def needs_stored(self, key: bytes) -> bool:
        """Whether its value now depends on the one under it."""
        value = self._values.get(key, _STORED)
        return value is _STORED or (isinstance(value, _Appended) and value.to_stored)

    def value(self, key: bytes, stored: bytes | None) -> bytes | None:
        """Of a key that is in here. `stored`: its value under this one. None: it is deleted. Raises `FormatError` for one too large."""
        value = self._values[key]
        if not isinstance(value, _Appended):
            return value
        pieces = [stored, *value.pieces] if value.to_stored and stored is not None else value.pieces
        check_size(sum(map(len, pieces)) + len(self._delimiter) * (len(pieces) - 1), self._name)
        return self._delimiter.join(pieces)

    def _append(self, key: bytes, value: bytes, over: bool) -> None:
        """What is appended stays in pieces until it is asked for: a list can grow by one value in each of very many records."""
        before = self._values.get(key, _STORED)
        if isinstance(before, _Appended):
            before.pieces.append(value)
        elif before is _STORED and over:
            self._values[key] = _Appended([value], to_stored=True)
        else:
            self._values[key] = _Appended([before, value]) if isinstance(before, bytes) else value


@dataclass
class _Appended:
    """Values that were appended, one behind the other. `to_stored`: behind what lies under the key, if anything."""

    pieces: list[bytes]
    to_stored: bool = False


_STORED = object()
"""A key of which changelogs have said nothing."""


class _RocksDB:
    """A folder of RocksDB's files. It raises `DamagedError` for what RocksDB does not read, `StorageError` where the disk takes no more."""

    def __init__(self, folder: Path, options: Path, delimiter: bytes, name: str, writable: bool = False) -> None:
        from rocksdict import AccessType, Rdict

        self._name, self._writable = name, writable
        access = AccessType.read_write() if writable else AccessType.read_only()
        with self._named():
            loaded, families = _options(options, delimiter)
            if writable:
                loaded.create_if_missing(True)
                loaded.set_disable_auto_compactions(True)
            self._db = Rdict(str(folder), loaded, column_families=families, access_type=access)

    def close(self) -> None:
        with self._named():
            self._db.close()

    def get(self, key: bytes) -> bytes | None:
        with self._named():
            found: bytes | None = self._db.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        with self._named():
            self._db.put(key, value)

    def delete(self, key: bytes) -> None:
        with self._named():
            self._db.delete(key)

    def batches(self, prefix: bytes, rows: int, size: int) -> Iterator[Batch]:
        with self._named():
            bounded = {"from_key": prefix, "read_opt": _below(prefix)} if prefix else {}
            stored: Iterator[Any] = self._db.items(**bounded)
        last: bytes | None = None
        while True:
            keys: list[bytes] = []
            values: list[bytes] = []
            found, add_key, add_value = 0, keys.append, values.append
            with self._named():
                # One by one: several that are taken before it is looked how long they are could be several large ones.
                for key, value in islice(stored, rows):
                    add_key(key)
                    add_value(value)
                    found += len(key) + len(value)
                    if found >= size:
                        break
            if found > MAX_BYTES:
                check_size(max(map(len, (*keys, *values))), self._name)
            if keys:
                yield keys, values
                last = keys[-1]
            if len(keys) < rows and found < size:
                break
        with self._named():
            self._check_end(prefix, last)

    def _check_end(self, prefix: bytes, last: bytes | None) -> None:
        """An iterator that meets a bad block just ends; only its status tells that from the end of the data, and `items` does not."""
        cursor = self._db.iter()
        cursor.seek(prefix if last is None else last)
        if last is not None and cursor.valid():
            cursor.next()
        cursor.status()
        if cursor.valid() and cursor.key().startswith(prefix):
            raise DamagedError(f"it ended behind {last!r:.60}, and there is more")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise  # Python's own: it says nothing of the files
        # rocksdict raises plain Exception for whatever RocksDB reports.
        except Exception as e:
            if _FULL in str(e) or (self._writable and str(e).startswith("IO error")) or isinstance(e, OSError):
                raise StorageError(f"what {self._name} holds cannot be written to disk ({e}); free space there or set TMPDIR") from e
            raise DamagedError(f"RocksDB cannot read {self._name}: {e}") from e


def _below(prefix: bytes) -> Any:
    """For keys up to the first one behind all that begin with `prefix`."""
    from rocksdict import ReadOptions

    kept = prefix.rstrip(b"\xff")
    options = ReadOptions()
    if kept:
        options.set_iterate_upper_bound(kept[:-1] + bytes([kept[-1] + 1]))
    return options


_OPTIONS = """[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
[CFOptions "default"]
  merge_operator={{id=StringAppendOperator;delimiter={delimiter};}}
[TableOptions/BlockBasedTable "default"]
"""
"""The least that RocksDB loads. A snapshot has a file of options too, but that one is not used: it can name folders to write to."""


def _options(folder: Path, delimiter: bytes) -> tuple[Any, Any]:
    """Only a file of options can name a merge operator, without which RocksDB does not read values that were appended to."""
    from rocksdict import Options

    file = folder / "OPTIONS-000001"
    if not file.exists():
        owner_only.make_last(folder)
        with open(file, "x", opener=owner_only.opener) as sink:
            sink.write(_OPTIONS.format(delimiter=delimiter.decode()))
    return Options.load_latest(str(folder))


@contextmanager
def opened(storage: Storage, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path, codec: str, delimiter: bytes) -> Iterator[Contents]:
    """One store's entries at its checkpoint. `folder`: a new one in a folder of the reader's own, which is removed with it.

    Raises `DamagedError`, `ObjectMissingError`, `StorageError`, each with the names of checkpoint and store.
    """
    full = _fetch_full(storage, checkpoint, snapshot, folder, lambda: None)
    with _replaying(full, replayed(storage, changelogs(snapshot), folder, codec), delimiter) as contents:
        yield contents


@dataclass(frozen=True)
class FetchedStore:
    """One store's files on this machine's disk: all that it takes to read it, in another process too.

    `families`: like those of `Contents`. `changelogs`: names and files, in the order in which they are replayed.
    """

    folder: Path
    name: str
    families: dict[str, int] | None
    has_snapshot: bool
    changelogs: tuple[tuple[str, Path], ...] = ()

    @property
    def files(self) -> Mapping[str, int]:
        """Names and bytes of RocksDB's files: others than before if somebody has written to it, and not only read it."""
        there = self.folder.iterdir() if self.folder.exists() else ()
        return {path.name: path.stat().st_size for path in there if not path.name.startswith(("LOG", "LOCK", "rocksdict-"))}


def fetch(
    storage: Storage, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path, before_each: Callable[[], None] = lambda: None
) -> FetchedStore:
    """The same `folder` as that of `opened`, and the same errors. `before_each` file it may raise, so that no more are fetched."""
    full = _fetch_full(storage, checkpoint, snapshot, folder, before_each)
    beside = changelogs_beside(folder)
    found = []
    for number, handle in enumerate(changelogs(snapshot)):
        before_each()
        owner_only.make_last(beside)
        path = beside / str(number)
        _download(storage, handle, path)
        found.append((handle.name, path))
    return replace(full, changelogs=tuple(found))


@contextmanager
def opened_fetched(store: FetchedStore, codec: str, delimiter: bytes) -> Iterator[Contents]:
    """Raises `DamagedError`, and `StorageError` where the disk takes no more."""

    def records() -> Iterator[tuple[Change, bytes, bytes]]:
        for name, path in store.changelogs:
            with path.open("rb") as source:
                yield from read_records(source, name, codec)

    with _replaying(store, records(), delimiter) as contents:
        yield contents


def options_beside(folder: Path) -> Path:
    """The folder of RocksDB's file of options for the store in `folder`."""
    return folder.parent / f"{folder.name}.options"


def changelogs_beside(folder: Path) -> Path:
    """Where the fetched changelogs of the store in `folder` are."""
    return folder.parent / f"{folder.name}.changelogs"


def _fetch_full(
    storage: Storage, checkpoint: Checkpoint, snapshot: Snapshot, folder: Path, before_each: Callable[[], None]
) -> FetchedStore:
    assembled = assemble(storage, checkpoint, snapshot, folder, before_each)
    if assembled is None:
        return FetchedStore(folder, "the changelogs of a store", None, has_snapshot=False)
    return FetchedStore(folder, assembled.zip_name, dict(assembled.content.families), has_snapshot=True)


@contextmanager
def _replaying(store: FetchedStore, records: Iterator[tuple[Change, bytes, bytes]], delimiter: bytes) -> Iterator[Contents]:
    """Its full snapshot, and over it these records."""
    contents = Contents(store.folder, store.name, store.families, store.has_snapshot, delimiter)
    try:
        for change, key, value in records:
            contents.apply(change, key, value)
        yield contents
    finally:
        contents.close()


def changelogs(snapshot: Snapshot) -> list[Handle]:
    """Those after the newest full snapshot, in the order in which they are replayed."""
    found: list[Handle] = []
    for handle in snapshot.handles:
        if handle.kind is HandleKind.SNAPSHOT:
            found = []
        elif handle.kind is HandleKind.CHANGELOG:
            found.append(handle)
    return found


def replayed(storage: Storage, handles: Iterable[Handle], folder: Path, codec: str) -> Iterator[tuple[Change, bytes, bytes]]:
    """The records of changelogs, one after the other. A long one lies beside `folder` meanwhile."""
    for handle in handles:
        yield from _records(storage, handle, folder.parent / f"{folder.name}.changelog", codec)


def _records(storage: Storage, handle: Handle, path: Path, codec: str) -> Iterator[tuple[Change, bytes, bytes]]:
    if handle.length <= IN_MEMORY:
        (one,) = read(storage, [handle])
        if one.damage is not None:
            raise DamagedError(str(one.damage)) from one.damage
        yield from read_records(from_bytes(one.data), handle.name, codec)
        return
    _download(storage, handle, path)
    try:
        with path.open("rb") as source:
            yield from read_records(source, handle.name, codec)
    finally:
        path.unlink()


def _download(storage: Storage, handle: Handle, path: Path) -> None:
    try:
        read_to_file(storage, handle, path)
    except RangeDamagedError as e:
        raise DamagedError(str(e)) from e
