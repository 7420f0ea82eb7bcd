"""The simulated executors of one driver: tasks that keep a running sum, and agents that store it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_ckpt.model import Ack, Checkpoint, Decline, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.paths import run_prefix, segment_key, sst_key
from spark_ckpt.testing.simulation.happened import Happened
from spark_ckpt.testing.simulation.port import Port, Surroundings
from spark_ckpt.testing.simulation.rules import Rule, ViolationError
from spark_ckpt.testing.simulation.stage import PARTITIONS, Span, state_at, sum_of

EXECUTORS = 2
ACK_RESENT = 120
LONGEST_CHAIN = 6


@dataclass(frozen=True)
class Loaded:
    """A partition's state in an executor's memory, and the files that hold it, each with its share of the sum."""

    values: tuple[int, ...] = ()
    handles: tuple[Handle, ...] = ()
    uid: str | None = None

    @property
    def value(self) -> int:
        return sum(self.values)


@dataclass
class Executor:
    """A process, and the agent beside it that outlives it. `unacked`: what it still holds."""

    name: str
    alive: bool = True
    unacked: dict[str, Ack] = field(default_factory=dict)


@dataclass
class Attempt:
    """One try of an epoch: the snapshots of the winning tasks."""

    run: int
    epoch: int
    span: Span
    winners: dict[int, Loaded] = field(default_factory=dict)
    acks: list[Ack | Decline] = field(default_factory=list)
    written: bool = False
    """The sink has it: no task runs again."""


@dataclass
class _Upload:
    """What one executor stores at a time: a segment, and shared files."""

    executor: Executor
    segment: str
    packed: list[tuple[int, int]] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    new: dict[tuple[int, int, str], Handle] = field(default_factory=dict)


def load(around: Surroundings, checkpoint: Checkpoint, end: int) -> dict[int, Loaded] | str:
    """All partitions' state from a checkpoint whose epoch ends at `end`; or the name of an object that is missing."""
    states: dict[int, Loaded] = {}
    for snapshot in checkpoint.snapshots:
        values: list[int] = []
        for handle in snapshot.handles:
            content = around.world.objects.get(handle.object)
            if content is None:
                return handle.object
            values.append(dict(content)[handle.offset])
        partition = snapshot.store.partition
        states[partition] = Loaded(tuple(values), snapshot.handles, snapshot.uid)
        if sum(values) != state_at(partition, end):
            raise ViolationError(Rule.STATE_RIGHT, f"partition {partition} of {checkpoint.id} is not the sum up to {end}")
    if len(states) != PARTITIONS:
        raise ViolationError(Rule.STATE_RIGHT, f"{checkpoint.id} holds the partitions {sorted(states)} of {PARTITIONS}")
    around.happened[Happened.LOADED] += 1
    return states


