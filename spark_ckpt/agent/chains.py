"""Which files load a store's version: newest full snapshot, then changelogs along the lineage of unique ids."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_ckpt.agent.changelog import changelog_name, parse_name, read_lineage, zip_name
from spark_ckpt.agent.staging import Part, PartState, Staging
from spark_ckpt.errors import CheckpointError, DamagedError, DeclinedError, FormatError, ObjectMissingError
from spark_ckpt.model import CheckpointId, HandleKind, Snapshot, StoreId
from spark_ckpt.state.archive import read_full_snapshot

SST_FOLDER = "SSTs"
_VERSIONS_PER_STORE = 4
_STORES = 20_000


@dataclass(frozen=True)
class Commit:
    """A store committed a version into its spool folder (docs/pipes.md, `commit`)."""

    run: int
    epoch: int
    base: CheckpointId | None
    store: StoreId
    version: int
    uid: str
    base_uid: str | None
    folder: Path
    sync_ms: float
    start_delay_ms: float
    num_keys: int | None

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Commit:
        keys = doc.get("num_keys")
        return Commit(
            int(doc["run"]),
            int(doc["epoch"]),
            CheckpointId.from_json(doc["base"]) if doc.get("base") else None,
            StoreId(int(doc["op"]), int(doc["part"]), str(doc["store"])),
            int(doc["version"]),
            str(doc["uid"]),
            doc.get("base_uid"),
            Path(doc["dir"]),
            float(doc.get("sync_ms") or 0),
            float(doc.get("start_delay_ms") or 0),
            None if keys is None else int(keys),
        )


@dataclass(frozen=True, eq=False)
class Chain:
    """All parts of one version of a store, in the order of `Snapshot.handles`."""

    version: int
    uid: str
    parts: tuple[Part, ...]
    num_keys: int | None = None

    @staticmethod
    def of(snapshot: Snapshot) -> Chain:
        return Chain(snapshot.version, snapshot.uid, tuple(Part.stored(h) for h in snapshot.handles), snapshot.num_keys)

    @property
    def start(self) -> tuple[int, str] | None:
        """Version and unique id of the full snapshot it begins with; None: it begins with version 1."""
        for part in self.parts:
            if part.kind is HandleKind.SNAPSHOT and (parsed := parse_name(part.name)):
                return parsed[:2]
        return None

    @property
    def lineage(self) -> dict[int, str]:
        """version -> unique id, of every version it passes."""
        named = (parse_name(part.name) for part in self.parts if part.kind is not HandleKind.SST)
        return {**{p[0]: p[1] for p in named if p}, self.version: self.uid}

    @property
    def broken(self) -> str:
        """Why it cannot become durable any more; empty if it can."""
        return next((p.cause for p in self.parts if p.state is PartState.FAILED), "")

    @property
    def durable(self) -> bool:
        return all(p.state is PartState.STORED for p in self.parts)


class Chains:
    """The chains of the last versions of each store, bounded and thread-safe; what is forgotten is read from the base checkpoint again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: OrderedDict[StoreId, OrderedDict[str, Chain]] = OrderedDict()

    def find(self, store: StoreId, uid: str | None) -> Chain | None:
        """The chain of a unique id, unless it is unknown or broken."""
        with self._lock:
            chains = self._stores.get(store)
            chain = chains.get(uid) if chains is not None and uid is not None else None
        return None if chain is None or chain.broken else chain

    def add(self, store: StoreId, chain: Chain) -> None:
        with self._lock:
            chains = self._stores.setdefault(store, OrderedDict())
            self._stores.move_to_end(store)
            chains[chain.uid] = chain
            chains.move_to_end(chain.uid)
            while len(chains) > _VERSIONS_PER_STORE:
                chains.popitem(last=False)
            while len(self._stores) > _STORES:
                self._stores.popitem(last=False)

    def forget(self, store: StoreId, uid: str) -> None:
        """What it names turned out to be missing or damaged."""
        with self._lock:
            self._stores.get(store, OrderedDict()).pop(uid, None)


BaseLookup = Callable[[CheckpointId, StoreId], "Snapshot | None"]


class Planner:
    """Builds the chain of a commit: what is stored is reused, what is not is staged."""

    def __init__(self, chains: Chains, staging: Staging, lookup: BaseLookup) -> None:
        self._chains = chains
        self._staging = staging
        self._lookup = lookup

    def plan(self, commit: Commit, changelog: Part | None) -> tuple[Chain, tuple[Part, ...]]:
        """The chain, and those of its parts that this commit has to upload.

        `changelog` is the commit's own, staged at its arrival (None: it was not there).

        Raises `DeclinedError` where the files at hand do not load the version, `StorageError` where the local disk fails.
        """
        header = read_lineage(changelog.path) if changelog is not None and changelog.path is not None else None
        base, trouble = self._base(commit, header)
        work = _Work(commit, changelog, header, base, self._staging, trouble)
        try:
            chain = work.chain()
        except BaseException:
            work.drop()
            raise
        others = {id(p) for p in base.parts} if base else set()
        return chain, tuple(p for p in chain.parts if id(p) not in others)

    def _base(self, commit: Commit, header: Mapping[int, str] | None) -> tuple[Chain | None, str]:
        """The newest ancestor whose chain is known, and what went wrong looking for it."""
        named = header or {}
        ancestors = [commit.base_uid, *(named[v] for v in sorted(named, reverse=True))]
        for uid in ancestors:
            if chain := self._chains.find(commit.store, uid):
                return chain, ""
        if commit.base is None or (commit.base_uid is None and not named):
            return None, ""
        try:
            snapshot = self._lookup(commit.base, commit.store)
        except CheckpointError as error:
            return None, str(error)
        if snapshot is None or snapshot.uid not in ancestors:
            return None, f"checkpoint {commit.base.run}/{commit.base.epoch} does not hold {commit.base_uid} of this store"
        chain = Chain.of(snapshot)
        self._chains.add(commit.store, chain)
        return chain, ""


