"""What a `checkpointLocation` of stock Spark holds: its newest committed batch, the driver's files of that, and the files of its state.

Read only. The layout is Spark's (`layout.py`); a state store's files are those of `RocksDBFileManager`: in checkpoint format 1 `7.zip` and
`8.changelog`, in format 2 with a unique id behind the version. A batch's state has the version that follows its number.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConflictError, DamagedError, FormatError, ObjectMissingError, without_way_out
from spark_ckpt.model import StoreId
from spark_ckpt.progress import Task as Progress
from spark_ckpt.progress import Tell, Unit, nobody
from spark_ckpt.protocol.driver_files import commits_file, needed, offsets_file
from spark_ckpt.protocol.large_files import LARGE, TOGETHER
from spark_ckpt.state.schemas import Operator, read_operators
from spark_ckpt.stock import hadoop_crc
from spark_ckpt.stock.layout import DEFAULT_STORE, METADATA, OURS, STOCK, store_folder
from spark_ckpt.storage.base import Storage

ROCKSDB = STOCK.decode()
_OURS = OURS.decode()
_HDFS = "HDFSBackedStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"
_PARTITIONS = "spark.sql.shuffle.partitions"

_LOG = re.compile(r"(offsets|commits)/(\d{1,18})", re.ASCII)
_STATE = re.compile(r"state/(\d{1,18})/(\d{1,9})/(?:([^/_][^/]*)/)?([^/]+)", re.ASCII)
_SST = re.compile(r"state/(\d{1,18})/(\d{1,9})/(?:([^/_][^/]*)/)?SSTs/[^/]+", re.ASCII)
_VERSION = re.compile(r"(\d{1,18})(?:_([A-Za-z0-9-]+))?\.(zip|changelog)", re.ASCII)
_OF_DRIVER = re.compile(r"sources/.+|state/\d+/(?:\d+/(?:[^/]+/)?)?_(?:metadata|stateSchema)/.+", re.ASCII)
_OPERATOR = re.compile(r"state/\d+/_metadata/", re.ASCII)
_SCHEMA = re.compile(r"state/(\d{1,18})/0/(?:([^/_][^/]*)/)?_metadata/schema", re.ASCII)
_HADOOP_CRC = re.compile(r"(.*/)\.([^/]+)\.crc", re.ASCII | re.DOTALL)
_HDFS_FILE = re.compile(r"\d+\.(delta|snapshot)", re.ASCII)
_MAX_SMALL = 64 << 20
_MAX_VALUES = 5_000_000


@dataclass(frozen=True)
class StoreFile:
    """`7.zip` or `8_<uid>.changelog`: its version and unique id, which format 1 has not."""

    key: str
    version: int
    uid: str | None

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


@dataclass
class StoreFiles:
    """What lies in one state store's folder, by version and unique id."""

    zips: dict[tuple[int, str | None], StoreFile] = field(default_factory=dict)
    changelogs: dict[tuple[int, str | None], StoreFile] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the SSTs, by key."""


@dataclass(frozen=True)
class StockStore:
    """One state store at the batch. `uid`: the unique id of its version, made up where format 1 has none."""

    id: StoreId
    folder: str
    version: int
    uid: str
    files: StoreFiles


@dataclass(frozen=True)
class StockCheckpoint:
    """The newest batch that stock Spark has committed. `files`: the driver's, as a query with the plugin has them; of those in `large` only
    the length is known, their content is in the location. `of_state`: all of the driver's files below `state/`, large ones too.
    `planned`: the offsets of the batch after it, if that was begun.
    """

    location: str
    query_id: str
    batch: int
    time_ms: int
    format: int
    codec: str
    operators: Sequence[Operator]
    """As their metadata says; of Sparks before 3.5 there is none, and the folders are all that is known."""
    files: Mapping[str, bytes]
    large: Mapping[str, int]
    of_state: Mapping[str, bytes]
    checked: frozenset[str]
    """Files beside which there are the checksums that Hadoop writes on a local disk (`.7.zip.crc`)."""
    planned: bytes | None
    stores: tuple[StockStore, ...]
    salt: str = ""

    def made_up(self, store: StoreId, version: int) -> str:
        """The unique id of a version that format 1 has none for: always the same one, of the same `salt`."""
        name = f"{self.query_id}{self.salt}/{store.operator}/{store.partition}/{store.store}/{version}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spark-ckpt:import:{name}"))


@dataclass
class _Listed:
    sizes: dict[str, int] = field(default_factory=dict)
    modified_ms: dict[str, int] = field(default_factory=dict)
    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    stores: dict[StoreId, StoreFiles] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    """As `StockCheckpoint.checked`."""
    hdfs: str | None = None
    """A file of the HDFS-backed provider."""


def newest_batch(storage: Storage) -> int | None:
    """That stock Spark has committed, None: none."""
    return _newest_in(storage, "commits/")


def newest_begun(storage: Storage) -> int | None:
    return _newest_in(storage, "offsets/")


def _newest_in(storage: Storage, log: str) -> int | None:
    return max((int(m.group(2)) for found in storage.list(log) if (m := _LOG.fullmatch(found.key))), default=None)


def read(storage: Storage, tell: Tell = nobody, salt: str = "") -> StockCheckpoint:
    """What the `checkpointLocation` at `storage` holds. `salt` goes into the unique ids that are made up.

    Raises `ObjectMissingError`, `DamagedError` and `FormatError` for what is not there or cannot be read, `ConflictError` for what no query
    with the plugin can go on from, `StorageError`.
    """
    listed = _list(storage, tell)
    batch = _newest(storage, listed)
    offsets = _Offsets.parse(storage, listed, batch)
    _check_provider(storage, offsets, listed)
    commit = _Commit.parse(storage, listed, batch)
    wanted = needed(dict.fromkeys((key for key in listed.sizes if _OF_DRIVER.fullmatch(key) and not key.endswith(".crc")), b""), batch)
    large = _large(listed, wanted)
    files = {key: _small(storage, listed, key) for key in wanted if key not in large}
    of_state = {key: files[key] if key in files else _small(storage, listed, key) for key in wanted if key.startswith("state/")}
    files[offsets_file(batch)] = offsets.with_plugin()
    files[commits_file(batch)] = b""
    if batch > 0 and batch - 1 in listed.offsets:
        files[offsets_file(batch - 1)] = _Offsets.parse(storage, listed, batch - 1).with_plugin()
    if batch - 1 in listed.commits:
        files[commits_file(batch - 1)] = _Commit.parse(storage, listed, batch - 1).as_format_2({})
    planned = _Offsets.parse(storage, listed, batch + 1).with_plugin() if batch + 1 in listed.offsets else None
    query_id = _query_id(storage, listed)
    found = StockCheckpoint(
        storage.url,
        query_id,
        batch,
        listed.modified_ms[commits_file(batch)],
        commit.format,
        offsets.conf.get(_CODEC, "lz4"),
        read_operators(of_state) if any(map(_OPERATOR.match, of_state)) else (),
        files,
        large,
        of_state,
        frozenset(listed.checked),
        planned,
        (),
        salt,
    )
    stores, ids = _stores(found, listed, commit, offsets)
    files[commits_file(batch)] = commit.as_format_2(ids)
    return StockCheckpoint(**{**found.__dict__, "stores": stores})


def _large(listed: _Listed, names: Iterable[str]) -> dict[str, int]:
    """Files of the driver that are objects of their own in a checkpoint (`protocol/large_files.py`), with their lengths."""
    large: dict[str, int] = {}
    left = TOGETHER
    for name in sorted(names):
        size = listed.sizes[name]
        if size > min(LARGE, left):
            large[name] = size
        else:
            left -= size
    return large


def _list(storage: Storage, tell: Tell) -> _Listed:
    listed = _Listed()
    progress = Progress(tell, "files listed", None, Unit.THINGS)
    for folder in ("offsets/", "commits/", "sources/", "state/"):
        for found in storage.list(folder):
            progress.add()
            if (m := _HADOOP_CRC.fullmatch(found.key)) is not None:
                listed.checked.add(m.group(1) + m.group(2))
            elif (m := _LOG.fullmatch(found.key)) is not None:
                (listed.offsets if m.group(1) == "offsets" else listed.commits).add(int(m.group(2)))
                listed.modified_ms[found.key] = found.modified_ms
            elif _OF_DRIVER.fullmatch(found.key) and not found.key.rpartition("/")[2].startswith("."):
                listed.sizes[found.key] = found.size
            elif (m := _SST.fullmatch(found.key)) is not None:
                _files_of(listed, m).sizes[found.key] = found.size
            elif (m := _STATE.fullmatch(found.key)) is not None and not m.group(4).startswith("."):
                _take(listed, m, found.key)
    if storage.size(f".{METADATA}.crc") is not None:
        listed.checked.add(METADATA)
    return listed


def _files_of(listed: _Listed, m: re.Match[str]) -> StoreFiles:
    return listed.stores.setdefault(StoreId(int(m.group(1)), int(m.group(2)), m.group(3) or DEFAULT_STORE), StoreFiles())


def _take(listed: _Listed, m: re.Match[str], key: str) -> None:
    named = _VERSION.fullmatch(m.group(4))
    if named is not None:
        file = StoreFile(key, int(named.group(1)), named.group(2))
        files = _files_of(listed, m)
        (files.zips if named.group(3) == "zip" else files.changelogs)[file.version, file.uid] = file
    elif _HDFS_FILE.fullmatch(m.group(4)):
        listed.hdfs = key


def _newest(storage: Storage, listed: _Listed) -> int:
    if not listed.commits and not listed.offsets:
        raise ObjectMissingError(
            f"there is no checkpoint of Spark at {storage.url}: it has no folder offsets; give the query's checkpointLocation"
        )
    if not listed.commits:
        raise ConflictError(
            f"the query at {storage.url} has committed no batch yet, so there is nothing to import; start it with the plugin and a new "
            "checkpointLocation"
        )
    batch, begun = max(listed.commits), max(listed.offsets, default=-1)
    if begun > batch + 1:
        raise ConflictError(
            f"the query at {storage.url} has begun batches up to {begun} and committed up to {batch}, as with "
            "asyncProgressTrackingEnabled; run it once more with stock Spark and without that option, until it has committed them"
        )
    if batch not in listed.offsets:
        raise DamagedError(f"{storage.url}/commits/{batch} is there and offsets/{batch} is not; put it back")
    return batch


@dataclass(frozen=True)
class _Offsets:
    """`offsets/N`: the version, the configuration of the batch, a line for each source."""

    name: str
    lines: Sequence[bytes]
    metadata: Mapping[str, Any]

    @staticmethod
    def parse(storage: Storage, listed: _Listed, batch: int) -> _Offsets:
        name = storage.url_of(offsets_file(batch))
        lines = _small(storage, listed, offsets_file(batch)).split(b"\n")
        if lines[0].strip() not in (b"v1", b"v2"):
            raise _unknown(name, lines[0], "v1 and v2")
        metadata = _json(name, lines[1] if len(lines) > 1 else b"")
        if not isinstance(metadata.get("conf"), dict) or len(lines) < 3:
            raise DamagedError(f"{name} does not say what its batch was configured with, or ends early; it is damaged")
        return _Offsets(name, lines, metadata)

    @property
    def conf(self) -> Mapping[str, str]:
        return {str(key): str(value) for key, value in self.metadata["conf"].items()}

    def with_plugin(self) -> bytes:
        """With the plugin's state store provider: what stands here wins over the configuration of the query that reads it."""
        metadata = {**self.metadata, "conf": {**self.metadata["conf"], _PROVIDER: _OURS}}
        return b"\n".join([self.lines[0], json.dumps(metadata, separators=(",", ":")).encode(), *self.lines[2:]])


