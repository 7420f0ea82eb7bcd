"""Hypothesis drives several drivers of one stream in the interval mode: any order of epochs, uploads, lost answers, crashes and returns.

Executors are modelled as far as the protocol can tell: a commit is a chain of objects, most of which it shares with the commit before; an
object is uploaded once, with the first checkpoint that needs it; a task that moves goes on from what the base holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Claim, Request, encode
from spark_ckpt.protocol.instructions import Announcement, Instruction
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.run_phases import RunPhase
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World, answer, commit, offsets
from tests.drivers.stream_machine import StreamMachine

DRIVERS = 2
PARTITIONS = 2
OVER = (RunPhase.FENCED, RunPhase.FAILED, RunPhase.STOPPED, RunPhase.REPORTING, RunPhase.ENDING)


RARELY = st.sampled_from([False] * 9 + [True])
SLOW = (do.StoreMetadata, do.ReadMetadata, do.Delete, do.StoreSavepoint)
"""What may be answered while later epochs run."""
EPOCH = st.tuples(
    st.booleans(), st.sampled_from([0, 1, 2, 2]), st.sampled_from([None, None, 0, 1]), st.sampled_from([None, None, 0]), st.booleans()
)
"""Whether the next checkpoint becomes due, how many of the commits are uploaded at once, which task moves, which commits a full snapshot,
and whether the storage is slow with what is in the background."""


@dataclass(frozen=True)
class Commit:
    """What one partition committed in one epoch."""

    run: int
    epoch: int
    partition: int
    uid: str
    chain: tuple[str, ...]


@dataclass
class Query:
    """A driver process with its executors. Crashed when `driver` is None."""

    driver: Driver | None = None
    questions: list[Instruction] = field(default_factory=list)
    fenced: bool = False
    checkpoint: bool = False
    base: CheckpointId | None = None
    chains: dict[int, tuple[str, ...]] = field(default_factory=dict)
    commits: dict[int, list[Commit]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    uploads: list[Commit] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)

    @property
    def run(self) -> Run | None:
        run = self.driver.stream.run if self.driver else None
        assert run is None or isinstance(run, Run)
        return run

    def in_phase(self, phase: RunPhase) -> bool:
        return self.run is not None and self.run.phase is phase


class IntervalMachine(StreamMachine):
    """Every question to the storage is answered by a rule of its own, so anything can happen between question and answer."""

    @initialize(retained=st.integers(1, 2), concurrent=st.integers(1, 3), ahead=st.sampled_from([0, 0, 2]))
    def begin(self, retained: int, concurrent: int, ahead: int) -> None:
        self.world = World()
        self.settings = Settings(retained=retained, interval_ms=1000, max_concurrent=concurrent, tolerable_failures=10**6, ahead=ahead)
        self.queries = [Query() for _ in range(DRIVERS)]
        self.made = 0
        self.ran = {}
        self.landing: list[Checkpoint] = []

    def named(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}-{self.made}"

    # --- what a query is told

    def push(self, query: Query, event: ev.Event) -> None:
        assert query.driver is not None
        said = query.driver.push(event)
        query.questions += query.driver.held
        query.driver.held = []
        for i in said:
            self.said(query, i)

    def said(self, query: Query, i: Instruction) -> None:
        if isinstance(i, do.Announce):
            assert not query.fenced, "a fenced run tells nobody"
            if i.event is Announcement.COMPLETED:
                done = CheckpointId(i.summary["run"], i.summary["epoch"])
                assert done in self.world.checkpoints, f"{done} was announced and is not there"
            assert "which was deleted" not in i.summary.get("message", ""), i.summary
        elif isinstance(i, (do.Refused, do.Failed)):
            assert i.kind is ErrorKind.FENCED, i
            query.fenced = True
        elif isinstance(i, do.Triggered):
            query.checkpoint, query.base = i.checkpoint, i.base
            self.runs(query, i.epoch)
        elif isinstance(i, do.Late) and i.epoch is not None:
            query.uploads += query.commits.get(i.epoch, [])
        elif isinstance(i, do.Started):
            self.restored(query, i)

    def restored(self, query: Query, i: do.Started) -> None:
        query.checkpoint, query.base, query.files = False, i.origin, {}
        query.chains, query.commits, query.uploads, query.stored = {}, {}, [], set()
        if i.origin:
            origin = self.world.checkpoints[i.origin]
            assert origin.objects <= self.world.objects, "an origin that cannot be loaded"
            query.chains = {s.store.partition: tuple(h.object for h in s.handles) for s in origin.snapshots}
            query.stored = set(origin.objects)
        if i.rerun:
            self.runs(query, i.epoch)

    def runs(self, query: Query, epoch: int) -> None:
        if not self.settings.ahead and query.run is not None:
            self.check_planned(query.run.claim.run, epoch)

    def pick(self, data: st.DataObject, found: list[Query]) -> Query:
        return data.draw(st.sampled_from(found))

    # --- life and death

    @precondition(lambda self: any(q.driver is None for q in self.queries))
    @rule(data=st.data(), at_once=st.sampled_from([True, True, True, False]), second=RARELY)
    def start(self, data: st.DataObject, at_once: bool, second: bool) -> None:
        if any(q.run and q.run.phase not in OVER for q in self.queries) and not second:
            return
        query = self.pick(data, [q for q in self.queries if q.driver is None])
        query.driver, query.questions, query.fenced = Driver(self.world, self.settings), [], False
        query.driver.hold = lambda i: answer(World(), i) is not None
        said = query.driver.start(self.named("n"))
        query.questions, query.driver.held = query.driver.held, []
        for i in said:
            self.said(query, i)
        if at_once:
            self.settle(query)

    @precondition(lambda self: any(q.run for q in self.queries))
    @rule(data=st.data(), really=RARELY)
    def crash(self, data: st.DataObject, really: bool) -> None:
        if not really:
            return
        query = self.pick(data, [q for q in self.queries if q.run])
        query.driver, query.questions = None, []

    @precondition(lambda self: any(q.run for q in self.queries))
    @rule(data=st.data(), really=RARELY)
    def replace_coordinator(self, data: st.DataObject, really: bool) -> None:
        query = self.pick(data, [q for q in self.queries if q.run])
        run = query.run
        assert run is not None
        if run.phase in OVER or self.settings.ahead or not really:
            return
        planning, plan, sealed = run.phase is RunPhase.PLANNING, run.epoch.plan, max(query.commits, default=-1)
        query.driver, query.questions = Driver(self.world, self.settings), []
        query.driver.hold = lambda i: answer(World(), i) is not None
        self.push(query, ev.ResumeRequested(run.claim.run, run.claim.claim, sealed + 1, sealed=sealed, files=query.files))
        if planning and plan is not None:
            self.push(query, ev.TriggerRequested(plan.epoch, plan.offsets))

    # --- the storage

    @precondition(lambda self: any(q.questions for q in self.queries))
    @rule(data=st.data(), steps=st.integers(1, 15))
    def several_answered(self, data: st.DataObject, steps: int) -> None:
        self.settle(self.pick(data, [q for q in self.queries if q.questions]), steps)

    def settle(self, query: Query, steps: int = 1000, slow: bool = False) -> None:
        for _ in range(steps):
            quick = [i for i in query.questions if not (slow and isinstance(i, SLOW))]
            if not quick:
                return
            query.questions.remove(quick[0])
            self.answer(query, quick[0])

    def answer(self, query: Query, i: Instruction) -> None:
        reply = answer(self.world, i)
        assert reply is not None
        self.push(query, reply)

    @precondition(lambda self: any(q.questions for q in self.queries))
    @rule(data=st.data(), lose=st.sampled_from(["", "", "answer", "put", "fail", "lands later"]))
    def one_answered(self, data: st.DataObject, lose: str) -> None:
        query = self.pick(data, [q for q in self.queries if q.questions])
        i = query.questions.pop(data.draw(st.integers(0, len(query.questions) - 1)))
        outcome = Outcome.FAILED if lose == "fail" else Outcome.UNKNOWN
        if isinstance(i, do.StoreMetadata) and lose:
            if lose == "answer":
                answer(self.world, i)
            elif lose == "lands later":
                self.landing.append(i.checkpoint)
            self.push(query, ev.MetadataPut(i.ticket, i.checkpoint.id, outcome))
        elif isinstance(i, do.PutEntry) and lose:
            if lose == "answer":
                answer(self.world, i)
            if i.attempt < 3 or query.run is not None:
                self.push(query, ev.EntryPut(i.ticket, i.number, outcome))
        else:
            self.answer(query, i)

    @precondition(lambda self: self.landing)
    @rule()
    def lands(self) -> None:
        self.world.store(self.landing.pop(0))

    # --- epochs

    @precondition(lambda self: any(q.in_phase(RunPhase.IDLE) for q in self.queries))
    @rule(data=st.data(), amount=st.integers(0, 9))
    def trigger(self, data: st.DataObject, amount: int) -> None:
        self.do_trigger(self.pick(data, [q for q in self.queries if q.in_phase(RunPhase.IDLE)]), amount)

    def do_trigger(self, query: Query, amount: int) -> None:
        run = query.run
        assert run is not None
        planned_before = run.epoch.planned_before
        content = planned_before.offsets if planned_before else offsets(run.epoch.number) + str(amount).encode()
        self.push(query, ev.TriggerRequested(run.epoch.number, content))

    @precondition(lambda self: any(q.in_phase(RunPhase.RUNNING) for q in self.queries))
    @rule(data=st.data(), moved=st.sampled_from([None, None, 0, 1]), snapshot=st.sampled_from([None, 0, 1]))
    def run_and_seal(self, data: st.DataObject, moved: int | None, snapshot: int | None) -> None:
        self.do_seal(self.pick(data, [q for q in self.queries if q.in_phase(RunPhase.RUNNING)]), moved, snapshot)

    def do_seal(self, query: Query, moved: int | None, snapshot: int | None) -> None:
        run = query.run
        assert run is not None
        number, epoch = run.claim.run, run.epoch.number
        base = self.world.checkpoints.get(query.base) if query.base else None
        if moved is not None and base is not None:
            assert base.objects <= self.world.objects or query.fenced or self.superseded(run), "a task cannot load the base"
            query.chains[moved] = next(tuple(h.object for h in s.handles) for s in base.snapshots if s.store.partition == moved)
            query.stored |= set(query.chains[moved])
        commits = []
        for p in range(PARTITIONS):
            made = f"run-{number:08d}/seg/{self.named(str(epoch))}"
            query.chains[p] = (made,) if p == snapshot else (*query.chains.get(p, ()), made)
            commits.append(Commit(number, epoch, p, self.named("u"), query.chains[p]))
        query.commits = {e: c for e, c in query.commits.items() if e >= epoch - 1} | {epoch: commits}
        if query.checkpoint:
            query.uploads += commits
        content = commit(c.uid for c in commits)
        query.files = {path: c for path, c in query.files.items() if path == f"commits/{epoch - 1}"} | {f"commits/{epoch}": content}
        self.push(query, ev.SealRequested(epoch, content))

    @precondition(lambda self: any(q.in_phase(RunPhase.IDLE) for q in self.queries))
    @rule(data=st.data(), epochs=st.lists(EPOCH, min_size=2, max_size=8))
    def whole_epochs(self, data: st.DataObject, epochs: list[tuple[bool, int, int | None, int | None, bool]]) -> None:
        """One after the other."""
        query = self.pick(data, [q for q in self.queries if q.in_phase(RunPhase.IDLE)])
        for due, uploads, moved, snapshot, slow in epochs:
            if not query.in_phase(RunPhase.IDLE):
                return
            self.do_trigger(query, 0)
            self.settle(query, slow=slow)
            if due:
                self.fire(query, ev.Timer.INTERVAL)
            if query.in_phase(RunPhase.RUNNING):
                self.do_seal(query, moved, snapshot)
            for _ in range(uploads):
                if query.uploads and query.run:
                    self.upload(query, query.uploads.pop(0))
            self.settle(query, slow=slow)

    def superseded(self, run: Run) -> bool:
        return any(isinstance(entry, Claim) and entry.run > run.claim.run for entry in self.entries().values())

    # --- executors

    @precondition(lambda self: any(q.uploads and q.run for q in self.queries))
    @rule(data=st.data(), declined=st.sampled_from([False] * 9 + [True]))
    def uploaded(self, data: st.DataObject, declined: bool) -> None:
        query = self.pick(data, [q for q in self.queries if q.uploads and q.run])
        one = query.uploads.pop(data.draw(st.integers(0, len(query.uploads) - 1)))
        if declined:
            store = StoreId(0, one.partition, "default")
            self.push(query, ev.DeclineReceived(Decline(one.run, one.epoch, store, one.uid, "1", "disk full")))
            return
        self.upload(query, one)

    def upload(self, query: Query, one: Commit) -> None:
        store = StoreId(0, one.partition, "default")
        self.world.objects |= set(one.chain) - query.stored
        query.stored |= set(one.chain)
        handles = tuple(Handle(HandleKind.CHANGELOG, f"{i}_{one.uid}.changelog", name, 0, 10, 1) for i, name in enumerate(one.chain))
        snapshot = Snapshot(store, one.epoch + 1, one.uid, handles)
        self.push(query, ev.AcksReceived((Ack(one.run, one.epoch, snapshot, "1", 10, 1.0, 2.0, 0.0),)))

    # --- timers and people

    @precondition(lambda self: any(q.run for q in self.queries))
    @rule(data=st.data(), timer=st.sampled_from([ev.Timer.INTERVAL] * 5 + [ev.Timer.IDLE] * 3 + [ev.Timer.EXPIRY]))
    def fires(self, data: st.DataObject, timer: ev.Timer) -> None:
        self.fire(self.pick(data, [q for q in self.queries if q.run]), timer)

    def fire(self, query: Query, timer: ev.Timer) -> None:
        assert query.driver is not None
        ticket = query.driver.timers.get(timer)
        if ticket is not None:
            self.push(query, ev.TimerFired(ticket, timer))

    @precondition(lambda self: self.world.log)
    @rule(really=RARELY)
    def asks_for_a_savepoint(self, really: bool) -> None:
        if not really:
            return
        last = max(self.world.log)
        claim = self.entries()[last].claim
        self.world.log[last + 1] = encode(Request(claim, SAVEPOINT, "memory://there", "me", "", False, self.named("r")))

    # --- what must hold

    @invariant()
    def what_a_restart_would_load_is_there(self) -> None:
        """The newest checkpoint of the last claim's run, else its origin. An older one may have landed after it was dropped."""
        if not hasattr(self, "world"):
            return
        claims = [entry for entry in self.entries().values() if isinstance(entry, Claim)]
        if not claims:
            return
        last = claims[-1]
        own = [c for c in self.world.checkpoints if c.run == last.run]
        chosen = max(own) if own else last.origin
        if chosen is not None:
            assert chosen in self.world.checkpoints, f"{chosen} is gone"
            missing = self.world.checkpoints[chosen].objects - self.world.objects
            assert not missing, f"{chosen} needs {missing}"

    @invariant()
    def what_a_live_run_retains_of_its_own_is_there(self) -> None:
        """What it inherits may be deleted by the run before, which had decided so when it lost the stream."""
        if not hasattr(self, "world"):
            return
        for query in self.queries:
            run = query.run
            if run is None or run.phase in OVER or self.superseded(run):
                continue
            for c in (c for c in run.completed if c.run == run.claim.run):
                assert self.world.checkpoints[c].objects <= self.world.objects, c

    @invariant()
    def a_savepoint_holds_what_it_names(self) -> None:
        if not hasattr(self, "world"):
            return
        for text in self.world.answers.values():
            checkpoint = ("error: checkpoint", "error: _metadata of checkpoint", "error: executor")
            assert text.startswith(("memory://there", *checkpoint, "error: the coordinator was", "error: the run")), text


IntervalMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=100, deadline=None, print_blob=True)
TestIntervalProtocol = IntervalMachine.TestCase
