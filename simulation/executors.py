"""The simulated executors of one driver: where tasks run, where their state comes from, and what is lost with an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

from simulation.agent import Executor
from simulation.chains import Attempt, Chains, Commit, checked, named_in, stored
from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from simulation.source_sink import PARTITIONS
from simulation.state_questions import Answer
from simulation.storage_client import StorageClient
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline, Snapshot, StoreId
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.reasons import HandoverFailure

EXECUTORS = 2
POLL = 25
"""Milliseconds between two questions of an executor to its driver."""
IDLE_POLLS = 10
"""One that has nothing to say says so the less often."""
LONGEST_WANT = 30_000
"""Longer than all trouble."""


@dataclass(frozen=True)
class Report:
    """What an executor held when it made it."""

    held: frozenset[str]
    bytes: int


class Query(ABC):
    """What executors tell the driver's JVM."""

    @abstractmethod
    def acknowledge(self, ack: Ack | Decline) -> None: ...

    @abstractmethod
    def joins(self, executor: Executor) -> None:
        """It is about to commit in the run that is in hand, or to ask for state."""

    @abstractmethod
    def holding(self, executor: Executor, report: Report) -> None:
        """What it said it held has arrived; it hears what is wanted of it."""

    @abstractmethod
    def ask_for_state(self, uid: str, epoch: int) -> Answer | None:
        """What is known so far of a state that another executor has committed."""

    @abstractmethod
    def tasks_done(self, attempt: Attempt) -> None:
        """Every partition of the attempt has a winner."""

    @abstractmethod
    def state_gone(self, checkpoint: CheckpointId | None, missing: str | None) -> None:
        """A checkpoint, or an object that it names, is not there or damaged; no checkpoint: what another executor has just stored."""

    @abstractmethod
    def state_lost(self, attempt: Attempt, partition: int) -> None:
        """No checkpoint and no live executor holds what a task needs."""

    @abstractmethod
    def current(self, attempt: Attempt) -> bool:
        """Whether its tasks still run."""


