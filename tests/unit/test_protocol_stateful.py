"""Hypothesis drives several drivers of one stream through any order of requests, lost answers, crashes and returns."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.run_phases import RunPhase
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World, ack, answer, commit, offsets, uid_of
from tests.drivers.stream_machine import StreamMachine

DRIVERS = 3
PARTITIONS = 2


class Query:
    """A driver process and what it knows: crashed when `driver` is None."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.driver: Driver | None = None
        self.questions: list[Instruction] = []
        self.attempt = 0
        self.fenced = False

    def push(self, event: ev.Event) -> list[Instruction]:
        assert self.driver is not None
        said = self.driver.push(event)
        self.questions += self.driver.held
        self.driver.held = []
        return said

    @property
    def run(self) -> Run | None:
        run = self.driver.stream.run if self.driver else None
        assert run is None or isinstance(run, Run)
        return run

    def in_phase(self, phase: RunPhase) -> bool:
        return self.run is not None and self.run.phase is phase


class ProtocolMachine(StreamMachine):
    """Every question to the storage is answered by a rule of its own, so anything can happen between question and answer."""

    @initialize(retained=st.integers(1, 3))
    def begin(self, retained: int) -> None:
        self.world = World()
        self.settings = Settings(retained=retained)
        self.queries = [Query(self.world) for _ in range(DRIVERS)]
        self.nonce = 0
        self.ran = {}

    def said(self, query: Query, said: list[Instruction]) -> None:
        for i in said:
            if isinstance(i, do.Announce):
                assert not query.fenced, "a fenced run tells nobody"
            elif isinstance(i, do.Refused) and i.kind is ErrorKind.FENCED:
                query.fenced = True
            elif isinstance(i, do.Refused):
                assert i.kind is ErrorKind.LOST, i.message
            elif isinstance(i, do.Triggered):
                assert not query.fenced, "a fenced run runs no epoch"
                self.runs(query, i.epoch)
            elif isinstance(i, do.Started):
                if i.origin:
                    assert self.world.checkpoints[i.origin].objects <= self.world.objects
                if i.rerun:
                    self.runs(query, i.epoch)

    def runs(self, query: Query, epoch: int) -> None:
        assert query.run is not None
        self.check_planned(query.run.claim.run, epoch)

    @precondition(lambda self: any(q.driver is None for q in self.queries))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.driver is None]))
        self.nonce += 1
        query.driver = Driver(self.world, self.settings)
        query.driver.hold = lambda i: answer(World(), i) is not None
        query.questions, query.fenced = [], False
        self.said(query, query.driver.start(f"n{self.nonce}"))
        query.questions += query.driver.held
        query.driver.held = []

    @precondition(lambda self: any(q.driver for q in self.queries))
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.driver]))
        query.driver = None
        query.questions = []

    @precondition(lambda self: any(q.questions for q in self.queries))
    @rule(data=st.data(), steps=st.integers(1, 12))
    def several_answered(self, data: st.DataObject, steps: int) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.questions]))
        for _ in range(steps):
            if query.questions:
                reply = answer(self.world, query.questions.pop(0))
                assert reply is not None
                self.said(query, query.push(reply))

    @precondition(lambda self: any(q.in_phase(RunPhase.IDLE) for q in self.queries))
    @rule(data=st.data())
    def a_whole_epoch(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.in_phase(RunPhase.IDLE)]))
        self.do_trigger(query, 0)
        self.settle(query)
        if query.in_phase(RunPhase.RUNNING):
            self.do_seal(query, lost=False, shared=True)
            self.settle(query)

    def settle(self, query: Query) -> None:
        while query.questions:
            reply = answer(self.world, query.questions.pop(0))
            assert reply is not None
            self.said(query, query.push(reply))

    @precondition(lambda self: any(q.run for q in self.queries))
    @rule(data=st.data())
    def replace_coordinator(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.run]))
        run = query.run
        assert run is not None
        if run.phase in (RunPhase.FENCED, RunPhase.FAILED, RunPhase.STOPPED):
            return
        pending = run.phase is RunPhase.PLANNING
        query.driver = Driver(self.world, self.settings)
        query.driver.hold = lambda i: answer(World(), i) is not None
        query.questions = []
        epoch = run.epoch.number
        self.said(query, query.push(ev.ResumeRequested(run.claim.run, run.claim.claim, epoch)))
        if pending and run.epoch.plan is not None:
            self.said(query, query.push(ev.TriggerRequested(epoch, run.epoch.plan.offsets)))

    @precondition(lambda self: any(q.questions for q in self.queries))
    @rule(data=st.data(), lose=st.sampled_from(["", "", "", "answer", "put", "fail"]))
    def answered(self, data: st.DataObject, lose: str) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.questions]))
        i = query.questions.pop(data.draw(st.integers(0, len(query.questions) - 1)))
        if isinstance(i, (do.PutEntry, do.StoreMetadata)) and lose:
            if lose == "answer":
                answer(self.world, i)
            outcome = Outcome.FAILED if lose == "fail" else Outcome.UNKNOWN
            if isinstance(i, do.StoreMetadata):
                self.said(query, query.push(ev.MetadataPut(i.ticket, i.checkpoint.id, outcome)))
            elif i.attempt < 3 or query.run is not None:
                self.said(query, query.push(ev.EntryPut(i.ticket, i.number, outcome)))
            return
        reply = answer(self.world, i)
        assert reply is not None
        self.said(query, query.push(reply))

    @precondition(lambda self: any(q.in_phase(RunPhase.IDLE) for q in self.queries))
    @rule(data=st.data(), amount=st.integers(0, 99))
    def trigger(self, data: st.DataObject, amount: int) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.in_phase(RunPhase.IDLE)]))
        self.do_trigger(query, amount)

    def do_trigger(self, query: Query, amount: int) -> None:
        run = query.run
        assert run is not None
        planned_before = run.epoch.planned_before
        content = planned_before.offsets if planned_before else offsets(run.epoch.number) + str(amount).encode()
        self.said(query, query.push(ev.TriggerRequested(run.epoch.number, content)))

    @precondition(lambda self: any(q.in_phase(RunPhase.RUNNING) for q in self.queries))
    @rule(data=st.data(), lost=st.booleans(), shared=st.booleans())
    def run_and_seal(self, data: st.DataObject, lost: bool, shared: bool) -> None:
        self.do_seal(data.draw(st.sampled_from([q for q in self.queries if q.in_phase(RunPhase.RUNNING)])), lost, shared)

    def do_seal(self, query: Query, lost: bool, shared: bool) -> None:
        run = query.run
        assert run is not None
        query.attempt += 1
        uids = [f"{uid_of(run.claim.run, run.epoch.number, p)}-{query.attempt}" for p in range(PARTITIONS)]
        number, epoch = run.claim.run, run.epoch.number
        self.said(query, query.push(ev.SealRequested(epoch, commit(uids))))
        if lost:
            self.said(query, query.push(ev.ExecutorsLost(frozenset({f"e{query.attempt}"}))))
            return
        for p, uid in enumerate(uids):
            base = run.base
            old = self.world.checkpoints.get(base) if base else None
            name = f"run-{number:08d}/seg/{epoch}-{uid}"
            if shared and p == 0 and old is not None:
                name = sorted(old.objects)[0]
            else:
                self.world.objects.add(name)
            self.said(query, query.push(ev.AcksReceived((ack(number, epoch, p, uid, name),))))

    @precondition(lambda self: any(q.in_phase(RunPhase.SEALED) for q in self.queries))
    @rule(data=st.data())
    def grace(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from([q for q in self.queries if q.in_phase(RunPhase.SEALED)]))
        assert query.driver is not None
        ticket = query.driver.timers.get(ev.Timer.GRACE)
        if ticket is not None:
            self.said(query, query.push(ev.TimerFired(ticket, ev.Timer.GRACE)))

    @invariant()
    def a_completed_checkpoints_objects_exist(self) -> None:
        if not hasattr(self, "world"):
            return
        last = next((e for e in reversed(self.entries().values()) if isinstance(e, Claim)), None)
        for checkpoint in self.world.checkpoints.values():
            # A fenced run may complete what it had planned after its successor dropped what both began with; nobody goes back to that.
            superseded = last is not None and checkpoint.id.run < last.run and checkpoint.id not in last.inherits
            assert superseded or checkpoint.objects <= self.world.objects, checkpoint.id

    @invariant()
    def the_last_claims_origin_or_a_newer_checkpoint_of_its_run_exists(self) -> None:
        if not hasattr(self, "world"):
            return
        claims = [entry for entry in self.entries().values() if isinstance(entry, Claim)]
        if claims and claims[-1].origin is not None:
            last = claims[-1]
            assert any(c == last.origin or c.run == last.run for c in self.world.checkpoints), CheckpointId(last.run, -1)


ProtocolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, print_blob=True)
TestProtocol = ProtocolMachine.TestCase
