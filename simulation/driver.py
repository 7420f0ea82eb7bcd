"""A simulated driver: the query thread, which does what Spark does in the order Spark does it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from simulation.agent import Executor
from simulation.chains import Attempt, Barrier, commit_of, uids_of
from simulation.checkpoint_folder import CheckpointFolder
from simulation.environment import Environment
from simulation.executors import EXECUTORS, Executors, Query, Report
from simulation.hook import HOOKS, states_of
from simulation.invariants import Invariant, StrandedError, ViolationError
from simulation.mutations import Variant
from simulation.observed import Observed
from simulation.position import Position
from simulation.process import DriverProcess, DriverQuery
from simulation.query import SimulatedQuery
from simulation.source_sink import PARTITIONS, Sink, Source, Span
from simulation.state_questions import Answer, StateQuestions
from simulation.stop_requests import StopRequests
from simulation.storage_client import StorageClient
from simulation.world import ELSEWHERE
from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, CheckpointId, Decline, FileHandle
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.instructions import Gate, Instruction, RequestName
from spark_ckpt.protocol.operators import OperatorChoice
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.settings import Settings

SUM_ALONE = SimulatedQuery()
LARGEST_EPOCH = 3
LEAVING = 0.3
"""How many of the executors that go store first what they hold."""
LONGEST_LEAVE = 100
LOSS_MISSED = 0.2
"""How often no event tells of a loss."""
LONGEST_EPOCH = 900
"""Milliseconds that its tasks may take, and its sink again."""


class Driver(DriverQuery, Query):
    """One query through all its runs in one JVM."""

    REAL_TIME = False

    def __init__(
        self,
        name: str,
        env: Environment,
        variant: Variant,
        settings: Settings,
        source: Source,
        sink: Sink,
        restore: ev.Restore | None = None,
        query: SimulatedQuery = SUM_ALONE,
    ) -> None:
        self.process = DriverProcess(name, env, variant, settings, self)
        self.idle = False
        self.damaged = False
        """Whether the query ended because of damage."""
        self._env = env
        self._source = source
        self._sink = sink
        self._restore = restore
        self._made = self._asked_at = 0
        self._folder = CheckpointFolder(query, source.lists)
        self._position = Position()
        self._uids: dict[int, str] = {}
        self._planned: dict[int, bytes] = {}
        self._attempt: Attempt | None = None
        self._acks: list[Ack | Decline] = []
        self._late: int | None = None
        self._stops = StopRequests(env)
        self._finishing = False
        self._state_questions = StateQuestions(self.process)
        self._executors = Executors(env, StorageClient(env, self, variant.settle), name, self, variant.compare, variant.handles_told)

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def sleeps_until(self) -> int:
        return self.process.sleeps_until

    def start(self) -> None:
        self._made += 1
        self._asked_at = self._env.clock.now
        self._attempt = self._late = None
        self.process.announcements.forget_pending()
        nonce, local = f"{self.name}-{self._made}", self._folder.paths
        again = self.process.started is not None
        query, operators = self._folder.query, OperatorChoice(may_drop=True)
        asked = ev.StartRequested("q", query.job, local, nonce, self.name, hooks=HOOKS, operators=operators, planned=query.planned)
        found = replace(asked, forgetful=self._source.forgetful, sink_seen=self._sink.seen, restore=self._restore)
        self.process.ask(replace(found, spark_run_id=self.name, again=again, real_time=self.REAL_TIME))

    def answer(self, event: ev.Event) -> None:
        """The executors' way to the storage asks nothing that the driver is told."""

    def resume_request(self, started: do.Started) -> ev.ResumeRequested:
        self._stops.forget()
        at = self._position
        hooks = HOOKS, states_of(at.sealed, at.end)
        return ev.ResumeRequested(started.run, started.claim, at.triggered, self._source.forgetful, at.sealed, self._folder.resent, *hooks)

    def tell_hook(self, i: do.TellHooks) -> None:
        if i.completed and i.epoch > self._env.world.reached(self._env.world.log.claim(self._claim), self._env.clock.now + 1):
            raise ViolationError(Invariant.COMPLETED_STORED, f"{self.name} tells its hook of epoch {i.epoch}, which is not durable")
        if i.completed:
            self._env.publication.completed(self.name, i.epoch)

    def _in_log(self, epoch: int) -> int:
        """What went with epochs up to which is in the log, once the trigger of `epoch` is answered."""
        return epoch

    def acks_in_hand(self) -> list[Ack | Decline]:
        return self._acks

    # --- what the protocol says

    def hear(self, i: Instruction) -> None:
        """An answer to what is not asked any more is left alone."""
        if isinstance(i, do.Resumed):
            self._env.observed[Observed.RESUMED] += 1
        elif isinstance(i, do.Started) and isinstance(self.process.open, ev.StartRequested):
            self._begin(i)
        elif isinstance(i, do.Triggered) and isinstance(self.process.open, ev.TriggerRequested):
            self.process.open = None
            self._folder.planned(self._in_log(i.epoch))
            self._state_questions.clear()
            self._folder.check_begins(self.process.started, i)
            self._run_epoch(i.base, Barrier(i.checkpoint, i.late, frozenset(i.sparse)), i.version)
        elif isinstance(i, (do.HandOver, do.HandedOver, do.NotHandedOver)):
            self._state_questions.answered(i)
        elif isinstance(i, do.Late):
            self._want_late(i)
        elif isinstance(i, do.Stopping):
            self._stops.take(i)
        elif isinstance(i, do.Failed):
            self._fail(i)
        elif isinstance(i, do.Sealed) and isinstance(self.process.open, ev.SealRequested):
            self._sealed()
        elif isinstance(i, do.Finished) and isinstance(self.process.open, ev.FinishRequested):
            self._finished(i)
        elif isinstance(i, do.Refused) and not isinstance(self.process.open, ev.StopRequested):
            self._refused(i)
        elif isinstance(i, do.Stopped):
            self.process.stopped = True
            self.process.die("stopped")

    def _refused(self, i: do.Refused) -> None:
        if i.kind is ErrorKind.LOST and self._in_background:
            self._go_back(i.message)
            return
        if i.request is RequestName.SEAL and i.kind is ErrorKind.LOST:
            self.process.open = None
            self._env.observed[Observed.RERUN_IN_PLACE] += 1
            assert self._attempt is not None
            self._run_epoch(self._attempt.base, self._attempt.barrier, self._attempt.version)
            return
        if i.request is RequestName.FINISH:
            self._env.observed[Observed.NOT_FINISHED] += 1
            if self._stops.met and i.kind is not ErrorKind.FENCED:
                self._stops.refused()
                self.process.open = None  # without its savepoint the query goes on
                self.process.soon(self._next_epoch)
                return
            if i.kind is not ErrorKind.FENCED:
                self.process.ask(ev.StopRequested(failed=True))
                return
        if i.request is RequestName.START and i.kind in (ErrorKind.MISSING, ErrorKind.DAMAGED, ErrorKind.CONFLICT):
            self._check_refused(i)
        if i.kind is ErrorKind.INTERNAL:
            raise ViolationError(Invariant.MACHINE, f"{self.name}: {i.message}")
        if i.kind is ErrorKind.FENCED and not self.process.fenced:
            self._env.observed[Observed.FENCED] += 1
        elif i.kind is not ErrorKind.FENCED:
            self._env.observed[Observed.FAILED] += 1
        self.process.die(f"{i.request.name} refused, {i.kind.name}: {i.message}")

    def _check_refused(self, i: do.Refused) -> None:
        """Only a choice can be refused, one that was made before and not carried out, a start that others were always faster than, or one
        that damage leaves nothing to go on from."""
        if "log grew" in i.message or "was cut short" in i.message:
            return
        if "older than what the stream's log is sure to hold" in i.message and not (self._restore and self._restore.discard):
            self._env.observed[Observed.CHOICE_REFUSED] += 1
            return
        world = self._env.world
        if world.damage or world.damage.gone_at >= self._asked_at:
            self._env.observed[Observed.DAMAGE_REFUSED] += 1
            self.damaged = True
            return
        if world.stranded and i.kind is ErrorKind.DAMAGED:
            self._env.observed[Observed.STRANDED] += 1
            raise StrandedError(i.message)
        if self._restore is None:
            raise ViolationError(Invariant.PROGRESS, f"{self.name} cannot start: {i.message}")
        of_another = self._restore.path == ELSEWHERE and "belongs to another stream" in i.message
        if i.kind is ErrorKind.CONFLICT and not self._env.world.log.renumbered and not of_another:
            raise ViolationError(Invariant.PROGRESS, f"{self.name} cannot restore {self._restore.path}: {i.message}")
        self._env.observed[Observed.CHOICE_REFUSED] += 1

    def _begin(self, i: do.Started) -> None:
        before = self._env.world.log.claim_before(i.claim)
        if self.process.started and before and before.spark_run_id != self.name:
            raise ViolationError(Invariant.FENCED_STOPS, f"{self.name} takes the stream back from run {before.run}, which had claimed it")
        self.process.started = i
        self._stops.begin(i.run)
        self.process.open = None
        self.process.objects = set()
        fetched = self.process.client.fetched
        self._folder.replace({path: fetched[c] if isinstance(c, FileHandle) else c for path, c in i.files.items()})
        self._planned = {plan.epoch: plan.offsets for plan in i.planned}
        self._env.observed[Observed.STARTED] += 1
        if i.origin is None:  # else that is announced
            self.process.announcements.completed_epoch = i.epoch - 1
        self._executors.forget()
        self._state_questions.begin()
        wrong = self._folder.wrong(i, self._env.begins)
        if wrong is not None:
            raise ViolationError(Invariant.FILES_RIGHT, f"{self.name} {wrong}")
        end = Span.decode(self._folder[offsets_file(i.epoch - 1)]).end if i.origin else self._env.begins
        self._env.publication.restore(self.name, i, end)
        self._position = Position(i.epoch, end, i.epoch, i.origin.epoch if i.origin else -1)
        self._uids = uids_of(self._folder[commits_file(i.epoch - 1)]) if i.origin else {}
        if i.rerun:
            self._env.observed[Observed.RERUN] += 1
            self._run_epoch(i.origin, Barrier(i.gate is Gate.EPOCH, None), i.version)
        else:
            self._next_epoch()

    # --- one epoch after the other

    def _next_epoch(self) -> None:
        """Plan: what was planned before as it was, else whatever the source has now."""
        if self._env.chance(self._env.faults.stop, Observed.STOPPED):
            self._finishing = self._in_background and self._env.rng.random() < 0.5
            self.process.ask(ev.FinishRequested() if self._finishing else ev.StopRequested(failed=False))
            return
        if self._finishing:
            self.process.ask(ev.FinishRequested() if self._in_background else ev.StopRequested(failed=False))
            return
        planned = self._planned.pop(self._position.epoch, None)
        if planned is None and self._stops.is_open:
            self._end_with_savepoint()
            return
        if planned is None and self._position.end >= self._source.available:
            self.idle = True
            self.process.soon(partial(self._look_again, self._made), 20)
            return
        self._plan(planned or self._next_span().encode())

    def _next_span(self) -> Span:
        return Span(self._position.end, min(self._source.available, self._position.end + self._env.rng.randrange(1, LARGEST_EPOCH + 1)))

    def _plan(self, offsets: bytes, drain: bool = False) -> None:
        at = self._position
        at.triggered = at.epoch
        self.process.ask(ev.TriggerRequested(at.epoch, offsets, self._folder.plan(at.epoch, offsets), drain))

    def _look_again(self, made: int) -> None:
        """Not if the query has gone back meanwhile."""
        if made != self._made:
            return
        self.idle = False
        self._next_epoch()

    def _run_epoch(self, base: CheckpointId | None, barrier: Barrier, version: int | None) -> None:
        assert self.process.started is not None
        self._stops.check_goes_on()
        self._folder.write_schemas(self._position.epoch)
        span = self._span_in_hand()
        self._acks = []
        goes_on_from = self._position.epoch if version is None else version
        pace = self._env.rng.randrange(1, LONGEST_EPOCH) if self._env.chance(self._env.faults.long, Observed.LONG) else 0
        how = barrier, goes_on_from, self._folder.query.sum, pace
        attempt = Attempt(self.process.started.run, self._position.epoch, span, base, dict(self._uids), *how)
        self._attempt = attempt
        self._executors.run_tasks(attempt, list(range(PARTITIONS)))
        if self._env.chance(self._env.faults.task_failure, Observed.TASK_FAILED):
            self.process.soon(self._task_failed, self._env.rng.randrange(0, 40))
        if self._env.chance(self._env.faults.executor_loss):
            self.process.soon(lambda: self._lose_executor(attempt), self._env.rng.randrange(0, 60))

    def _span_in_hand(self) -> Span:
        return Span.decode(self._folder[offsets_file(self._position.epoch)])

    def _task_failed(self) -> None:
        """The query ends; what was asked last may be unanswered."""
        self._attempt = None
        self.process.ask(ev.StopRequested(failed=True))

    def _fail(self, i: do.Failed) -> None:
        """The protocol gives up, while the query runs or waits for data."""
        self._env.observed[Observed.NOT_TOLERATED] += 1
        self._env.tell(f"{self.name} has to fail, {i.kind.name}: {i.message}")
        if not isinstance(self.process.open, (ev.StartRequested, ev.StopRequested)):
            self._task_failed()

    # --- the end of `AvailableNow`

    def finish(self) -> None:
        """There will be no more input."""
        self._finishing = True

    def stop_and_delete(self) -> None:
        """A person stops the query, whatever it is doing, and wants its checkpoints deleted."""
        self._attempt = None
        self.process.ask(ev.StopRequested(failed=False, delete=True))

    @property
    def end(self) -> int:
        """How far the query has run its input."""
        return self._position.end

    @property
    def lag(self) -> int:
        """How long ago the oldest epoch was sealed that no completed checkpoint holds."""
        behind = [time for epoch, time in self._position.sealed_at.items() if epoch > self.process.announcements.completed_epoch]
        if not behind:
            return 0
        if self._env.pressed_at < min(behind):
            return self._env.clock.now - min(behind)
        # A spool that filled up since may have given up what the epoch in hand has replaced: its end is waited for, and counts.
        return self._env.clock.now - max(behind) if self.idle else 0

    def _end_with_savepoint(self) -> None:
        """After the last epoch, which a drain adds: one without input."""
        if self._stops.drains(self._position.epoch):
            self._plan(Span(self._position.end, self._position.end).encode(), drain=True)
        else:
            self.process.ask(self._stops.finish())

    def _finished(self, i: do.Finished) -> None:
        request = self.process.open  # if it asks for no stop, the query ends by itself, whatever becomes of people's requests
        asked = isinstance(request, ev.FinishRequested) and request.stopping
        if asked and i.savepoint not in self._env.world.savepoints:
            raise ViolationError(Invariant.SAVEPOINT, f"{self.name} ends as asked with the savepoint {i.savepoint}, which is not there")
        self._env.observed[Observed.FINISHED] += 1
        durable = self._env.world.reached(self._env.world.log.claim(self._claim), self._env.clock.now + 1)
        if durable < self._position.epoch - 1:
            raise ViolationError(Invariant.COVERED, f"{self.name} ends after epoch {self._position.epoch - 1}, durable is {durable}")
        if self.process.announcements.completed_epoch < self._position.epoch - 1:
            raise ViolationError(Invariant.COVERED, f"{self.name} ends, nobody was told that epoch {self._position.epoch - 1} is durable")
        self.process.ask(ev.StopRequested(failed=False))

    def _write_batch(self, attempt: Attempt) -> None:
        """The sink's commit; `commits/N` is another step."""
        if attempt is not self._attempt or attempt.written or len(attempt.winners) < PARTITIONS:
            return
        attempt.written = True
        rows = tuple(attempt.winners[p].value for p in range(PARTITIONS))
        self._sink.add_batch(attempt.epoch, (attempt.span, rows), self.name)
        self._env.publication.stage(self.name, attempt.epoch, (attempt.span, rows))
        self.process.soon(lambda: self._seal(attempt))

    def _seal(self, attempt: Attempt) -> None:
        if attempt is self._attempt:
            hooks = states_of(attempt.epoch, attempt.span.end)
            self.process.ask(ev.SealRequested(attempt.epoch, commit_of(attempt), self._folder.seal(attempt.epoch), hooks))

    def _sealed(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        self.process.open = self._attempt = None
        self._uids = {p: commit.uid for p, commit in attempt.winners.items()}
        self._folder.commit(attempt.epoch, commit_of(attempt))
        completed = self.process.announcements.completed_epoch
        self._position.seal(attempt.epoch, attempt.span.end, completed, self._env.clock.now)
        self._env.ended[attempt.run] = attempt.epoch
        self.process.soon(self._next_epoch)

    # --- what executors say

    def acknowledge(self, ack: Ack | Decline) -> None:
        self._acks.append(ack)
        self.process.signal(ack, self.process.coordinator)

    def holding(self, executor: Executor, report: Report) -> None:
        self._state_questions.look_who_lives()
        if executor.name not in self._state_questions.gone:
            self.process.give(ev.HoldingReceived(executor.name, report.held, report.bytes), self.process.coordinator)
        if self._late is not None:
            executor.late(self._late)
        for uid in self._state_questions.of(sorted(report.held)):
            executor.handover(uid)
        if self._state_questions.is_open:
            executor.idle = -1
        if executor.joined:
            executor.covered = self.process.announcements.completed_epoch

    def joins(self, executor: Executor) -> None:
        self._state_questions.joined(executor)

    def ask_for_state(self, uid: str, epoch: int) -> Answer | None:
        return self._state_questions.ask(uid, epoch)

    def events_to_repeat(self) -> list[ev.Event]:
        return self._state_questions.events_to_repeat()

    def check(self, i: Instruction) -> None:
        """State that is lost: no living executor has it, and no agent of a dead one had left its ack when that was looked for. Of an epoch
        whose next one has ended nobody needs it any more, and its checkpoint may be given up for the newer one."""
        if not isinstance(i, do.NotHandedOver) or i.reason is not HandoverFailure.LOST:
            return
        self._env.observed[Observed.STATE_LOST] += 1
        holder = self._executors.holder(i.uid)
        if holder is not None:
            raise ViolationError(Invariant.LOST_IS_GONE, f"{self.name} takes {i.uid} for lost, {holder.name} holds it")
        looked_at = self.process.client.looked_at
        for left, ack in self._env.world.left_of(i.uid):
            if ack.epoch + 1 >= self._position.epoch and left < looked_at.get((ack.run, ack.epoch), self._env.clock.now):
                raise ViolationError(Invariant.LOST_IS_GONE, f"{self.name} takes {i.uid} for lost, {ack.executor} had left its ack")

    def _want_late(self, i: do.Late) -> None:
        if self.process.started and i.run == self.process.started.run:
            self._late = i.epoch
            self._env.observed[Observed.LATE] += i.epoch is not None

    def tasks_done(self, attempt: Attempt) -> None:
        self.process.soon(lambda: self._write_batch(attempt), self._env.rng.randrange(attempt.pace) if attempt.pace else None)

    def current(self, attempt: Attempt) -> bool:
        return attempt is self._attempt and not attempt.written

    def state_gone(self, checkpoint: CheckpointId | None, missing: str | None) -> None:
        world = self._env.world
        of_damage = missing in world.damage.objects or missing in world.damage.collected
        damaged_meanwhile = of_damage or checkpoint in world.damage.metadata
        went_back = bool(world.log.claim(self._claim).bad)  # past one that is damaged, to what may just have been deleted
        if not world.log.superseded(self._claim) and not damaged_meanwhile and not went_back:
            raise ViolationError(
                Invariant.ORIGIN_LOADS, f"{self.name}, which is not fenced, cannot load {checkpoint}: {missing or 'no _metadata'}"
            )
        self._env.observed[Observed.LOAD_FENCED] += not damaged_meanwhile
        self.damaged = self.damaged or damaged_meanwhile
        self.process.give(ev.DamageReported(missing, checkpoint, "missing or damaged"), self.process.coordinator)
        self.process.soon(lambda: self.process.die("its state is gone"), 200)

    def state_lost(self, attempt: Attempt, partition: int) -> None:
        """Back to the last checkpoint, in the same query: a new run of it."""
        if not self._in_background:
            raise ViolationError(Invariant.STATE_RIGHT, f"{self.name} lost partition {partition} of epoch {attempt.epoch - 1}")
        self._go_back(f"partition {partition} of epoch {attempt.epoch - 1} is lost")

    def _go_back(self, why: str) -> None:
        self._env.observed[Observed.WENT_BACK] += 1
        self._env.tell(f"{self.name} goes back in place: {why}")
        self.start()

    # --- losses

    def _lose_executor(self, attempt: Attempt) -> None:
        """Some are told that they will go."""
        n = self._env.rng.randrange(EXECUTORS)
        host = self._executors.hosts[n]
        if self._env.rng.random() < LEAVING:
            self._env.observed[Observed.EXECUTOR_LEFT] += 1
            host.evacuate()
            self.process.soon(lambda: self._executor_ends(n, host, attempt), self._env.rng.randrange(LONGEST_LEAVE))
        else:
            self._executor_ends(n, host, attempt)

    def _executor_ends(self, n: int, host: Executor, attempt: Attempt) -> None:
        """Tasks that had not finished run elsewhere; what had finished counts, wherever its snapshot is."""
        if self._executors.hosts[n] is not host:
            return
        dead, partitions = self._executors.lose(n)
        if self._env.rng.random() < LOSS_MISSED:
            self._env.observed[Observed.LOSS_MISSED] += 1
        else:
            self._env.clock.after(self._env.delay(), partial(self._state_questions.lost, dead.name))
        if self.current(attempt):
            unfinished = [p for p in range(PARTITIONS) if p not in attempt.winners]
            again = [p for p in partitions if p in attempt.winners] if self._env.rng.random() < 0.5 else []
            for p in again:
                attempt.winners.pop(p)
            if again or unfinished:
                self._executors.run_tasks(attempt, sorted({*again, *unfinished}))

    @property
    def _in_background(self) -> bool:
        return self.process.started is not None and self.process.started.gate is Gate.BACKGROUND

    @property
    def _claim(self) -> int:
        assert self.process.started is not None
        return self.process.started.claim
