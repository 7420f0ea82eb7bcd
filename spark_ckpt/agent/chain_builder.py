"""Building the chain of a commit: what is known is reused, what is not is staged."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from spark_ckpt.agent.chains import Chain, loads
from spark_ckpt.agent.changelog import changelog_name, read_lineage, read_oldest, zip_name
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.history import History, Version
from spark_ckpt.agent.staging import FileState, Staging, StateFile
from spark_ckpt.errors import CheckpointError, DamagedError, DeclinedError, FormatError
from spark_ckpt.model import CheckpointId, HandleKind, Snapshot, StoreId
from spark_ckpt.stored.state.archive import read_full_snapshot

SST_FOLDER = "SSTs"
_FEW = 16
"""Up to so many names are tried one by one, before the folder is listed."""

BaseLookup = Callable[[CheckpointId, StoreId], "Snapshot | None"]


class ChainBuilder:
    """One commit at a time."""

    def __init__(self, history: History, staging: Staging, lookup: BaseLookup) -> None:
        self._history = history
        self._staging = staging
        self._lookup = lookup

    def build(self, commit: Commit, changelog: StateFile | None) -> Chain:
        """The chain of a commit; `changelog` is its own, staged at its arrival (None: it was not there).

        Raises `DeclinedError` where the files at hand do not load the version, `StorageError` where the local disk fails.

        Rule: one that was acknowledged stays as it was. The first acknowledgement of a unique id counts, so what later commits share with
        this one has to be in the objects that it named.
        """
        if commit.handles is not None:
            return Chain(commit.version, commit.uid, tuple(StateFile.stored(h) for h in commit.handles), commit.num_keys)
        if chain := self._grown(commit, changelog):
            return chain
        header = read_lineage(changelog.path) if changelog is not None and changelog.path is not None else None
        base, stored, trouble = self._base(commit, header)
        work = _Building(commit, changelog, header, base, stored, self._staging, trouble)
        try:
            return work.chain()
        except BaseException:
            work.drop()
            raise

    def _grown(self, commit: Commit, changelog: StateFile | None) -> Chain | None:
        """The usual case, of nearly every commit: the chain it is based on and one changelog more. Not if the engine says that it has made
        a full snapshot since, or makes one with this very version (`RocksDB.commit(forceSnapshot)`), or a pack is to be given up.

        There may be hundreds of epochs and a thousand stores: nothing here takes a step per file."""
        if changelog is None or changelog.path is None or (commit.checkpoint and commit.sparse):
            return None
        base = self._history.find(commit.store, commit.base_uid)
        if base is None or base.version != commit.version - 1:
            return None
        if os.path.exists(f"{commit.folder}/{zip_name(commit.version, commit.uid)}"):
            return None
        oldest = read_oldest(changelog.path)
        if oldest is None or not loads(base.start, oldest):
            return None
        return Chain(commit.version, commit.uid, (*base.files, changelog), commit.num_keys)

    def _base(self, commit: Commit, header: Mapping[int, str] | None) -> tuple[Chain | None, list[StateFile], str]:
        """The newest ancestor whose chain is known, else the SSTs that the base checkpoint holds; and what went wrong looking for it."""
        named = header or {}
        ancestors = [commit.base_uid, *(named[v] for v in sorted(named, reverse=True))]
        for uid in ancestors:
            if chain := self._history.find(commit.store, uid):
                return chain, [], ""
        if commit.base is None or (commit.base_uid is None and not named):
            return None, [], ""
        try:
            snapshot = self._lookup(commit.base, commit.store)
        except CheckpointError as error:
            return None, [], str(error)
        chain = Chain.of(snapshot) if snapshot is not None else None
        if chain is None or chain.uid not in ancestors:
            stored = [p for p in chain.files if p.kind is HandleKind.SST] if chain else []
            return None, stored, f"checkpoint {commit.base.run}/{commit.base.epoch} does not hold {commit.base_uid} of this store"
        self._history.add(Version(commit.store, chain))
        return chain, [], ""


class _Building:
    """One chain being built."""

    def __init__(
        self,
        commit: Commit,
        changelog: StateFile | None,
        header: Mapping[int, str] | None,
        base: Chain | None,
        stored: list[StateFile],
        staging: Staging,
        trouble: str,
    ) -> None:
        self._commit = commit
        self._changelog = changelog
        self._header = header
        self._base = base
        self._staging = staging
        self._trouble = trouble
        self._staged: list[StateFile] = []
        self._known = {p.name: p for p in (base.files if base else stored)}
        self._lineage: dict[int, str] = {
            **({commit.version - 1: commit.base_uid} if commit.base_uid else {}),
            **(header or {}),
            **(base.lineage if base else {}),
            commit.version: commit.uid,
        }

    def drop(self) -> None:
        """Give up what was staged here (the commit's own changelog included)."""
        for file in (*self._staged, *((self._changelog,) if self._changelog else ())):
            file.drop("not needed")

    def chain(self) -> Chain:
        commit = self._commit
        full = self._newest_full()
        if full is not None:
            start, head, num_keys = full
        else:
            start = self._base.start if self._base else 0
            head = [self._dense(p) for p in self._base.files if p.kind is not HandleKind.CHANGELOG] if self._base else []
            num_keys = None
        self._check_start(start)
        files = [*head, *(self._changelog_file(v) for v in range(start + 1, commit.version + 1))]
        if self._changelog is not None and self._changelog not in files:
            self._changelog.drop("not needed")  # the full snapshot of this very version holds what it says
        keys = commit.num_keys if commit.num_keys is not None else (num_keys if start == commit.version else None)
        return Chain(commit.version, commit.uid, tuple(files), keys)

    def _newest_full(self) -> tuple[int, list[StateFile], int | None] | None:
        """The newest usable full snapshot on the lineage that is newer than the base chain's."""
        oldest = self._base.start if self._base else 0
        versions = sorted((v for v in self._lineage if oldest < v <= self._commit.version), reverse=True)
        if len(versions) > _FEW:
            present = self._present()
            versions = [v for v in versions if zip_name(v, self._lineage[v]) in present]
        for version in versions:
            name = zip_name(version, self._lineage[version])
            if not os.path.exists(f"{self._commit.folder}/{name}"):  # the usual case, several times for each commit
                continue
            mark = len(self._staged)
            try:
                archive = self._stage(HandleKind.SNAPSHOT, name)
                if archive is None or archive.path is None:
                    continue
                full = read_full_snapshot(Path(archive.path))
                ssts = [self._sst(sst, size) for sst, size in ((s.stored_name, s.size) for s in full.ssts)]
            except (FormatError, DamagedError, FileNotFoundError) as error:
                self._trouble = self._trouble or str(error)
                for file in self._staged[mark:]:
                    file.drop("not needed")
                del self._staged[mark:]
                continue
            return version, [*ssts, archive], full.num_keys
        return None

    def _present(self) -> set[str]:
        try:
            return set(os.listdir(self._commit.folder))
        except OSError:
            return set()

    def _sst(self, sst: str, size: int) -> StateFile:
        name = f"{SST_FOLDER}/{sst}"
        known = self._known.get(name)
        if known is not None and known.state is not FileState.GONE and known.length == size:
            return self._dense(known)
        file = self._stage(HandleKind.SST, name)
        if file is None:
            raise DamagedError(f"{name} is missing in {self._commit.folder}")
        if file.length != size:
            raise DamagedError(f"{name} has {file.length} bytes, its snapshot says {size}")
        return file

    def _dense(self, file: StateFile) -> StateFile:
        """An SST in a pack that holds little else that is needed is stored once more, with others, if its file is still here. The pack
        goes with the last checkpoint that names it, as any object does."""
        handle = file.handle
        if file.state is not FileState.STORED or handle is None or handle.object not in self._commit.sparse:
            return file
        own = self._stage(file.kind, file.name)
        if own is None:
            return file
        try:
            if own.length == handle.length and own.checksum() == handle.checksum:
                return own
        except (DamagedError, OSError):
            pass  # it is not needed: what is stored is good
        self._staged.remove(own)
        own.drop("not needed")
        return file

    def _stage(self, kind: HandleKind, name: str) -> StateFile | None:
        try:
            file = self._staging.stage(kind, self._commit.folder, name)
        except FileNotFoundError:
            return None
        self._staged.append(file)
        return file

    def _changelog_file(self, version: int) -> StateFile:
        if version == self._commit.version and self._changelog is not None:
            return self._changelog
        uid = self._lineage.get(version)
        if uid is None:
            raise self._declined(f"nothing tells which attempt's version {version} it is based on")
        name = changelog_name(version, uid)
        known = self._known.get(name)
        if known is not None and known.state is not FileState.GONE:
            return known
        file = self._stage(HandleKind.CHANGELOG, name)
        if file is None:
            raise self._declined(f"{name} is neither stored nor in {self._commit.folder}")
        return file

    def _check_start(self, start: int) -> None:
        if self._header is None or start == self._commit.version:
            return
        oldest = min(self._header, default=self._commit.version)
        if not loads(start, oldest):
            raise self._declined(f"its lineage begins at version {oldest}, and {self._commit.folder} has no complete full snapshot of that")

    def _declined(self, why: str) -> DeclinedError:
        c = self._commit
        tail = f" ({self._trouble})" if self._trouble else ""
        return DeclinedError(
            f"version {c.version} of store {c.store.store}, operator {c.store.operator}, partition {c.store.partition} "
            f"cannot be stored: {why}{tail}"
        )
