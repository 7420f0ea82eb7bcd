"""The last versions of each store, durable or not, and which of their files are still needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from spark_ckpt.agent.chains import Chain
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.staging import FileState, StateFile
from spark_ckpt.model import CheckpointId, StoreId
from spark_ckpt.paths import run_prefix

_VERSIONS_PER_STORE = 4
_EPOCHS_PER_STORE = 2
"""As in the executor (`HeldCommits`), which tells the driver that it has all commits of so many."""
_STORES = 20_000
_LOOKS = 2
"""For each version that comes so many of the oldest stores are looked at: there may be many of which nothing can be forgotten."""


class UploadReason(Enum):
    """Why a version has to become durable."""

    CHECKPOINT = "CHECKPOINT"
    LATE = "LATE"
    HANDOVER = "HANDOVER"
    PRESSURE = "PRESSURE"


@dataclass(eq=False, slots=True)
class Version:
    """A store's version. `commit` is None where it was fetched, or is what a checkpoint holds.

    `reason` is set from the moment it is asked for until it is answered. `missing` are the files that it waits for then, `own` those of
    them that are uploaded on its behalf. `at` is when it was asked for, in monotonic seconds.
    """

    store: StoreId
    chain: Chain
    commit: Commit | None = None
    at: float = 0.0
    reason: UploadReason | None = None
    missing: set[StateFile] = field(default_factory=set)
    own: set[StateFile] = field(default_factory=set)
    new_bytes: int = 0
    late: bool = False
    """It has been asked for as a late one, so the next commit of its store need not ask again."""
    borrowed: bool = False
    """Fetched by handles that another executor has acknowledged."""


class History:
    """Thread-safe. A version that is not asked for goes when newer ones of newer epochs come; a staged file that no version needs any more
    is unlinked.

    Rule: above `_STORES` stores those are forgotten of which the newest completed checkpoint holds all; it is read from there again. The
    others stay, however many they are: another checkpoint, or another executor, may want what only this agent has.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stores: OrderedDict[StoreId, OrderedDict[str, Version]] = OrderedDict()
        self._run = 0
        self._completed: CheckpointId | None = None

    def version(self, store: StoreId, uid: str | None) -> Version | None:
        with self._lock:
            return self._stores.get(store, OrderedDict()).get(uid or "")

    def find(self, store: StoreId, uid: str | None) -> Chain | None:
        """The chain of a unique id, unless it is unknown or broken."""
        version = self.version(store, uid)
        return None if version is None or version.chain.broken else version.chain

    def add(self, version: Version) -> None:
        with self._lock:
            versions = self._stores.setdefault(version.store, OrderedDict())
            self._stores.move_to_end(version.store)
            replaced = versions.pop(version.chain.uid, None)
            versions[version.chain.uid] = version
            old = [v for v in versions.values() if v.reason is None][: max(0, len(versions) - _VERSIONS_PER_STORE)]
            recent = sorted({_epoch_of(v.commit) for v in versions.values() if v.commit})[-_EPOCHS_PER_STORE:]
            gone = [v for v in old if v is not version and (v.commit is None or _epoch_of(v.commit) not in recent)]
            self._remove(version.store, [*gone, *([replaced] if replaced else [])])
            self._forget_stores()

    def _forget_stores(self) -> None:
        for _ in range(_LOOKS):
            if len(self._stores) <= _STORES:
                return
            store, versions = next(iter(self._stores.items()))
            if all(_is_held(v, self._completed) for v in versions.values()):
                del self._stores[store]
            else:
                self._stores.move_to_end(store)

    def remove(self, version: Version) -> None:
        with self._lock:
            self._remove(version.store, [version])

    def forget(self, store: StoreId, uid: str) -> None:
        """What it names in the storage turned out to be missing or damaged."""
        if version := self.version(store, uid):
            self.remove(version)

    def clear(self) -> None:
        """Nothing is needed any more. What is being uploaded goes with `give_back`."""
        with self._lock:
            for store, versions in list(self._stores.items()):
                self._remove(store, list(versions.values()))

    def begin(self, run: int) -> None:
        """Commits of a run come. What only older runs have acknowledged is nothing to build on: no checkpoint may ever name it."""
        with self._lock:
            if run <= self._run:
                return
            self._run = run
            for store, versions in list(self._stores.items()):
                self._remove(store, [v for v in versions.values() if _is_of_older_run(v, run)])

    def complete(self, base: CheckpointId | None) -> None:
        """A checkpoint is complete. What it covers and is not durable belongs to attempts that have lost."""
        with self._lock:
            if base is None or base == self._completed:
                return
            self._completed = base
            for store, versions in list(self._stores.items()):
                covered = [v for v in versions.values() if v.reason is None and _is_covered(v, base) and not v.chain.durable]
                self._remove(store, covered)

    def relieve(self, store: StoreId) -> None:
        """Give up what is not durable and older than the store's newest epoch."""
        with self._lock:
            newest = {id(v) for v in self._newest(store)}
            self._remove(
                store, [v for v in self._stores.get(store, {}).values() if id(v) not in newest and v.reason is None and not v.chain.durable]
            )

    def newest(self) -> list[Version]:
        """Of every store the commits of its newest epoch: several, where several attempts of a task have committed."""
        with self._lock:
            return [version for store in self._stores for version in self._newest(store)]

    def of_epoch(self, run: int, epoch: int, store: StoreId | None = None) -> list[Version]:
        """The commits of an epoch, of one store or of all."""
        with self._lock:
            stores = list(self._stores) if store is None else [store]
            found = (v for s in stores for v in self._stores.get(s, {}).values())
            return [v for v in found if v.commit and _epoch_of(v.commit) == (run, epoch)]

    def take_for_upload(self, files: Iterable[StateFile]) -> list[StateFile]:
        """Those that are neither stored nor on their way: from here on they belong to their upload."""
        with self._lock:
            taken = [file for file in files if file.state is FileState.STAGED]
            for file in taken:
                file.state = FileState.UPLOADING
            return taken

    def give_back(self, store: StoreId, files: Iterable[StateFile]) -> None:
        """They could not be uploaded. They stay for the next one that needs them, if there is one."""
        with self._lock:
            back = [file for file in files if file.state is FileState.UPLOADING]
            for file in back:
                file.state = FileState.STAGED
            self._sweep(store, back)

    def _newest(self, store: StoreId) -> list[Version]:
        commits = [(_epoch_of(v.commit), v) for v in self._stores.get(store, {}).values() if v.commit]
        last = max((at for at, _ in commits), default=None)
        return [v for at, v in commits if at == last]

    def _remove(self, store: StoreId, gone: list[Version]) -> None:
        versions = self._stores.get(store)
        if versions is None:
            return
        for version in gone:
            if versions.get(version.chain.uid) is version:
                del versions[version.chain.uid]
        if not versions:
            del self._stores[store]
        for version in gone:
            self._sweep(store, version.chain.files)

    def _sweep(self, store: StoreId, files: Iterable[StateFile]) -> None:
        """Drop those of the files that no version of their store needs."""
        unneeded = {file for file in files if file.state is FileState.STAGED}
        for version in reversed(self._stores.get(store, {}).values()):
            if not unneeded:
                return
            unneeded.difference_update(version.chain.files)
        self._drop(unneeded)

    def _drop(self, files: Iterable[StateFile]) -> None:
        for file in files:
            if file.state is FileState.STAGED:
                file.drop(f"{file.name} was not needed any more")


def _epoch_of(commit: Commit) -> tuple[int, int]:
    """With its run: newer runs count their epochs anew, or on."""
    return commit.run, commit.epoch


def _is_covered(version: Version, base: CheckpointId) -> bool:
    commit = version.commit
    return commit is not None and commit.run == base.run and commit.epoch <= base.epoch


def _is_held(version: Version, base: CheckpointId | None) -> bool:
    """By that completed checkpoint, or the one that it was fetched from: nobody will ask for more than what that says."""
    fetched = version.commit is None and not version.borrowed
    return version.reason is None and (fetched or (base is not None and _is_covered(version, base))) and version.chain.durable


def _is_of_older_run(version: Version, run: int) -> bool:
    if version.commit is not None:
        return version.commit.run < run
    return version.borrowed and not any(h.object.startswith(run_prefix(run)) for h in version.chain.handles)
