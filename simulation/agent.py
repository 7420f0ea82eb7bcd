"""A simulated executor and the agent beside it: commits lie in its spool until a checkpoint wants them stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from simulation.chains import Commit, StateFile
from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.storage_client import StorageClient
from simulation.stored_damage import checksum
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline, Handle, HandleKind
from spark_ckpt.paths import pack_key, segment_key

ACK_RESENT = 120
EPOCHS_KEPT = 2
"""An older version of a store is loaded again when a task runs again."""
SPOOL_MAX = 18
"""Parts, as if each had one byte."""
UPLOAD_TIMEOUT = 400
LARGE = 3
"""Bytes of the first file of a pack, whose others have one: without it the pack is sparse."""


@dataclass
class _Upload:
    """What one executor stores at a time: a segment, and a pack of shared files. `agent`: which of its agents does."""

    run: int
    epoch: int
    agent: int
    files: list[StateFile]
    begun: int
    objects: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)


class Executor:
    """A process, and the agent that outlives it. `acknowledge` hands an ack or a decline to the driver's process."""

    def __init__(
        self, name: str, env: Environment, client: StorageClient, acknowledge: Callable[[Ack | Decline], None], handles_told: bool
    ) -> None:
        """`handles_told`: is a new agent told what the one before has acknowledged?"""
        self.name = name
        self.alive = True
        self.kept: dict[str, Commit] = {}
        self.idle = 0
        """For how many looks in a row there was nothing to report."""
        self.waiting_for_state = 0
        """How many of its tasks wait for state of others."""
        self.joined = False
        """Whether it takes part in the run."""
        self.covered = -1
        """Up to this epoch a completed checkpoint holds all."""
        self._handing: set[str] = set()
        self._env = env
        self._client = client
        self._acknowledge = acknowledge
        self._handles_told = handles_told
        self._made = 0
        self._agent = 0

    # --- what lies there

    @property
    def held(self) -> frozenset[str]:
        """Commits that it has and can make durable, less those that a completed checkpoint holds."""
        return frozenset(uid for uid, c in self.kept.items() if c.epoch > self.covered or (c.requested and not c.acked))

    @property
    def bytes(self) -> int:
        """What lies in the spool and is not stored."""
        return len({id(file) for commit in self.kept.values() for file in commit.unstored})

    def forget(self) -> None:
        """The run is over: its spool goes."""
        self.kept = {}
        self._handing = set()
        self.joined = False
        self.covered = -1

    def _prune(self, partition: int) -> None:
        epochs = sorted({c.epoch for c in self.kept.values() if c.partition == partition})[:-EPOCHS_KEPT]
        for uid, commit in list(self.kept.items()):
            if commit.partition == partition and commit.epoch in epochs and (commit.acked or not commit.requested):
                del self.kept[uid]

    # --- its agent

    def agent_restarts(self) -> None:
        """The agent dies alone. What it was storing lands or not, and nobody hears of it; to the next one the executor says again what it
        holds, and under which objects it was acknowledged. That is acknowledged once more."""
        self._agent += 1
        held = self.held
        files: dict[tuple[str, int], StateFile] = {}
        for commit in self.kept.values():
            commit.forgotten = True
            if commit.uid not in held or not self._handles_told:
                commit.handles = None
        told = [commit for commit in self.kept.values() if commit.uid in held]
        for commit in told:
            commit.ack_sent = False
            self.recall(commit, commit.base, files)
        self._store([commit for commit in told if commit.requested])
        self._acknowledge_stored()

    def recall(self, commit: Commit, base: CheckpointId | None, known: dict[tuple[str, int], StateFile] | None = None) -> None:
        """An agent that does not know it takes it for stored as it was acknowledged. If it was not, it takes what `base` holds of its files
        for stored, and the others from the disk. `known`: files of older commits, by name."""
        if not commit.forgotten:
            return
        commit.forgotten = False
        files = {} if known is None else known
        keys = [(file.name, checksum(file.value)) for file in commit.chain]
        if commit.handles is not None:
            commit.chain = tuple(StateFile(f.name, f.value, f.kind, h) for f, h in zip(commit.chain, commit.handles, strict=True))
            files.update(zip(keys, commit.chain, strict=True))
            return
        found = self._env.world.read_metadata(base) if base is not None else None
        snapshots = found.snapshots if isinstance(found, Checkpoint) else ()
        handles = [handle for s in snapshots if s.store.partition == commit.partition for handle in s.handles]
        # The files of another stream's savepoint may have the same names.
        stored = {(handle.name, handle.checksum): handle for handle in handles if handle.object not in commit.sparse}
        again = [StateFile(file.name, file.value, file.kind, stored.get(key)) for file, key in zip(commit.chain, keys, strict=True)]
        for key in keys:
            known_as = files[key].handle if key in files else None
            if known_as is not None and known_as.object in commit.sparse:
                del files[key]
        commit.chain = tuple(files.setdefault(key, file) for file, key in zip(again, keys, strict=True))

    # --- what is to be stored

    def commit(self, commits: list[Commit], checkpoint: bool, late: int | None) -> None:
        """What a late checkpoint needs comes first: it may be superseded by these."""
        if late is not None:
            self.late(late)
        for commit in commits:
            self.kept[commit.uid] = commit
            self._prune(commit.partition)
        if checkpoint:
            self._store(commits)
        if self.bytes > SPOOL_MAX // 2:
            self._env.observed[Observed.PRESSED] += 1
            self._env.pressed_at = self._env.clock.now
            self._relieve()
        if self.bytes > 2 * SPOOL_MAX:
            raise ViolationError(Invariant.BOUNDED, f"the spool of {self.name} holds {self.bytes} unstored files of {SPOOL_MAX}")

    def late(self, epoch: int) -> None:
        self._store([c for c in self.kept.values() if c.epoch == epoch])

    def handover(self, uid: str) -> None:
        """Somebody else needs it, stored or not: it is acknowledged again. Said until that has come, heard once."""
        commit = self.kept.get(uid)
        if uid in self._handing or commit is None:
            return
        self._handing.add(uid)
        commit.acked = commit.ack_sent = False
        self._store([commit])

    def evacuate(self) -> None:
        """It is about to go: what its stores' states are is stored, for the executors that take over."""
        self._store(list(self._newest().values()))

    @property
    def full(self) -> bool:
        return self.bytes >= SPOOL_MAX

    def _relieve(self) -> None:
        """What is newest is stored like a checkpoint's; what it replaces and nobody has asked for has no right to the room."""
        newest = self._newest()
        self._store(list(newest.values()))
        for uid, commit in list(self.kept.items()):
            if commit.unstored and not commit.requested and commit.epoch < newest[commit.partition].epoch:
                del self.kept[uid]

    def _newest(self) -> dict[int, Commit]:
        return {commit.partition: commit for commit in self.kept.values()}

    def _store(self, commits: list[Commit]) -> None:
        requested = [c for c in commits if not c.acked]
        if not requested:
            return
        for commit in requested:
            self.recall(commit, commit.base)
            commit.requested = True
        files = {id(p): p for c in requested for p in c.unstored if not p.uploading}
        if files:
            self._pack(requested[-1], list(files.values()))
        else:
            self._acknowledge_stored()

    def _pack(self, commit: Commit, files: list[StateFile]) -> None:
        self._made += 1
        upload = _Upload(commit.run, commit.epoch, self._agent, files, self._env.clock.now)
        unique = f"{self.name}-{self._made}"
        ssts = [file for file in files if file.kind is HandleKind.SST]
        pack = pack_key(commit.run, sha256(unique.encode()).hexdigest()[:16], LARGE + len(ssts) - 1)
        segment = segment_key(commit.run, commit.epoch, unique)
        content: dict[str, list[tuple[int, int]]] = {}
        for file in files:
            file.uploading = True
            name = pack if file.kind is HandleKind.SST else segment
            stored = content.setdefault(name, [])
            length = LARGE if name == pack and not stored else 1
            upload.handles.append(Handle(file.kind, file.name, name, len(stored), length, checksum(file.value)))
            stored.append((len(stored), file.value))
        upload.objects = {name: tuple(stored) for name, stored in content.items()}
        self._env.clock.after(self._env.rng.randrange(1, 10), lambda: self._client.send(lambda: self._arrived(upload)))

    def _arrived(self, upload: _Upload) -> None:
        """A dead executor's agent finishes what it has begun, or not; its acks stay in the storage."""
        if not self.alive and self._env.chance(0.5):
            return
        if upload.agent != self._agent:
            if not self._env.down and self._env.chance(0.5):
                self._put(upload)
            return
        if self._env.down:
            if self._env.clock.now - upload.begun > UPLOAD_TIMEOUT:
                self._failed(upload)
            else:
                self._env.clock.after(30, lambda: self._client.send(lambda: self._arrived(upload)))
            return
        if self.alive and self._env.chance(self._env.faults.decline, Observed.DECLINED):
            self._failed(upload)
            return
        self._put(upload)
        for file, handle in zip(upload.files, upload.handles, strict=True):
            file.handle, file.uploading = handle, False
        self._acknowledge_stored()

    def _put(self, upload: _Upload) -> None:
        for name, content in upload.objects.items():
            self._env.world.put_object(name, content)

    def _failed(self, upload: _Upload) -> None:
        """They are stored with the next checkpoint, in other objects."""
        for file in upload.files:
            file.uploading = False
        failed = {id(file) for file in upload.files}
        for commit in list(self.kept.values()):
            if commit.requested and not commit.acked and failed & {id(file) for file in commit.chain}:
                commit.requested = False
                self._deliver(commit, Decline(commit.run, commit.epoch, commit.store, commit.uid, self.name, "injected"))

    # --- acks

    def _acknowledge_stored(self) -> None:
        for commit in list(self.kept.values()):
            if not commit.requested or commit.ack_sent or commit.unstored:
                continue
            commit.ack_sent = True
            commit.handles = commit.snapshot.handles
            ack = Ack(commit.run, commit.epoch, commit.snapshot, self.name, 10, 1.0, 1.0, 1.0)
            if self.alive:
                self._deliver(commit, ack)
            else:
                self._leave(ack)

    def _leave(self, ack: Ack) -> None:
        self._env.observed[Observed.ACK_LEFT] += 1
        self._env.world.leave_ack(ack)

    def _deliver(self, commit: Commit, ack: Ack | Decline) -> None:
        """Once, or twice, or when it is sent again; in any order."""
        delay = self._env.delay()
        if self._env.chance(self._env.faults.ack_lost, Observed.ACK_LOST):
            delay += ACK_RESENT

        def arrive() -> None:
            stored = isinstance(ack, Ack)
            self._handing.discard(commit.uid)
            if self.alive:
                self._acknowledge(ack)
            elif isinstance(ack, Ack) and not commit.acked and self._env.chance(0.5):
                self._leave(ack)
            commit.acked = commit.acked or stored

        self._env.clock.after(delay, arrive)
        if self._env.chance(self._env.faults.ack_doubled, Observed.ACK_DOUBLED):
            self._env.clock.after(delay + self._env.delay(), arrive)
