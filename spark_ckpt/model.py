"""The nouns of a checkpoint, as plain immutable values that every part shares.

Nothing here does I/O. Times are milliseconds since the epoch (UTC), durations milliseconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

LARGEST_NUMBER = 2**53
"""Milliseconds or bytes. Up to here every reader of JSON is exact, and sums stay finite."""


def _checked(number: float) -> float:
    """Raises ValueError for a time or size that is none. Clocks of two machines may differ: a delay may be below 0."""
    if not -LARGEST_NUMBER < number < LARGEST_NUMBER:
        raise ValueError(f"an acknowledgement tells a time or size of {number!r:.40}")
    return number


class HandleKind(Enum):
    """What a stored range of bytes is, in terms of Spark's RocksDB state store; or a file of the driver."""

    CHANGELOG = "CHANGELOG"
    SNAPSHOT = "SNAPSHOT"
    SST = "SST"
    FILE = "FILE"

    @property
    def is_state(self) -> bool:
        return self is not HandleKind.FILE


@dataclass(frozen=True, order=True, slots=True)
class CheckpointId:
    """A checkpoint is named by its run and its epoch."""

    run: int
    epoch: int

    def to_json(self) -> dict[str, int]:
        return {"run": self.run, "epoch": self.epoch}

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> CheckpointId:
        return CheckpointId(int(doc["run"]), int(doc["epoch"]))


@dataclass(frozen=True, order=True, slots=True)
class StoreId:
    """One state store: Spark's (operator, partition, store name)."""

    operator: int
    partition: int
    store: str


@dataclass(frozen=True, slots=True)
class Handle:
    """A range of a stored object that holds one file of a snapshot.

    `object` is relative to the stream's root. `name` is the file's path inside the store's folder as Spark's
    `RocksDBFileManager` names it (`7_<uid>.changelog`, `7_<uid>.zip`, `SSTs/<name>.sst`). `checksum` is the CRC-32 of the bytes.
    """

    kind: HandleKind
    name: str
    object: str
    offset: int
    length: int
    checksum: int

    def to_json(self) -> list[Any]:
        return [self.kind._value_, self.name, self.object, self.offset, self.length, self.checksum]

    @staticmethod
    def from_json(row: list[Any], known: Handle | None = None, objects: dict[str, str] | None = None) -> Handle:
        """`known`: what it may be; if so, it is not made anew. `objects`: names that handles share; a new one joins them."""
        if known is not None and known.to_json() == row:
            return known
        kind, name, obj, offset, length, checksum = row
        shared = str(obj) if objects is None else objects.setdefault(str(obj), str(obj))
        return Handle(HandleKind(kind), str(name), shared, int(offset), int(length), int(checksum))


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A file of the driver that is an object of its own, being too large to be in `_metadata` and in the log. `checksum`: CRC-32.

    `object` is relative to the stream's root, as a `Handle`'s.
    """

    object: str
    length: int
    checksum: int

    def to_json(self) -> dict[str, Any]:
        return {"object": self.object, "length": self.length, "checksum": self.checksum}

    def whole(self, path: str) -> Handle:
        """As the range that it is; `path`: of the file."""
        return Handle(HandleKind.FILE, path, self.object, 0, self.length, self.checksum)


Content = bytes | FileHandle
"""Of one of the driver's files: itself, or where it is."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One store's contribution to a checkpoint: its version, its unique id and all files it takes to load it.

    `handles` are complete and in the order they must be put in place: newest full snapshot (its SSTs, then its zip), then the
    changelogs up to `version`; the file of `version` itself comes last.
    """

    store: StoreId
    version: int
    uid: str
    handles: tuple[Handle, ...]
    num_keys: int | None = None
    size: int = field(init=False, compare=False, repr=False)
    """Bytes it takes to load this snapshot: added up when its ack comes in, not when all are there and a query waits."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum([h.length for h in self.handles]))


@dataclass(frozen=True, slots=True)
class Ack:
    """ "This snapshot is durable", from the executor that took it, with its timings (Flink: `AcknowledgeCheckpoint`)."""

    run: int
    epoch: int
    snapshot: Snapshot
    executor: str
    new_bytes: int
    sync_ms: float
    async_ms: float
    start_delay_ms: float
    commit_delay_ms: float = 0.0
    """From the barrier's trigger to the end of the snapshot's synchronous part; 0: not told."""

    def to_json(self) -> dict[str, Any]:
        s = self.snapshot
        return {
            "run": self.run,
            "epoch": self.epoch,
            "op": s.store.operator,
            "part": s.store.partition,
            "store": s.store.store,
            "version": s.version,
            "uid": s.uid,
            "num_keys": s.num_keys,
            "handles": [h.to_json() for h in s.handles],
            "executor": self.executor,
            "new_bytes": self.new_bytes,
            "sync_ms": self.sync_ms,
            "async_ms": self.async_ms,
            "start_delay_ms": self.start_delay_ms,
            "commit_delay_ms": self.commit_delay_ms,
        }

    @staticmethod
    def from_json(doc: Mapping[str, Any], before: Snapshot | None = None, objects: dict[str, str] | None = None) -> Ack:
        """`before`: an older snapshot of this store, with which this one may share files. `objects`: of `Handle.from_json`. Raises
        ValueError, TypeError, KeyError or OverflowError for what is none."""
        keys = doc.get("num_keys")
        known = {h.name: h for h in before.handles} if before else {}
        snapshot = Snapshot(
            before.store if before else StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"])),
            int(doc["version"]),
            str(doc["uid"]),
            tuple([Handle.from_json(row, known.get(row[1]), objects) for row in doc["handles"]]),
            None if keys is None else int(keys),
        )
        return Ack(
            int(doc["run"]),
            int(doc["epoch"]),
            snapshot,
            str(doc["executor"]),
            int(_checked(doc["new_bytes"])),
            _checked(float(doc["sync_ms"])),
            _checked(float(doc["async_ms"])),
            _checked(float(doc["start_delay_ms"])),
            _checked(float(doc.get("commit_delay_ms") or 0)),
        )