class Executors:
    """`EXECUTORS` hosts; a dead one is replaced by another without memory."""

    def __init__(self, env: Environment, client: StorageClient, driver: str, query: Query, compare: bool, handles_told: bool) -> None:
        """`compare`: what is loaded with its checksum. `handles_told`: to agents that take another one's place."""
        self._env = env
        self._client = client
        self._driver = driver
        self._query = query
        self._compare = compare
        self._handles_told = handles_told
        self._chains = Chains(env, driver)
        self._made = 0
        self.hosts = [self._new() for _ in range(EXECUTORS)]

    def _new(self) -> Executor:
        self._made += 1
        executor = Executor(f"{self._driver}-x{self._made}", self._env, self._client, self._query.acknowledge, self._handles_told)
        self._env.clock.after(POLL + self._env.delay(), partial(self._poll, executor))
        return executor

    def _poll(self, executor: Executor) -> None:
        """The next report is made when the last one was answered."""
        if not (executor.alive and self._client.alive):
            return
        if self._env.chance(self._env.faults.agent_restart, Observed.AGENT_RESTARTED):
            executor.agent_restarts()
        executor.idle = 0 if executor.held or executor.waiting_for_state else executor.idle + 1
        if not executor.joined or executor.idle % IDLE_POLLS:
            self._env.clock.after(POLL, partial(self._poll, executor))
            return
        report = Report(executor.held, executor.bytes)

        def arrive() -> None:
            if executor.alive:
                self._query.holding(executor, report)
            self._env.clock.after(POLL, partial(self._poll, executor))

        self._env.clock.after(self._env.delay(), arrive)

    def forget(self) -> None:
        """Another run begins."""
        for host in self.hosts:
            host.forget()

    # --- tasks

    def run_tasks(self, attempt: Attempt, partitions: list[int]) -> None:
        """Run the tasks of these partitions, each where its state is, now and then elsewhere."""
        placed: dict[int, list[int]] = {}
        for p in partitions:
            n = self._env.rng.randrange(EXECUTORS) if self._env.chance(self._env.faults.moved, Observed.MOVED) else p % EXECUTORS
            placed.setdefault(n, []).append(p)
        for n, mine in placed.items():
            if attempt.pace:
                self._env.clock.after(self._env.rng.randrange(attempt.pace), partial(self._load, attempt, n, mine, {}))
            else:
                self._load(attempt, n, mine, {})

    def _load(self, attempt: Attempt, n: int, partitions: list[int], loaded: dict[int, Commit]) -> None:
        """One partition's state after the other, then all tasks of this executor."""
        if not self._query.current(attempt):
            return
        host = self.hosts[n]
        for p in partitions:
            uid = attempt.uids.get(p)
            if p in loaded or uid is None:
                continue
            kept = host.kept.get(uid)
            if kept is None:
                self._env.clock.after(self._env.delay(), lambda p=p, uid=uid: self._fetch(attempt, n, partitions, loaded, p, uid))  # type: ignore[misc]
                return
            loaded[p] = checked(kept, self._env.begins, attempt.span.first)
        self._run(attempt, n, partitions, loaded)

    def _run(self, attempt: Attempt, n: int, partitions: list[int], loaded: dict[int, Commit]) -> None:
        host = self.hosts[n]
        if host.full:
            self._env.observed[Observed.SPOOL_FULL] += 1
            self._env.clock.after(POLL, lambda: self._load(attempt, n, partitions, loaded))
            return
        losing = [p for p in partitions if self._env.chance(self._env.faults.losing, Observed.LOSING_ATTEMPT)]
        if losing:
            self._commit(attempt, host, losing, loaded)
        won = self._commit(attempt, host, partitions, loaded)
        attempt.winners.update(won)
        if len(attempt.winners) == PARTITIONS:
            self._query.tasks_done(attempt)

    def _commit(self, attempt: Attempt, host: Executor, partitions: list[int], loaded: dict[int, Commit]) -> dict[int, Commit]:
        self._query.joins(host)
        for base in loaded.values():
            host.recall(base, attempt.base)
        made = {p: self._chains.commit(attempt, loaded.get(p), p) for p in partitions}
        host.commit(list(made.values()), attempt.barrier.checkpoint, attempt.barrier.late)
        return made

    # --- state from elsewhere

    def _fetch(self, attempt: Attempt, n: int, partitions: list[int], loaded: dict[int, Commit], partition: int, uid: str) -> None:
        """From the newest completed checkpoint, if that holds it; else from whoever does."""
        if not self._query.current(attempt):
            return
        found = self._env.world.read_metadata(attempt.base) if attempt.base else None
        checkpoint = found if isinstance(found, Checkpoint) else None
        if attempt.base is not None and checkpoint is None:
            self._query.state_gone(attempt.base, None)
            return
        snapshot = named_in(checkpoint, partition, uid) if checkpoint else None
        if snapshot is None:
            if attempt.base is not None and attempt.base.epoch + 1 == attempt.version:
                raise ViolationError(Invariant.STATE_RIGHT, f"{attempt.base} does not hold {uid}, which its commit names")
            self._env.observed[Observed.WANTED] += 1
            self._query.joins(self.hosts[n])
            self.hosts[n].waiting_for_state += 1
            self._ask_until_answered(attempt, self.hosts[n], n, partitions, loaded, partition, uid, self._env.clock.now)
            return
        self._loaded(attempt, n, partitions, loaded, stored(self._env, attempt, snapshot, self._compare), attempt.base)

    def _loaded(
        self, attempt: Attempt, n: int, partitions: list[int], loaded: dict[int, Commit], found: Commit | str, of: CheckpointId | None
    ) -> None:
        if isinstance(found, str):
            self._query.state_gone(of, found)
            return
        loaded[found.partition] = checked(found, self._env.begins, attempt.span.first)
        self._load(attempt, n, partitions, loaded)

    def _ask_until_answered(
        self,
        attempt: Attempt,
        asker: Executor,
        n: int,
        partitions: list[int],
        loaded: dict[int, Commit],
        partition: int,
        uid: str,
        since: int,
    ) -> None:
        """It asks until it is answered, or dies, also with its driver, or nobody needs its task any more."""
        if not (self._query.current(attempt) and asker.alive and self._client.alive):
            asker.waiting_for_state -= 1
            return
        answer = self._query.ask_for_state(uid, attempt.version - 1)
        if answer is None:
            if self._env.clock.now - since > LONGEST_WANT:
                raise ViolationError(Invariant.WANTS_ANSWERED, f"{asker.name} waits for {uid} since {since}")
            self._env.clock.after(POLL, lambda: self._ask_until_answered(attempt, asker, n, partitions, loaded, partition, uid, since))
            return
        asker.waiting_for_state -= 1
        if isinstance(answer, do.HandedOver):
            self._env.observed[Observed.HANDED_OVER] += 1
            snapshot = Snapshot(StoreId(attempt.operator, partition, "default"), attempt.version, uid, answer.handles)
            self._loaded(attempt, n, partitions, loaded, stored(self._env, attempt, snapshot, self._compare), None)
        elif answer.reason is HandoverFailure.LOST:
            self._query.state_lost(attempt, partition)
        else:  # the task fails, and runs again
            self._env.clock.after(POLL, lambda: self._load(attempt, n, partitions, loaded))

    def holder(self, uid: str) -> Executor | None:
        return next((h for h in self.hosts if uid in h.held), None)

    # --- losses

    def lose(self, n: int) -> tuple[Executor, list[int]]:
        """An executor dies and another takes its place; returns the dead one and the partitions whose tasks ran there."""
        dead = self.hosts[n]
        dead.alive = False
        self.hosts[n] = self._new()
        self._env.observed[Observed.EXECUTOR_LOST] += 1
        return dead, [p for p in range(PARTITIONS) if any(c.partition == p for c in dead.kept.values())]
