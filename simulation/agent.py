"""A simulated executor and the agent beside it: commits lie in its spool until a checkpoint wants them stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.chains import Commit, Part
from simulation.happened import Happened
from simulation.harm import checksum
from simulation.port import Port, Surroundings
from simulation.rules import Rule, ViolationError
from spark_ckpt.model import Ack, Decline, Handle, HandleKind, StoreId
from spark_ckpt.paths import segment_key, sst_key

ACK_RESENT = 120
EPOCHS_KEPT = 2
"""An older version of a store is loaded again when a task runs again."""
SPOOL_MAX = 18
"""Parts, as if each had one byte."""
UPLOAD_TIMEOUT = 400


@dataclass
class _Upload:
    """What one executor stores at a time: a segment, and shared files."""

    run: int
    epoch: int
    parts: list[Part]
    begun: int
    packed: list[tuple[int, int]] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)


class Executor:
    """A process, and the agent that outlives it. `acknowledge` hands an ack or a decline to the driver's process."""

    def __init__(self, name: str, around: Surroundings, port: Port, acknowledge: Callable[[Ack | Decline], None]) -> None:
        self.name = name
        self.alive = True
        self.kept: dict[str, Commit] = {}
        self._a = around
        self._port = port
        self._acknowledge = acknowledge
        self._made = 0

    # --- what lies there

    @property
    def held(self) -> frozenset[str]:
        """Commits whose upload is not acknowledged."""
        return frozenset(uid for uid, commit in self.kept.items() if not commit.acked)

    @property
    def bytes(self) -> int:
        """What lies in the spool and is not stored."""
        return len({id(part) for commit in self.kept.values() for part in commit.unstored})

    def forget(self) -> None:
        """The run is over: its spool goes."""
        self.kept = {}

    def _prune(self, partition: int) -> None:
        epochs = sorted({c.epoch for c in self.kept.values() if c.partition == partition})[:-EPOCHS_KEPT]
        for uid, commit in list(self.kept.items()):
            if commit.partition == partition and commit.epoch in epochs and (commit.acked or not commit.wanted):
                del self.kept[uid]

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
            self._a.happened[Happened.PRESSED] += 1
            self._a.pressed_at = self._a.clock.now
            self._relieve()
        if self.bytes > 2 * SPOOL_MAX:
            raise ViolationError(Rule.BOUNDED, f"the spool of {self.name} holds {self.bytes} unstored parts of {SPOOL_MAX}")

    def late(self, epoch: int) -> None:
        self._store([c for c in self.kept.values() if c.epoch == epoch])

    def handover(self, uid: str) -> None:
        """Somebody else needs it, stored or not: it is acknowledged again."""
        commit = self.kept[uid]
        commit.acked = commit.told = False
        self._store([commit])

    @property
    def full(self) -> bool:
        return self.bytes >= SPOOL_MAX

    def _relieve(self) -> None:
        """What is newest is stored like a checkpoint's; what it replaces and nobody has asked for has no right to the room."""
        newest = self._newest()
        self._store(list(newest.values()))
        for uid, commit in list(self.kept.items()):
            if commit.unstored and not commit.wanted and commit.epoch < newest[commit.partition].epoch:
                del self.kept[uid]

    def _newest(self) -> dict[int, Commit]:
        return {commit.partition: commit for commit in self.kept.values()}

    def _store(self, commits: list[Commit]) -> None:
        wanted = [c for c in commits if not c.acked]
        if not wanted:
            return
        for commit in wanted:
            commit.wanted = True
        parts = {id(p): p for c in wanted for p in c.unstored if not p.uploading}
        if parts:
            self._pack(wanted[-1], list(parts.values()))
        else:
            self._acknowledge_stored()

    def _pack(self, commit: Commit, parts: list[Part]) -> None:
        self._made += 1
        upload = _Upload(commit.run, commit.epoch, parts, self._a.clock.now)
        segment = segment_key(commit.run, commit.epoch, f"{self.name}-{self._made}")
        for part in parts:
            part.uploading = True
            if part.kind is HandleKind.SST:
                sst = sst_key(commit.run, f"{self.name}-{part.name.removesuffix('.sst')}")
                upload.shared[sst] = part.value
                upload.handles.append(Handle(part.kind, part.name, sst, 0, 1, checksum(part.value)))
            else:
                upload.packed.append((len(upload.packed), part.value))
                upload.handles.append(Handle(part.kind, part.name, segment, len(upload.packed) - 1, 1, checksum(part.value)))
        self._a.clock.after(self._a.rng.randrange(1, 10), lambda: self._port.send(lambda: self._arrived(upload, segment)))

    def _arrived(self, upload: _Upload, segment: str) -> None:
        """A dead executor's agent finishes what it has begun, or not; its acks stay in the storage."""
        if not self.alive and self._a.chance(0.5):
            return
        if self._a.down:
            if self._a.clock.now - upload.begun > UPLOAD_TIMEOUT:
                self._failed(upload)
            else:
                self._a.clock.after(30, lambda: self._port.send(lambda: self._arrived(upload, segment)))
            return
        if self.alive and self._a.chance(self._a.faults.decline, Happened.DECLINED):
            self._failed(upload)
            return
        if upload.packed:
            self._a.world.put_object(segment, tuple(upload.packed))
        for sst, value in upload.shared.items():
            self._a.world.put_object(sst, ((0, value),))
        for part, handle in zip(upload.parts, upload.handles, strict=True):
            part.handle, part.uploading = handle, False
        self._acknowledge_stored()

    def _failed(self, upload: _Upload) -> None:
        """They are stored with the next checkpoint, under other names."""
        for part in upload.parts:
            part.uploading = False
            if part.kind is HandleKind.SST:
                self._made += 1
                part.name = f"{part.name.removesuffix('.sst')}-{self._made}.sst"
        failed = {id(part) for part in upload.parts}
        for commit in list(self.kept.values()):
            if commit.wanted and not commit.acked and failed & {id(part) for part in commit.chain}:
                commit.wanted = False
                store = StoreId(0, commit.partition, "default")
                self._deliver(commit, Decline(commit.run, commit.epoch, store, commit.uid, self.name, "injected"))

    # --- acks

    def _acknowledge_stored(self) -> None:
        for commit in list(self.kept.values()):
            if not commit.wanted or commit.told or commit.unstored:
                continue
            commit.told = True
            ack = Ack(commit.run, commit.epoch, commit.snapshot, self.name, 10, 1.0, 1.0, 1.0)
            if self.alive:
                self._deliver(commit, ack)
            else:
                self._leave(ack)

    def _leave(self, ack: Ack) -> None:
        self._a.happened[Happened.ACK_LEFT] += 1
        self._a.world.leave_ack(ack)

    def _deliver(self, commit: Commit, ack: Ack | Decline) -> None:
        """Once, or twice, or when it is sent again; in any order."""
        delay = self._a.delay()
        if self._a.chance(self._a.faults.ack_lost, Happened.ACK_LOST):
            delay += ACK_RESENT

        def arrive() -> None:
            stored = isinstance(ack, Ack)
            if self.alive:
                self._acknowledge(ack)
            elif isinstance(ack, Ack) and not commit.acked and self._a.chance(0.5):
                self._leave(ack)
            commit.acked = commit.acked or stored

        self._a.clock.after(delay, arrive)
        if self._a.chance(self._a.faults.ack_doubled, Happened.ACK_DOUBLED):
            self._a.clock.after(delay + self._a.delay(), arrive)