@dataclass(frozen=True)
class _Commit:
    """`commits/N`: of format 1 with the next watermark, of format 2 with the unique ids of all stores too. The form v3, of queries whose
    sinks may evolve, is of either format."""

    format: int
    line: bytes
    document: Mapping[str, Any]
    name: str

    @staticmethod
    def parse(storage: Storage, listed: _Listed, batch: int) -> _Commit:
        name = storage.url_of(commits_file(batch))
        first, _, rest = _small(storage, listed, commits_file(batch)).partition(b"\n")
        if first.strip() not in (b"v1", b"v2", b"v3"):
            raise _unknown(name, first, "v1 to v3")
        document = _json(name, rest)
        has_ids = first.strip() == b"v2" or (first.strip() == b"v3" and bool(document.get("stateUniqueIds")))
        return _Commit(2 if has_ids else 1, first.strip(), document, name)

    @property
    def ids(self) -> Mapping[int, Sequence[Sequence[str]]]:
        """Operator -> partition -> the unique id of each of its stores. Raises `DamagedError`."""
        try:
            found = self.document.get("stateUniqueIds") or {}
            return {int(op): [[str(uid) for uid in stores] for stores in partitions] for op, partitions in found.items()}
        except (AttributeError, TypeError, ValueError) as e:
            raise DamagedError(f"{self.name} does not name the unique ids of its state; it is damaged") from e

    def as_format_2(self, ids: Mapping[int, Sequence[Sequence[str]]]) -> bytes:
        """One of format 2 as it is; one of format 1 with these. What v3 says of sinks stays."""
        if self.format > 1:
            return self.line + b"\n" + json.dumps(self.document, separators=(",", ":")).encode()
        document = {**self.document, "stateUniqueIds": {str(operator): of for operator, of in sorted(ids.items())}}
        return (b"v2" if self.line == b"v1" else self.line) + b"\n" + json.dumps(document, separators=(",", ":")).encode()


