"""A driver's JVM process in the simulation: its life and sleep, and the real protocol in the place of its coordinator process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from simulation.announcements import Announcements
from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.mutations import Variant
from simulation.observed import Observed
from simulation.stop_requests import check_wanted
from simulation.storage_client import StorageClient
from spark_ckpt.model import Ack, Decline
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Entry, Plan, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.run_phases import OVER, RunPhase
from spark_ckpt.protocol.settings import Settings

LONGEST_SLEEP = 800
LONG_SLEEP = (1000, 3000)
OVERNIGHT = 0.3
"""How often a sleep is so long that entries of the log go meanwhile."""


class _Coordinator:
    """One coordinator process of a driver."""

    def __init__(self, driver: DriverProcess) -> None:
        self._driver = driver
        self.killed = False

    @property
    def name(self) -> str:
        return self._driver.name

    @property
    def alive(self) -> bool:
        """After a stop it finishes what it has in hand."""
        return (self._driver.alive or self._driver.stopped) and not self.killed

    @property
    def sleeps_until(self) -> int:
        return self._driver.sleeps_until

    def answer(self, event: ev.Event) -> None:
        self._driver.give(event, self)


class DriverQuery(ABC):
    """What runs in a driver's process: its query thread."""

    @abstractmethod
    def start(self) -> None:
        """Ask for a new run."""

    @abstractmethod
    def hear(self, i: Instruction) -> None:
        """What the protocol says to the query."""

    @abstractmethod
    def tell_hook(self, i: do.TellHooks) -> None:
        """Of this query, whatever it does at the moment."""

    @abstractmethod
    def resume_request(self, started: do.Started) -> ev.ResumeRequested: ...

    @abstractmethod
    def acks_in_hand(self) -> list[Ack | Decline]:
        """Those of the epoch in hand, which a new coordinator must hear again."""

    @abstractmethod
    def events_to_repeat(self) -> list[ev.Event]:
        """What else a new coordinator must hear that takes another one's place."""

    @abstractmethod
    def check(self, i: Instruction) -> None:
        """Raises `ViolationError` where the protocol says what cannot be, when it says it."""