class Executors:
    """`acknowledge` hands an ack or a decline to the driver's process; the driver keeps `memory` up to date."""

    def __init__(self, around: Surroundings, port: Port, driver: str, acknowledge: Callable[[Ack | Decline], None]) -> None:
        self._a = around
        self._port = port
        self._driver = driver
        self._acknowledge = acknowledge
        self._made = 0
        self._stored: dict[tuple[int, int, str], Handle] = {}
        self.hosts = [self._new() for _ in range(EXECUTORS)]
        self.memory: dict[int, Loaded] = {}

    def _new(self) -> Executor:
        self._made += 1
        return Executor(f"{self._driver}-x{self._made}")

    def _host(self, partition: int) -> int:
        return partition % EXECUTORS

    # --- tasks

    def run_tasks(self, attempt: Attempt, partitions: list[int]) -> None:
        """Run the tasks of these partitions, a losing attempt of some first; their uploads go on in the background."""
        for n, executor in enumerate(self.hosts):
            mine = [p for p in partitions if self._host(p) == n]
            losers = [p for p in mine if self._a.chance(self._a.faults.losing, Happened.LOSING_ATTEMPT)]
            if losers:
                self._commit(attempt, executor, losers)
            if mine:
                attempt.winners.update(self._commit(attempt, executor, mine))

    def _commit(self, attempt: Attempt, executor: Executor, partitions: list[int]) -> dict[int, Loaded]:
        """Pack the snapshots into one segment and begin to upload."""
        self._made += 1
        upload = _Upload(executor, segment_key(attempt.run, attempt.epoch, f"{self._driver}-{self._made}"))
        states: dict[int, Loaded] = {}
        for p in partitions:
            self._made += 1
            uid = f"u{attempt.run}-{attempt.epoch}-{p}-{self._driver}-{self._made}"
            base = self.memory.get(p, Loaded())
            states[p] = self._snapshot(attempt, p, base, uid, upload)
            snapshot = Snapshot(StoreId(0, p, "default"), attempt.epoch + 1, uid, states[p].handles)
            upload.acks.append(Ack(attempt.run, attempt.epoch, snapshot, base.uid, executor.name, 10, 1.0, 1.0, 1.0))
            executor.unacked[uid] = upload.acks[-1]
        self._a.clock.after(self._a.rng.randrange(1, 10), lambda: self._port.send(lambda: self._uploaded(attempt, upload)))
        return states

    def _snapshot(self, attempt: Attempt, partition: int, base: Loaded, uid: str, upload: _Upload) -> Loaded:
        """A changelog on top of what is there; or the newest files merged into a shared one; or everything merged."""
        delta = sum_of(partition, attempt.span)
        keep = self._a.rng.choice((len(base.handles), len(base.handles), len(base.handles) // 2, 0))
        if keep == len(base.handles) and keep < LONGEST_CHAIN:
            upload.packed.append((len(upload.packed), delta))
            changelog = Handle(HandleKind.CHANGELOG, f"{attempt.epoch + 1}.changelog", upload.segment, len(upload.packed) - 1, 1, 0)
            return Loaded((*base.values, delta), (*base.handles, changelog), uid)
        keep = min(keep, len(base.handles) // 2)
        values, kept = base.values[:keep], base.handles[:keep]
        merged = base.value + delta - sum(values)
        key = (partition, attempt.epoch, "+".join(f"{h.object}@{h.offset}" for h in kept))
        known = self._stored.get(key)
        if known is not None and known.object.startswith(run_prefix(attempt.run)):
            self._a.happened[Happened.SHARED] += 1
            return Loaded((*values, merged), (*kept, known), uid)
        self._made += 1
        sst = sst_key(attempt.run, f"{self._driver}-{self._made}")
        upload.shared[sst] = merged
        upload.new[key] = Handle(HandleKind.SST, f"SSTs/{self._made}.sst", sst, 0, 1, 0)
        return Loaded((*values, merged), (*kept, upload.new[key]), uid)

    # --- agents

    def _uploaded(self, attempt: Attempt, upload: _Upload) -> None:
        """A dead executor's agent finishes what lies in the spool, or not; its acks stay in the storage."""
        survived = upload.executor.alive
        if not survived and self._a.chance(0.5):
            return
        if upload.packed:
            self._a.world.put_object(upload.segment, tuple(upload.packed))
        for sst, value in upload.shared.items():
            self._a.world.put_object(sst, ((0, value),))
        self._stored.update(upload.new)
        for ack in upload.acks:
            if not survived:
                self._leave(ack)
            elif self._a.chance(self._a.faults.decline, Happened.DECLINED):
                s = ack.snapshot
                self._deliver(attempt, upload.executor, Decline(ack.run, ack.epoch, s.store, s.uid, ack.executor, "injected"))
            else:
                self._deliver(attempt, upload.executor, ack)

    def _leave(self, ack: Ack) -> None:
        self._a.happened[Happened.ACK_LEFT] += 1
        self._a.world.left_acks[f"{run_prefix(ack.run)}acks/{ack.snapshot.uid}"] = ack

    def _deliver(self, attempt: Attempt, executor: Executor, ack: Ack | Decline) -> None:
        """Once, or twice, or when it is sent again; in any order."""
        delay = self._a.delay()
        if self._a.chance(self._a.faults.ack_lost, Happened.ACK_LOST):
            delay += ACK_RESENT

        def arrive() -> None:
            uid = ack.snapshot.uid if isinstance(ack, Ack) else ack.uid
            if not executor.alive:
                if isinstance(ack, Ack) and uid in executor.unacked and self._a.chance(0.5):
                    self._leave(ack)
                executor.unacked.pop(uid, None)
                return
            executor.unacked.pop(uid, None)
            attempt.acks.append(ack)
            self._acknowledge(ack)

        self._a.clock.after(delay, arrive)
        if self._a.chance(self._a.faults.ack_doubled, Happened.ACK_DOUBLED):
            self._a.clock.after(delay + self._a.delay(), arrive)

    # --- losses

    def lose(self, n: int) -> tuple[Executor, list[int]]:
        """An executor dies and another takes its place, without memory; returns the dead one and its partitions."""
        dead = self.hosts[n]
        dead.alive = False
        self.hosts[n] = self._new()
        partitions = [p for p in range(PARTITIONS) if self._host(p) == n]
        for p in partitions:
            self.memory.pop(p, None)
        self._a.happened[Happened.EXECUTOR_LOST] += 1
        return dead, partitions