def _check_provider(storage: Storage, offsets: _Offsets, listed: _Listed) -> None:
    provider = offsets.conf.get(_PROVIDER, ROCKSDB)
    if provider == _OURS:
        raise ConflictError(
            f"the query at {storage.url} runs with the plugin already; its checkpoints are in its stream, which `spark-ckpt list` shows"
        )
    if listed.hdfs is not None or (listed.stores and provider.endswith(_HDFS)):
        raise ConflictError(
            f"the state of the query at {storage.url} is kept by {_HDFS}, and only that of Spark's RocksDB provider can be imported; Spark "
            "does not change the provider of a query: begin with the plugin, a new checkpointLocation and empty state"
        )
    if listed.stores and provider != ROCKSDB:
        raise ConflictError(
            f"the state of the query at {storage.url} is kept by {provider}, and only that of {ROCKSDB} can be imported; begin with the "
            "plugin, a new checkpointLocation and empty state"
        )


def _stores(
    found: StockCheckpoint, listed: _Listed, commit: _Commit, offsets: _Offsets
) -> tuple[tuple[StockStore, ...], dict[int, list[list[str]]]]:
    """All of them, and their unique ids as a commit has them."""
    version = found.batch + 1
    named, of_commit = _names(found, listed), commit.ids
    single = {operator.id for operator in found.operators if operator.has_one_partition}
    stores: list[StockStore] = []
    ids: dict[int, list[list[str]]] = {}
    for operator, names in sorted(named.items()):
        partitions = _partitions(found, offsets) or 1 + max((s.partition for s in listed.stores if s.operator == operator), default=0)
        if operator in single:
            partitions = 1
        if commit.format > 1 and len(of_commit.get(operator, ())) != partitions:
            raise DamagedError(
                f"{commit.name} names {len(of_commit.get(operator, ()))} of {partitions} partitions of operator {operator}; put it back"
            )
        for partition in range(partitions):
            of_partition = []
            for name in names:
                store = StoreId(operator, partition, name)
                files = listed.stores.get(store)
                if files is None:
                    raise _lacks(found, store, version)
                if commit.format == 1:
                    uid = found.made_up(store, version)
                else:
                    uid = _uid(found, store, version, files, of_commit[operator][partition])
                stores.append(StockStore(store, store_folder(store), version, uid, files))
                of_partition.append(uid)
            ids.setdefault(operator, []).append(of_partition)
    return tuple(stores), ids