class DriverProcess:
    """Any step may be its last, or be followed by a long sleep."""

    def __init__(self, name: str, env: Environment, variant: Variant, settings: Settings, query: DriverQuery) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.sleeps_until = 0
        self.started: do.Started | None = None
        self.open: ev.Request | None = None
        """What was asked of the protocol, and is not answered yet."""
        self.fenced = False
        self.objects: set[str] = set()
        """That acks named which came while a run could hear them."""
        self.deletes_stream = False
        """Whether a run was told to delete its stream."""
        self.announcements = Announcements(name, env, settings.max_concurrent)
        self._env = env
        self.variant = variant
        self._settings = settings
        self._query = query
        self.resuming = False
        """Whether a new coordinator has still to be told where the query stands."""
        self._heard_at = 0
        self._new_coordinator()

    # --- life and death

    def die(self, why: str) -> None:
        if self.alive:
            self._env.tell(f"{self.name} ends: {why}")
        self.alive = False

    def soon(self, step: Callable[[], None], delay: int | None = None) -> None:
        """The next step of the query thread: after a crash never, after a sleep later."""

        def call() -> None:
            if self._awake(call):
                step()

        self._env.clock.after(self._env.rng.randrange(1, 8) if delay is None else delay, call)

    def _awake(self, again: Callable[[], None]) -> bool:
        """Whether this step happens now. If not, the driver crashed, or sleeps, and `again` is called when it wakes."""
        if not self.alive:
            return False
        now = self._env.clock.now
        if now < self.sleeps_until:
            self._env.clock.after(self.sleeps_until - now, again)
            return False
        if self._env.chance(self._env.faults.crash, Observed.DRIVER_CRASHED):
            self.die("crash")
            return False
        if self._env.chance(self._env.faults.sleep, Observed.DRIVER_SLEPT):
            overnight = self._settings.log_kept_ms < DAY_MS and self._env.rng.random() < OVERNIGHT
            self.sleeps_until = now + (self._env.rng.randrange(*LONG_SLEEP) if overnight else self._env.rng.randrange(50, LONGEST_SLEEP))
            self._env.tell(f"{self.name} sleeps until {self.sleeps_until}")
            self._env.clock.after(self.sleeps_until - now, self._wake)
            self._env.clock.after(self.sleeps_until - now, again)
            return False
        return True

    def _wake(self) -> None:
        if self.alive and self.started and self._env.world.log.superseded(self.started.claim):
            self._env.observed[Observed.ZOMBIE_WOKE] += 1

    # --- the coordinator

    def _new_coordinator(self) -> None:
        self.coordinator = _Coordinator(self)
        self.client = StorageClient(self._env, self.coordinator, self.variant.settle)
        self._stream = self.variant.stream(self._settings, self.variant.parts)
        self.announcements.forget_pending()
        self._timers: set[int] = set()

    def give(self, event: ev.Event, coordinator: _Coordinator) -> None:
        """An event for the protocol; one for a coordinator that died goes nowhere."""
        if coordinator is not self.coordinator or not self._awake(lambda: self.give(event, coordinator)):
            return
        if self._env.chance(self._env.faults.coordinator_crash, Observed.COORDINATOR_CRASHED):
            self._coordinator_crashed()
            return
        before = self._stream.run
        live = before is not None and before.phase not in OVER
        if isinstance(event, ev.StopRequested) and event.delete and live:
            self.deletes_stream = True
            self._env.observed[Observed.STREAM_DELETED] += 1
        if isinstance(event, ev.AcksReceived) and live and before is not None:
            own = [ack for ack in event.acks if ack.run == before.claim.run]
            self.objects.update(handle.object for ack in own for handle in ack.snapshot.handles)
        try:
            instructions = self._stream.handle(event, self._env.clock.now)
        except Exception as error:
            raise ViolationError(Invariant.MACHINE, f"{self.name}: {type(error).__name__}: {error}") from error
        self._env.tell(f"{self.name} {type(event).__name__} -> {', '.join(type(i).__name__ for i in instructions) or 'nothing'}")
        run = self._stream.run
        if run and run.phase is RunPhase.FENCED and not self.fenced:
            self.fenced = True
            self._env.observed[Observed.FENCED] += 1
            if not any(isinstance(i, do.Refused) for i in instructions):
                self._env.observed[Observed.FENCED_IDLE] += 1
        self._check_answered(before, event, instructions)
        for instruction in instructions:
            self._execute(instruction, coordinator)

    def _execute(self, i: Instruction, coordinator: _Coordinator) -> None:
        if isinstance(i, do.PutEntry):
            self._check_put(decode(i.number, i.data))
        if isinstance(i, do.SetTimer):
            timer = ev.TimerFired(i.ticket, i.timer)
            self._timers.add(i.ticket)
            self._env.clock.after(i.after_ms, lambda: self._fire(timer, coordinator))
        elif isinstance(i, do.CancelTimer):
            if self._env.rng.random() < 0.8:  # else it fires while its cancellation is on the way
                self._timers.discard(i.ticket)
        elif isinstance(i, do.Announce):
            self._announced(i)
        elif isinstance(i, do.Log):
            self._env.tell(f"{self.name} logs {i.level.name}: {i.message}")
            if "the stream's end could not be noted in its log" in i.message:
                self.deletes_stream = False  # each of its puts failed
        elif isinstance(i, do.TellHooks):
            self._query.tell_hook(i)
        elif not self.client.execute(i):
            self._check_said(i)
            # A pipe keeps the order.
            self._heard_at = max(self._heard_at, self._env.clock.now + self._env.rng.randrange(0, 3))
            self.soon(lambda: self._hear(i, coordinator), self._heard_at - self._env.clock.now)

    def _hear(self, i: Instruction, coordinator: _Coordinator) -> None:
        """An end is told before anybody hears of it, and stays in the pipe of a coordinator that dies."""
        if coordinator is self.coordinator or (isinstance(i, do.Finished) and self.resuming):
            self._query.hear(i)

    def _fire(self, timer: ev.TimerFired, coordinator: _Coordinator) -> None:
        if coordinator is self.coordinator and timer.ticket in self._timers:
            self._timers.discard(timer.ticket)
            self.give(timer, coordinator)

    def _coordinator_crashed(self) -> None:
        """The driver starts another one, and tells it all that was not answered."""
        self._env.tell(f"{self.name}: its coordinator dies")
        self.coordinator.killed = True
        self._new_coordinator()
        if self.started is None or isinstance(self.open, ev.StartRequested):
            self.soon(self._query.start)
            return
        coordinator = self.coordinator
        self.resuming = True

        def resend() -> None:
            if coordinator is not self.coordinator:
                return
            assert self.started is not None
            self.resuming = False
            self.give(self._query.resume_request(self.started), coordinator)
            for ack in self._query.acks_in_hand():
                self.signal(ack, coordinator)
            for event in self._query.events_to_repeat():
                self.give(event, coordinator)
            if self.open is not None:
                self.give(self.open, coordinator)

        self.soon(resend, max(self._heard_at + 1 - self._env.clock.now, self._env.rng.randrange(1, 8)))

    def ask(self, request: ev.Request) -> None:
        """Nothing follows a stop: a query's thread has ended by then."""
        if isinstance(self.open, ev.StopRequested):
            return
        self.open = request
        coordinator = self.coordinator

        def send() -> None:
            if request is self.open or not isinstance(self.open, ev.StopRequested):
                self.give(request, coordinator)

        if not self.resuming:
            self.soon(send)

    def signal(self, ack: Ack | Decline, coordinator: _Coordinator) -> None:
        self.give(ev.AcksReceived((ack,)) if isinstance(ack, Ack) else ev.DeclineReceived(ack), coordinator)

    # --- what the protocol says, checked when it says it

    def _check_answered(self, run: Run | None, event: ev.Event, instructions: list[Instruction]) -> None:
        """In the interval mode a seal waits for nothing, and is told how far behind the storage is."""
        if not isinstance(event, ev.SealRequested) or run is None or run.context.waits_for_checkpoints:
            return
        if not any(isinstance(i, (do.Sealed, do.Refused)) for i in instructions):
            raise ViolationError(Invariant.NO_WAITING, f"{self.name} sealed epoch {event.epoch}, and had no answer")
        durable = self._env.world.reached(run.claim, self._env.clock.now + 1)
        gone = any(c.run == run.claim.run for c in self._env.world.damage.vanished)  # a coordinator that takes over does not see it
        least, most = (max(0, event.epoch - known) for known in (durable, -1 if gone else self.announcements.completed_epoch))
        for told in instructions:
            if isinstance(told, do.Sealed) and not least <= told.lag.epochs <= most:
                raise ViolationError(Invariant.LAG, f"{self.name} is told {told.lag} after epoch {event.epoch}, right is {least} to {most}")

    def _check_put(self, entry: Entry) -> None:
        asked = self.open
        if isinstance(entry, Plan) and isinstance(asked, ev.TriggerRequested) and asked.drain and entry.epoch == asked.epoch:
            check_wanted(entry, self._env)

    def _check_said(self, i: Instruction) -> None:
        self._query.check(i)
        if isinstance(i, do.Resumed) and self.started:
            self._env.world.found(self.started.run, self.client.listed_at)
        if isinstance(i, do.Started) and i.rerun:
            self._check_planned(i.claim, i.epoch)
        if isinstance(i, do.Triggered):
            assert self._stream.run is not None
            self._check_triggered(self._stream.run.claim, i.epoch)
        if isinstance(i, (do.Triggered, do.Sealed, do.Finished)) and self.fenced:
            raise ViolationError(Invariant.FENCED_STOPS, f"{self.name} was fenced, and then told {type(i).__name__}")

    def _check_triggered(self, claim: Claim, epoch: int) -> None:
        """In at-least-once a plan may come later, once there is a checkpoint to go back to; the claim says by how many epochs."""
        world = self._env.world
        if not claim.ahead or world.log.planned(claim.claim, epoch) or world.newest_of_lineage(claim, self._env.clock.now + 1) is None:
            self._check_planned(claim.claim, epoch)
            return
        begun = claim.first if claim.first is not None else claim.origin.epoch + 1 if claim.origin else 0
        planned = world.log.highest_planned(claim.claim)
        highest = (begun - 1 if planned is None else planned) + claim.ahead
        if epoch > highest:
            raise ViolationError(Invariant.PLAN_FIRST, f"{self.name} runs epoch {epoch}, claim {claim.claim} allows {highest}")
        self._env.observed[Observed.AHEAD] += 1

    def _check_planned(self, claim: int, epoch: int) -> None:
        if not self._env.world.log.planned(claim, epoch):
            broken = Invariant.FENCED_STOPS if self._env.world.log.superseded(claim) else Invariant.PLAN_FIRST
            raise ViolationError(broken, f"{self.name} runs epoch {epoch} under claim {claim}, whose plan is not in the log")

    def _announced(self, i: do.Announce) -> None:
        if self.fenced:
            raise ViolationError(Invariant.FENCED_STOPS, f"{self.name} was fenced, and announces {i.event.name}")
        self.announcements.hear(i, self._stream.run, isinstance(self.open, ev.FinishRequested))