class _Work:
    """One commit being planned."""

    def __init__(
        self, commit: Commit, changelog: Part | None, header: Mapping[int, str] | None, base: Chain | None, staging: Staging, trouble: str
    ) -> None:
        self._commit = commit
        self._changelog = changelog
        self._header = header
        self._base = base
        self._staging = staging
        self._trouble = trouble
        self._staged: list[Part] = []
        self._known = {p.name: p for p in base.parts} if base else {}
        self._lineage: dict[int, str] = {
            **({commit.version - 1: commit.base_uid} if commit.base_uid else {}),
            **(header or {}),
            **(base.lineage if base else {}),
            commit.version: commit.uid,
        }

    def drop(self) -> None:
        """Give up what was staged here (the commit's own changelog included)."""
        for part in (*self._staged, *((self._changelog,) if self._changelog else ())):
            part.fail("not needed")

    def chain(self) -> Chain:
        commit = self._commit
        full = self._newest_full()
        if full is not None:
            start, head, num_keys = full
        else:
            base_start = self._base.start if self._base else None
            start = base_start[0] if base_start else 0
            head = [p for p in self._base.parts if p.kind is not HandleKind.CHANGELOG] if self._base else []
            num_keys = None
        self._check_start(start)
        parts = [*head, *(self._changelog_part(v) for v in range(start + 1, commit.version + 1))]
        if self._changelog is not None and self._changelog not in parts:
            self._changelog.fail("not needed")  # the full snapshot of this very version holds what it says
        keys = commit.num_keys if commit.num_keys is not None else (num_keys if start == commit.version else None)
        return Chain(commit.version, commit.uid, tuple(parts), keys)

    def _newest_full(self) -> tuple[int, list[Part], int | None] | None:
        """The newest usable full snapshot on the lineage that is newer than the base chain's."""
        base_start = self._base.start if self._base else None
        oldest = base_start[0] if base_start else 0
        for version in sorted((v for v in self._lineage if oldest < v <= self._commit.version), reverse=True):
            name = zip_name(version, self._lineage[version])
            mark = len(self._staged)
            try:
                archive = self._stage(HandleKind.SNAPSHOT, name)
                if archive is None or archive.path is None:
                    continue
                full = read_full_snapshot(archive.path)
                ssts = [self._sst(sst, size) for sst, size in ((s.stored_name, s.size) for s in full.ssts)]
            except (FormatError, DamagedError, FileNotFoundError) as error:
                self._trouble = self._trouble or str(error)
                for part in self._staged[mark:]:
                    part.fail("not needed")
                del self._staged[mark:]
                continue
            return version, [*ssts, archive], full.num_keys
        return None

    def _sst(self, sst: str, size: int) -> Part:
        name = f"{SST_FOLDER}/{sst}"
        known = self._known.get(name)
        if known is not None and known.state is not PartState.FAILED and known.length == size:
            return known
        part = self._stage(HandleKind.SST, name)
        if part is None:
            raise DamagedError(f"{name} is missing in {self._commit.folder}")
        if part.length != size:
            raise DamagedError(f"{name} has {part.length} bytes, its snapshot says {size}")
        return part

    def _stage(self, kind: HandleKind, name: str) -> Part | None:
        try:
            part = self._staging.stage(kind, self._commit.folder, name)
        except FileNotFoundError:
            return None
        self._staged.append(part)
        return part

    def _changelog_part(self, version: int) -> Part:
        if version == self._commit.version and self._changelog is not None:
            return self._changelog
        uid = self._lineage.get(version)
        if uid is None:
            raise self._declined(f"nothing tells which attempt's version {version} it is based on")
        name = changelog_name(version, uid)
        known = self._known.get(name)
        if known is not None and known.state is not PartState.FAILED:
            return known
        part = self._stage(HandleKind.CHANGELOG, name)
        if part is None:
            raise self._declined(f"{name} is neither stored nor in {self._commit.folder}")
        return part

    def _check_start(self, start: int) -> None:
        """Spark loads from a full snapshot that the version's own lineage names, or from version 1 (`RocksDB.loadWithCheckpointId`)."""
        if self._header is None or start == self._commit.version:
            return
        oldest = min(self._header, default=self._commit.version)
        if start < oldest and not (start == 0 and oldest == 1):
            raise self._declined(f"its lineage begins at version {oldest}, and {self._commit.folder} has no complete full snapshot of that")

    def _declined(self, why: str) -> DeclinedError:
        c = self._commit
        tail = f" ({self._trouble})" if self._trouble else ""
        return DeclinedError(
            f"version {c.version} of store {c.store.store}, operator {c.store.operator}, partition {c.store.partition} "
            f"cannot be stored: {why}{tail}"
        )


def missing_snapshot(store: StoreId, version: int, uid: str, base: CheckpointId | None) -> ObjectMissingError:
    where = f"checkpoint {base.run}/{base.epoch} does not hold" if base else "there is no completed checkpoint that holds"
    return ObjectMissingError(
        f"{where} version {version} ({uid}) of store {store.store}, operator {store.operator}, partition {store.partition}; "
        "restart the query: it begins again from the newest complete checkpoint"
    )