def _names(found: StockCheckpoint, listed: _Listed) -> dict[int, list[str]]:
    """Operator -> its stores, in the order in which a commit has them: that of the operator's metadata, which Sparks before 3.5 lack.

    Rule: what a file of the driver names has state, for every batch that is committed has written each of its stores."""
    there: dict[int, set[str]] = {}
    for store in listed.stores:
        there.setdefault(store.operator, set()).add(store.store)
    for schema in filter(None, map(_SCHEMA.fullmatch, found.of_state)):
        there.setdefault(int(schema.group(1)), set()).add(schema.group(2) or DEFAULT_STORE)
    said = {operator.id: [store.name for store in operator.stores] for operator in found.operators}
    return {**{operator: sorted(names) for operator, names in there.items()}, **said}


def _uid(found: StockCheckpoint, store: StoreId, version: int, files: StoreFiles, ids: Sequence[str]) -> str:
    for uid in ids:
        if (version, uid) in files.changelogs or (version, uid) in files.zips:
            return uid
    raise _lacks(found, store, version)


def _partitions(found: StockCheckpoint, offsets: _Offsets) -> int:
    """0 where it is not said."""
    text = str(offsets.conf.get(_PARTITIONS, 0))
    if not re.fullmatch("[0-9]{1,9}", text):
        raise DamagedError(f"{found.location}/offsets/{found.batch} has {_PARTITIONS}={text!r:.100}, which is no number; put it back")
    return int(text)