@dataclass(frozen=True, slots=True)
class Decline:
    """An executor could not store a snapshot (Flink: `DeclineCheckpoint`)."""

    run: int
    epoch: int
    store: StoreId
    uid: str
    executor: str
    cause: str

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "epoch": self.epoch,
            "op": self.store.operator,
            "part": self.store.partition,
            "store": self.store.store,
            "uid": self.uid,
            "executor": self.executor,
            "decline": self.cause,
        }

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Decline:
        store = StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"]))
        return Decline(int(doc["run"]), int(doc["epoch"]), store, str(doc["uid"]), str(doc["executor"]), str(doc["decline"]))


@dataclass(frozen=True)
class Job:
    """What a query is made of, for telling one job from another: kinds and keys of its stateful operators, its sources, its sink."""

    operators: tuple[str, ...]
    sources: tuple[str, ...]
    sink: str

    def to_json(self) -> dict[str, Any]:
        return {"operators": list(self.operators), "sources": list(self.sources), "sink": self.sink}

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Job:
        """Raises ValueError, TypeError or KeyError for what is none."""
        operators, sources, sink = doc["operators"], doc["sources"], doc["sink"]
        if not isinstance(operators, list) or not isinstance(sources, list):
            raise ValueError("the operators and sources of a job are lists")
        if not all(isinstance(text, str) for text in (*operators, *sources, sink)):
            raise ValueError("operators, sources and sink of a job are text")
        return Job(tuple(operators), tuple(sources), sink)


@dataclass(frozen=True)
class Imported:
    """A checkpoint was made out of a `checkpointLocation` of stock Spark: `location`, a URL.

    `planned`: the content of `offsets/N` of the epoch after the checkpoint, if stock Spark had begun that one: sinks may have its rows, so
    it has to run as it was planned. None: stock Spark had finished all that it began.
    """

    location: str
    planned: bytes | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint: what `_metadata` holds.

    `log` is the number of the log entry that planned the epoch. `files` are the driver's files, path below the `checkpointLocation` ->
    content, or where that is, enough to rebuild that folder. `counters` are for people: acks, bytes, durations. `unfinished`: older epochs
    whose checkpoints were still in the making when this one was put, and may complete after it. `log_from`: the lowest log entry that a
    start from here reads, None for `log` (plans of later epochs that its run had adopted may stand before that). `stream`: whose it is
    (`Claim.stream`), empty where an older release made it. `hooks`: the states of the query's hooks, by name. `imported`: None for one that
    a query with the plugin has made; else `job` may say what the state tells, which is less (`job_known`). `begins`: operators that begin
    empty in the epoch after it, for the query has changed. `given_up`: older epochs whose checkpoints its run had given up not knowing
    whether they were stored; when this one is complete it deletes them, unless it has found them to be stored meanwhile.
    """

    id: CheckpointId
    log: int
    claim: int
    query_id: str
    time_ms: int
    job: Job
    files: Mapping[str, Content]
    snapshots: tuple[Snapshot, ...]
    counters: Mapping[str, Any]
    unfinished: tuple[int, ...] = ()
    log_from: int | None = None
    stream: str = ""
    hooks: Mapping[str, bytes] = field(default_factory=dict)
    imported: Imported | None = None
    begins: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()

    @property
    def job_known(self) -> bool:
        """Whether `job` is what a query said of itself. Nobody has said it of what was imported; what was rescaled keeps the job, also
        where a planned epoch makes it one that is imported."""
        return self.imported is None or bool(self.job.sources)

    @property
    def lowest_entry(self) -> int:
        """Of the log, that a start which goes on from this one reads."""
        return self.log if self.log_from is None else min(self.log, self.log_from)

    @property
    def objects(self) -> frozenset[str]:
        """Every object the checkpoint names, relative to the stream's root."""
        return frozenset({h.object for s in self.snapshots for h in s.handles}.union(objects_of(self.files.values())))

    @property
    def handles(self) -> Iterator[Handle]:
        """Every range of an object that it takes: of state, then large files of the driver."""
        for snapshot in self.snapshots:
            yield from snapshot.handles
        for path, content in self.files.items():
            if isinstance(content, FileHandle):
                yield content.whole(path)

    @property
    def size(self) -> int:
        """Bytes of state it takes to load (Flink: full checkpoint size)."""
        return sum(s.size for s in self.snapshots)

    def file(self, path: str) -> bytes | None:
        """A file that is in `_metadata` itself, as `offsets/` and `commits/` always are; None where there is none."""
        content = self.files.get(path)
        return content if isinstance(content, bytes) else None


def key_count(snapshots: Sequence[Snapshot]) -> int | None:
    """Of all together; None unless each has a number: a sum of some would be taken for that of all."""
    known = [snapshot.num_keys for snapshot in snapshots if snapshot.num_keys is not None]
    return sum(known) if known and len(known) == len(snapshots) else None


def objects_of(contents: Iterable[Content | None]) -> frozenset[str]:
    """The objects that files of the driver are in; None: a file that was deleted."""
    return frozenset(content.object for content in contents if isinstance(content, FileHandle))
