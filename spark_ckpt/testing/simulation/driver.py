"""A simulated driver: the query thread, and the real protocol in the place of its coordinator process."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, CheckpointId, Decline, Job
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.instructions import Announcement, Instruction, RequestName
from spark_ckpt.protocol.machine import InvalidTransitionError
from spark_ckpt.protocol.run import RunPhase, Settings
from spark_ckpt.testing.simulation.happened import Happened
from spark_ckpt.testing.simulation.left_out import Rules
from spark_ckpt.testing.simulation.port import Port, Surroundings
from spark_ckpt.testing.simulation.rules import Rule, ViolationError
from spark_ckpt.testing.simulation.stage import PARTITIONS, Sink, Source, Span
from spark_ckpt.testing.simulation.tasks import EXECUTORS, Attempt, Executor, Executors, load

JOB = Job(("stateStoreSave key",), ("simulated",), "simulated")
SCHEMA = "state/0/_metadata/metadata"
LONGEST_SLEEP = 800
LARGEST_EPOCH = 3


class _Coordinator:
    """One coordinator process of a driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.killed = False

    @property
    def alive(self) -> bool:
        return self._driver.alive and not self.killed

    @property
    def sleeps_until(self) -> int:
        return self._driver.sleeps_until

    def answer(self, event: ev.Event) -> None:
        self._driver.give(event, self)


