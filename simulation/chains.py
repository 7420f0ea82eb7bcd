"""What a store's state is made of: a chain of files, each with its share of the sum, stored or still in an executor's spool."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.source_sink import PARTITIONS, Span, state_at, sum_of
from simulation.stored_damage import checksum
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Snapshot, StoreId

LONGEST = 6


@dataclass(eq=False)
class StateFile:
    """One file. Commits share them; `handle` is set once it is stored."""

    name: str
    value: int
    kind: HandleKind
    handle: Handle | None = None
    uploading: bool = False


@dataclass(eq=False)
class Commit:
    """One store's version: all that it takes to load it. `requested`: to be stored and acknowledged; `ack_sent`: its ack is on the way."""

    run: int
    epoch: int
    partition: int
    operator: int
    uid: str
    base_uid: str | None
    chain: tuple[StateFile, ...]
    base: CheckpointId | None = None
    sparse: frozenset[str] = frozenset()
    """What the barrier of its epoch named: the newest checkpoint, and packs to be given up."""
    forgotten: bool = False
    """Its agent does not know which of its files are stored, and where."""
    requested: bool = False
    ack_sent: bool = False
    acked: bool = False
    handles: tuple[Handle, ...] | None = None
    """With which its agent has acknowledged it; None: the executor has not heard that, or holds it no more."""

    @property
    def store(self) -> StoreId:
        return StoreId(self.operator, self.partition, "default")

    @property
    def value(self) -> int:
        return sum(file.value for file in self.chain)

    @property
    def unstored(self) -> list[StateFile]:
        return [file for file in self.chain if file.handle is None]

    @property
    def snapshot(self) -> Snapshot:
        """Of a commit all of whose files are stored."""
        handles = tuple(file.handle for file in self.chain if file.handle is not None)
        assert len(handles) == len(self.chain)
        return Snapshot(self.store, self.epoch + 1, self.uid, handles)


@dataclass(frozen=True)
class Barrier:
    """What `trigger` answered: whether tasks of the epoch are asked for snapshots, and for which earlier one as well."""

    checkpoint: bool
    late: int | None
    sparse: frozenset[str] = frozenset()
    """Packs of which little is needed any more."""

    @property
    def given_up(self) -> frozenset[str]:
        """Those that its commits are not to name."""
        return self.sparse if self.checkpoint else frozenset()


@dataclass(eq=False)
class Attempt:
    """One try of an epoch: what it goes on from, and the commits of the winning tasks."""

    run: int
    epoch: int
    span: Span
    base: CheckpointId | None
    uids: dict[int, str]
    barrier: Barrier
    version: int
    """Of the state that it goes on from: the epoch's number, unless that is a new one."""
    operator: int = 0
    """The sum's number."""
    pace: int = 0
    """Its tasks, and its sink, take up to so long."""
    winners: dict[int, Commit] = field(default_factory=dict)
    written: bool = False
    """The sink has it: no task runs again."""


class Chains:
    """Makes the chains of one driver's executors. A shared file that is known to be stored is named, not stored again."""

    def __init__(self, env: Environment, driver: str) -> None:
        self._env = env
        self._driver = driver
        self._made = 0
        self._shared: dict[tuple[int, int, int, str], StateFile] = {}

    def name(self) -> str:
        """Never used before."""
        self._made += 1
        return f"{self._driver}-{self._made}"

    def commit(self, attempt: Attempt, base: Commit | None, partition: int) -> Commit:
        """A changelog on top of what is there; or the newest files merged into a shared one; or everything, as under a new number."""
        chain = tuple(self._dense(attempt.barrier.given_up, file) for file in base.chain) if base else ()
        delta = sum_of(partition, attempt.span)
        uid = f"u{attempt.run}-{attempt.epoch}-{partition}-{self.name()}"
        keep = self._env.rng.choice((len(chain), len(chain), len(chain) // 2, 0)) if attempt.version == attempt.epoch else 0
        if keep == len(chain) and keep < LONGEST:
            made = (*chain, StateFile(f"{uid}.changelog", delta, HandleKind.CHANGELOG))
        else:
            made = self._merged(attempt, chain[: min(keep, len(chain) // 2)], partition, sum(file.value for file in chain) + delta)
        made_of = (uid, base.uid if base else None, made, attempt.base, attempt.barrier.given_up)
        return Commit(attempt.run, attempt.epoch, partition, attempt.operator, *made_of)

    def _dense(self, given_up: frozenset[str], file: StateFile) -> StateFile:
        """What a checkpoint needs of a sparse pack it stores anew."""
        if file.handle is None or file.handle.object not in given_up:
            return file
        self._env.observed[Observed.STORED_ANEW] += 1
        return StateFile(file.name, file.value, file.kind)

    def _merged(self, attempt: Attempt, kept: tuple[StateFile, ...], partition: int, total: int) -> tuple[StateFile, ...]:
        key = (attempt.run, attempt.epoch, partition, "+".join(file.name for file in kept))
        known = self._shared.get(key)
        if known is not None and known.handle is not None:
            self._env.observed[Observed.SHARED] += 1
            return (*kept, known)
        self._shared[key] = StateFile(f"{self.name()}.sst", total - sum(file.value for file in kept), HandleKind.SST)
        return (*kept, self._shared[key])


def stored(env: Environment, attempt: Attempt, snapshot: Snapshot, compare: bool = True) -> Commit | str:
    """The commit that a snapshot in the storage is; or the name of an object that is missing or damaged. A task asks for one version."""
    if snapshot.version != attempt.version:
        raise ViolationError(
            Invariant.STATE_RIGHT, f"epoch {attempt.epoch} asks for version {attempt.version}, {snapshot.uid} has {snapshot.version}"
        )
    chain: list[StateFile] = []
    for handle in snapshot.handles:
        content = env.world.read_object(handle.object)
        if content is None:
            return handle.object
        value = dict(content)[handle.offset]
        if compare and checksum(value) != handle.checksum:
            return handle.object
        chain.append(StateFile(handle.name, value, handle.kind, handle))
    env.observed[Observed.LOADED] += 1
    store = snapshot.store
    if store.operator != attempt.operator:
        raise ViolationError(Invariant.STATE_RIGHT, f"{snapshot.uid} is of operator {store.operator}, the sum is {attempt.operator}")
    return Commit(attempt.run, attempt.epoch - 1, store.partition, store.operator, snapshot.uid, None, tuple(chain), acked=True)


def checked(commit: Commit, begins: int, end: int) -> Commit:
    """That state is the sum of the input from where the stream began up to `end`."""
    if commit.value != state_at(commit.partition, begins, end):
        raise ViolationError(Invariant.STATE_RIGHT, f"partition {commit.partition} in {commit.uid} is not the sum up to {end}")
    return commit


def named_in(checkpoint: Checkpoint, partition: int, uid: str) -> Snapshot | None:
    found = {s.store.partition: s for s in checkpoint.snapshots}
    if len(found) != PARTITIONS:
        raise ViolationError(Invariant.STATE_RIGHT, f"{checkpoint.id} holds the partitions {sorted(found)} of {PARTITIONS}")
    return found[partition] if found[partition].uid == uid else None


def commit_of(attempt: Attempt) -> bytes:
    """`commits/N` in format v2: the ids of the attempts that won."""
    ids = [[attempt.winners[p].uid] for p in range(PARTITIONS)]
    return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {str(attempt.operator): ids}}).encode()


def uids_of(commit: bytes) -> dict[int, str]:
    (ids,) = json.loads(commit.partition(b"\n")[2])["stateUniqueIds"].values()
    return {partition: stores[0] for partition, stores in enumerate(ids)}