def _lacks(found: StockCheckpoint, store: StoreId, version: int) -> DamagedError:
    return DamagedError(
        f"{found.location}/{store_folder(store)} lacks version {version}, the state of batch {found.batch}; put its files back, or run the "
        "query once more with stock Spark if it still can"
    )


def chain(found: StockCheckpoint, store: StockStore, lineage: Mapping[int, str] | None) -> Iterator[tuple[StoreFile, str]]:
    """The files that a store's version takes, each with its unique id: the newest full snapshot, if there is one, then changelogs.

    `lineage`: version -> unique id of those before, in format 2. Raises `DamagedError` for one that is missing.
    """
    ids = {**(lineage or {}), store.version: store.uid}
    start = 0
    for version in sorted({version for version, _ in store.files.zips if 0 < version <= store.version}, reverse=True):
        if (file := _file(found, store.files.zips, version, ids)) is not None:
            yield file, _id(found, store, version, ids)
            start = version
            break
    for version in range(start + 1, store.version + 1):
        file = _file(found, store.files.changelogs, version, ids)
        if file is None:
            raise DamagedError(
                f"{found.location}/{store.folder} lacks the changelog of version {version}, without which version {store.version} cannot "
                "be built; put it back"
            )
        yield file, _id(found, store, version, ids)


def _file(
    found: StockCheckpoint, files: Mapping[tuple[int, str | None], StoreFile], version: int, ids: Mapping[int, str]
) -> StoreFile | None:
    if found.format == 1:
        return files.get((version, None))
    return files.get((version, ids[version])) if version in ids else None


def _id(found: StockCheckpoint, store: StockStore, version: int, ids: Mapping[int, str]) -> str:
    return found.made_up(store.id, version) if found.format == 1 else ids[version]


def _query_id(storage: Storage, listed: _Listed) -> str:
    name = storage.url_of(METADATA)
    found = _json(name, _small(storage, listed, METADATA).strip()).get("id")
    if not isinstance(found, str) or not found:
        raise DamagedError(f"{name} holds no query id; put the file back")
    return found


def _small(storage: Storage, listed: _Listed, key: str) -> bytes:
    """A file of the driver, compared with the checksums that Hadoop has left beside it, if it has."""
    try:
        content = storage.get(key, limit=_MAX_SMALL)
    except ObjectMissingError as e:
        raise ObjectMissingError(f"{without_way_out(str(e))}; without it the checkpoint cannot be imported: put it back") from e
    if key in listed.checked:
        hadoop_crc.check(storage, key, content)
    return content


def _json(name: str, text: bytes) -> Mapping[str, Any]:
    try:
        found = parse_json(text, _MAX_VALUES)
    except (ValueError, RecursionError) as e:
        raise DamagedError(f"{name} is not what Spark writes ({e}); it is damaged, or ends early: put it back") from e
    if not isinstance(found, dict):
        raise DamagedError(f"{name} is not what Spark writes; it is damaged: put it back")
    return found


def _unknown(name: str, first: bytes, known: str) -> FormatError:
    shown = first[:20].decode(errors="replace")
    return FormatError(
        f"{name} has the form {shown!r}, known are {known}: it is damaged, or another Spark has written it; take a newer spark-ckpt"
    )