class Driver:
    """Does what Spark does in the order Spark does it. Any step may be its last, or be followed by a long sleep."""

    def __init__(self, name: str, around: Surroundings, rules: Rules, settings: Settings, source: Source, sink: Sink) -> None:
        self.name = name
        self.alive = True
        self.sleeps_until = 0
        self.idle = False
        self.started: do.Started | None = None
        self._a = around
        self._rules = rules
        self._settings = settings
        self._source = source
        self._sink = sink
        self._executors = Executors(around, Port(around, self, rules.settle), name, self._acknowledge)
        self._made = 0
        self._open: ev.Request | None = None
        self._base: CheckpointId | None = None
        self._epoch = 0
        self._end = 0
        self._files: dict[str, bytes] = {}
        self._changes: dict[str, bytes | None] = {}
        self._planned: dict[int, bytes] = {}
        self._attempt: Attempt | None = None
        self._fenced = False
        self._resuming = False
        self._new_coordinator()

    def start(self) -> None:
        self._made += 1
        self._ask(ev.StartRequested("q", JOB, tuple(sorted(self._files)), f"{self.name}-{self._made}", self.name))

    # --- life and death

    def die(self, why: str) -> None:
        if self.alive:
            self._a.tell(f"{self.name} ends: {why}")
        self.alive = False

    def _soon(self, step: Callable[[], None], delay: int | None = None) -> None:
        """The next step of the query thread: after a crash never, after a sleep later."""

        def call() -> None:
            if self._awake(call):
                step()

        self._a.clock.after(self._a.rng.randrange(1, 8) if delay is None else delay, call)

    def _awake(self, again: Callable[[], None]) -> bool:
        """Whether this step happens now. If not, the driver crashed, or sleeps, and `again` is called when it wakes."""
        if not self.alive:
            return False
        now = self._a.clock.now
        if now < self.sleeps_until:
            self._a.clock.after(self.sleeps_until - now, again)
            return False
        if self._a.chance(self._a.faults.crash, Happened.DRIVER_CRASHED):
            self.die("crash")
            return False
        if self._a.chance(self._a.faults.sleep, Happened.DRIVER_SLEPT):
            self.sleeps_until = now + self._a.rng.randrange(50, LONGEST_SLEEP)
            self._a.tell(f"{self.name} sleeps until {self.sleeps_until}")
            self._a.clock.after(self.sleeps_until - now, self._wake)
            self._a.clock.after(self.sleeps_until - now, again)
            return False
        return True

    def _wake(self) -> None:
        if self.alive and self.started and self._a.world.superseded(self.started.claim):
            self._a.happened[Happened.ZOMBIE_WOKE] += 1

    def answer(self, event: ev.Event) -> None:
        """The executors' way to the storage asks nothing that the driver is told."""

    # --- the coordinator

    def _new_coordinator(self) -> None:
        self._coordinator = _Coordinator(self)
        self._port = Port(self._a, self._coordinator, self._rules.settle)
        self._stream = self._rules.stream(self._settings, self._rules.order)
        self._timers: set[int] = set()

    def give(self, event: ev.Event, coordinator: _Coordinator) -> None:
        """An event for the protocol; one for a coordinator that died goes nowhere."""
        if coordinator is not self._coordinator or not self._awake(lambda: self.give(event, coordinator)):
            return
        if self._a.chance(self._a.faults.coordinator_crash, Happened.COORDINATOR_CRASHED):
            self._coordinator_crashed()
            return
        try:
            instructions = self._stream.handle(event, self._a.clock.now)
        except InvalidTransitionError as error:
            raise ViolationError(Rule.MACHINE, f"{self.name}: {error}") from error
        self._a.tell(f"{self.name} {type(event).__name__} -> {', '.join(type(i).__name__ for i in instructions) or 'nothing'}")
        run = self._stream.run
        if run and run.phase is RunPhase.FENCED and not self._fenced:
            self._fenced = True
            self._a.happened[Happened.FENCED] += 1
            if not any(isinstance(i, do.Refused) for i in instructions):
                self._a.happened[Happened.FENCED_IDLE] += 1
        for instruction in instructions:
            self._execute(instruction, coordinator)

    def _execute(self, i: Instruction, coordinator: _Coordinator) -> None:
        if isinstance(i, do.SetTimer):
            timer = ev.TimerFired(i.ticket, i.timer)
            self._timers.add(i.ticket)
            self._a.clock.after(i.after_ms, lambda: self._fire(timer, coordinator))
        elif isinstance(i, do.CancelTimer):
            if self._a.rng.random() < 0.8:  # else it fires while its cancellation is on the way
                self._timers.discard(i.ticket)
        elif isinstance(i, do.Announce):
            self._announced(i)
        elif isinstance(i, do.Log):
            self._a.tell(f"{self.name} logs {i.level.name}: {i.message}")
        elif not self._port.execute(i):
            self._check_told(i)
            self._soon(lambda: self._told(i, coordinator), self._a.rng.randrange(0, 3))

    def _fire(self, timer: ev.TimerFired, coordinator: _Coordinator) -> None:
        if coordinator is self._coordinator and timer.ticket in self._timers:
            self._timers.discard(timer.ticket)
            self.give(timer, coordinator)

    def _coordinator_crashed(self) -> None:
        """The driver starts another one, and tells it all that was not answered."""
        self._a.tell(f"{self.name}: its coordinator dies")
        self._coordinator.killed = True
        self._new_coordinator()
        if self.started is None:
            self._soon(self.start)
            return
        coordinator = self._coordinator
        self._resuming = True
        resume = ev.ResumeRequested(self.started.run, self.started.claim, self._epoch)

        def resend() -> None:
            if coordinator is not self._coordinator:
                return
            self._resuming = False
            self.give(resume, coordinator)
            for ack in self._attempt.acks if self._attempt else ():
                self._signal(ack, coordinator)
            if self._open is not None:
                self.give(self._open, coordinator)

        self._soon(resend)

    def _ask(self, request: ev.Request) -> None:
        self._open = request
        coordinator = self._coordinator
        if not self._resuming:
            self._soon(lambda: self.give(request, coordinator))

    def _acknowledge(self, ack: Ack | Decline) -> None:
        self._signal(ack, self._coordinator)

    def _signal(self, ack: Ack | Decline, coordinator: _Coordinator) -> None:
        self.give(ev.AckReceived(ack) if isinstance(ack, Ack) else ev.DeclineReceived(ack), coordinator)

    # --- what the protocol says, checked when it says it

    def _check_told(self, i: Instruction) -> None:
        if isinstance(i, do.Started) and i.rerun:
            self._check_planned(i.claim, i.epoch)
        if isinstance(i, do.Triggered):
            assert self._stream.run is not None
            self._check_planned(self._stream.run.claim.claim, i.epoch)
        if isinstance(i, (do.Triggered, do.Sealed)) and self._fenced:
            raise ViolationError(Rule.FENCED_STOPS, f"{self.name} was fenced, and then told {type(i).__name__}")

    def _check_planned(self, claim: int, epoch: int) -> None:
        if not self._a.world.planned(claim, epoch):
            rule = Rule.FENCED_STOPS if self._a.world.superseded(claim) else Rule.PLAN_FIRST
            raise ViolationError(rule, f"{self.name} runs epoch {epoch} under claim {claim}, whose plan is not in the log")

    def _announced(self, i: do.Announce) -> None:
        if self._fenced:
            raise ViolationError(Rule.FENCED_STOPS, f"{self.name} was fenced, and announces {i.event.name}")
        if i.event is Announcement.COMPLETED:
            completed = CheckpointId(i.summary["run"], i.summary["epoch"])
            self._a.happened[Happened.COMPLETED] += 1
            if not self._a.world.was_completed(completed):
                raise ViolationError(Rule.COMPLETED_STORED, f"{self.name} announces {completed}, whose _metadata was never stored")
        if i.event is Announcement.RESTORED:
            self._a.happened[Happened.RESTORED] += 1

    # --- the query thread

    def _told(self, i: Instruction, coordinator: _Coordinator) -> None:
        if coordinator is not self._coordinator:
            return
        if isinstance(i, do.Started):
            self._begin(i)
        elif isinstance(i, (do.Triggered, do.Sealed)) and isinstance(self._open, ev.StopRequested):
            self._a.tell(f"{self.name} is about to stop and does not listen")
        elif isinstance(i, do.Triggered):
            self._open = None
            self._base = i.base
            self._run_epoch()
        elif isinstance(i, do.Sealed):
            self._sealed()
        elif isinstance(i, do.Resumed):
            self._a.happened[Happened.RESUMED] += 1
        elif isinstance(i, do.Refused) and not isinstance(self._open, ev.StopRequested):
            self._refused(i)
        elif isinstance(i, do.Stopped):
            self.die("stopped")

    def _refused(self, i: do.Refused) -> None:
        if i.request is RequestName.SEAL and i.kind is ErrorKind.LOST:
            self._open = None
            self._a.happened[Happened.RERUN_IN_PLACE] += 1
            self._run_epoch()
            return
        if i.kind is ErrorKind.FENCED and not self._fenced:
            self._a.happened[Happened.FENCED] += 1
        elif i.kind is not ErrorKind.FENCED:
            self._a.happened[Happened.FAILED] += 1
        self.die(f"{i.request.name} refused, {i.kind.name}: {i.message}")

    def _begin(self, i: do.Started) -> None:
        self.started = i
        self._open = None
        self._files = dict(i.files)
        self._base = i.origin
        self._epoch = i.epoch
        self._planned = {plan.epoch: plan.offsets for plan in i.planned}
        self._a.happened[Happened.STARTED] += 1
        if i.origin:
            self._end = Span.decode(self._files[offsets_file(i.origin.epoch)]).end
        self._check_files(i)
        if i.rerun:
            self._a.happened[Happened.RERUN] += 1
            self._run_epoch()
        else:
            self._next_epoch()

    def _check_files(self, i: do.Started) -> None:
        """All that Spark needs in its `checkpointLocation` to go on."""
        last = i.epoch if i.rerun else i.epoch - 1
        due = {source_file(n) for n in range(last + 1)} | ({SCHEMA} if i.origin else set())
        due |= {commits_file(i.epoch - 1)} if i.origin else set()
        due |= {offsets_file(n) for n in range(max(0, i.epoch - 1), last + 1)}
        missing = sorted(due - self._files.keys())
        if missing:
            raise ViolationError(Rule.FILES_RIGHT, f"{self.name} restores {i.origin} without {missing}")

    def _next_epoch(self) -> None:
        """Plan: what was planned before as it was, else whatever the source has now."""
        if self._a.chance(self._a.faults.stop, Happened.STOPPED):
            self._ask(ev.StopRequested(failed=False))
            return
        recorded = self._planned.pop(self._epoch, None)
        if recorded is None and self._end >= self._source.available:
            self.idle = True
            self._soon(self._look_again, 20)
            return
        span = Span(self._end, min(self._source.available, self._end + self._a.rng.randrange(1, LARGEST_EPOCH + 1)))
        offsets = recorded or span.encode()
        self._write({source_file(self._epoch): offsets, **({SCHEMA: b"schema"} if SCHEMA not in self._files else {})})
        self._files[offsets_file(self._epoch)] = offsets
        self._ask(ev.TriggerRequested(self._epoch, offsets, self._take_changes()))

    def _look_again(self) -> None:
        self.idle = False
        self._next_epoch()

    def _write(self, files: dict[str, bytes]) -> None:
        self._files.update(files)
        self._changes.update(files)

    def _take_changes(self) -> dict[str, bytes | None]:
        changes, self._changes = self._changes, {}
        return changes

    def _run_epoch(self) -> None:
        assert self.started is not None
        span = Span.decode(self._files[offsets_file(self._epoch)])
        self._attempt = Attempt(self.started.run, self._epoch, span)
        self._tasks(self._attempt, list(range(PARTITIONS)))
        if self._a.chance(self._a.faults.task_failure, Happened.TASK_FAILED):
            self._soon(self._task_failed, self._a.rng.randrange(0, 40))
        if self._a.chance(self._a.faults.executor_loss):
            attempt = self._attempt
            self._soon(lambda: self._lose_executor(attempt), self._a.rng.randrange(0, 60))

    def _task_failed(self) -> None:
        """The query ends; what was asked last may be unanswered."""
        self._attempt = None
        self._ask(ev.StopRequested(failed=True))

    def _tasks(self, attempt: Attempt, partitions: list[int]) -> None:
        """Run them as soon as their state is there."""
        absent = [p for p in partitions if p not in self._executors.memory]
        if absent and self._base is not None:
            self._soon(lambda: self._load(attempt, self._base, partitions))
            return
        self._executors.run_tasks(attempt, partitions)
        if len(attempt.winners) == PARTITIONS:
            self._soon(lambda: self._write_batch(attempt))

    def _load(self, attempt: Attempt, base: CheckpointId | None, partitions: list[int]) -> None:
        assert self.started is not None
        assert base is not None
        if attempt is not self._attempt:
            return
        checkpoint = self._a.world.checkpoints.get(base)
        states = load(self._a, checkpoint, attempt.span.first) if checkpoint else None
        if isinstance(states, dict):
            for p in partitions:
                self._executors.memory.setdefault(p, states[p])
            self._tasks(attempt, partitions)
            return
        if not self._a.world.superseded(self.started.claim):
            raise ViolationError(Rule.ORIGIN_LOADS, f"{self.name}, which is not fenced, cannot load {base}: {states or 'no _metadata'}")
        self._a.happened[Happened.LOAD_FENCED] += 1
        self.give(ev.DamageReported(states, "missing"), self._coordinator)
        self._soon(lambda: self.die("its state is gone"), 200)

    def _write_batch(self, attempt: Attempt) -> None:
        """The sink's commit; `commits/N` is another step."""
        if attempt is not self._attempt or attempt.written or len(attempt.winners) < PARTITIONS:
            return
        attempt.written = True
        rows = tuple(attempt.winners[p].value for p in range(PARTITIONS))
        self._sink.add_batch(attempt.epoch, (attempt.span, rows), self.name)
        self._soon(lambda: self._seal(attempt))

    def _seal(self, attempt: Attempt) -> None:
        if attempt is self._attempt and len(attempt.winners) == PARTITIONS:
            self._ask(ev.SealRequested(attempt.epoch, commit_of(attempt), self._take_changes()))

    def _sealed(self) -> None:
        attempt = self._attempt
        if self._open is None or attempt is None or self.started is None:
            return
        self._open = self._attempt = None
        for p, loaded in attempt.winners.items():
            if p in self._executors.memory or self._base is None:
                self._executors.memory[p] = loaded
        self._base = CheckpointId(self.started.run, attempt.epoch)
        self._files[commits_file(attempt.epoch)] = commit_of(attempt)
        self._end = attempt.span.end
        self._epoch += 1
        self._soon(self._next_epoch)

    def _lose_executor(self, attempt: Attempt) -> None:
        """Tasks that had not finished run elsewhere; what had finished counts, wherever its snapshot is."""
        dead, partitions = self._executors.lose(self._a.rng.randrange(EXECUTORS))
        coordinator = self._coordinator
        self._a.clock.after(self._a.delay(), lambda: self.give(ev.ExecutorLost(dead.name), coordinator))
        for host in self._executors.hosts:
            self._a.clock.after(10 + self._a.delay(), partial(self._tell_held, host, coordinator))
        if attempt is self._attempt and not attempt.written and self._a.rng.random() < 0.5:
            for p in partitions:
                attempt.winners.pop(p, None)
            self._tasks(attempt, partitions)

    def _tell_held(self, host: Executor, coordinator: _Coordinator) -> None:
        if host.alive:
            self.give(ev.HoldingReceived(host.name, frozenset(host.unacked)), coordinator)


def source_file(epoch: int) -> str:
    return f"sources/0/{epoch}"


def commit_of(attempt: Attempt) -> bytes:
    """`commits/N` in format v2: the ids of the attempts that won."""
    ids = [[attempt.winners[p].uid] for p in range(PARTITIONS)]
    return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": ids}}).encode()
