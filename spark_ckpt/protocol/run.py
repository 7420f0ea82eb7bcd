"""One run of a stream: epochs and their checkpoints, from the claim to the last entry.

Two gates. Where every epoch is a checkpoint, an epoch's end waits for it, and there is never more than one in the making; in the interval
mode epochs follow each other without waiting, and checkpoints complete in the background. Everything else is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from spark_ckpt.errors import ErrorKind, without_way_out
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.pending import FinishedEpoch, PendingCheckpoint
from spark_ckpt.protocol.checkpoints.pending_checkpoints import PendingCheckpoints
from spark_ckpt.protocol.checkpoints.policy import CheckpointPolicy
from spark_ckpt.protocol.checkpoints.savepoint_queue import NO_DRAIN, NOT_IN_REAL_TIME, SavepointQueue
from spark_ckpt.protocol.checkpoints.stats import Summary
from spark_ckpt.protocol.checkpoints.trigger import CheckpointTrigger
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.driver_files import commits_file
from spark_ckpt.protocol.driver_folder import DriverFolder
from spark_ckpt.protocol.ending import Ending, kept, nothing_deleted
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, Plan, Request
from spark_ckpt.protocol.epoch import EpochInHand
from spark_ckpt.protocol.handover import StateHandover
from spark_ckpt.protocol.instructions import Announcement, Gate, Instruction, Level, RequestName
from spark_ckpt.protocol.log import RunLog, named
from spark_ckpt.protocol.machine import Machine, Story, Tickets
from spark_ckpt.protocol.planning import Planning
from spark_ckpt.protocol.reasons import AbortReason, HandoverFailure
from spark_ckpt.protocol.retention.completed import CompletedCheckpointStore
from spark_ckpt.protocol.retention.deletion import Deletions
from spark_ckpt.protocol.retention.log_trim import LogTrim
from spark_ckpt.protocol.retention.sparse_packs import sparse_packs
from spark_ckpt.protocol.retention.subsumption import Subsumption
from spark_ckpt.protocol.run_phases import OVER, STOPPED, TABLE, RunPhase, why_kept
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.beginning import Beginning
from spark_ckpt.protocol.start.recovery import damaged_message, fenced_message
from spark_ckpt.protocol.start.start import StartParts
from spark_ckpt.protocol.timers import Timers

_END_UNKNOWN = "the stream's end could not be noted in its log, or it is not known whether it is there"


@dataclass(frozen=True)
class Parts:
    """What a start and a run are made of. The simulation gives some in which a rule is left out, and must then find what it prevents."""

    start: StartParts = field(default_factory=StartParts)
    deletions: type[Deletions] = Deletions
    store: type[CompletedCheckpointStore] = CompletedCheckpointStore
    subsumption: type[Subsumption] = Subsumption
    trim: type[LogTrim] = LogTrim
    log: type[RunLog] = RunLog
    policy: type[CheckpointPolicy] = CheckpointPolicy
    epoch: type[EpochInHand] = EpochInHand
    checkpoints: type[PendingCheckpoints] = PendingCheckpoints
    ending: type[Ending] = Ending
    handover: type[StateHandover] = StateHandover
    savepoints: type[SavepointQueue] = SavepointQueue
    planning: type[Planning] = Planning


class Run(Machine):
    """Begins with what `Start` or `Resume` found out."""

    def __init__(self, beginning: Beginning, settings: Settings, gate: Gate, tickets: Tickets, story: Story, parts: Parts) -> None:
        super().__init__(RunPhase.RUNNING if beginning.plan else RunPhase.IDLE, tickets, story)
        self.context = context = Context(beginning.claim, settings, gate, self.questions, beginning.hooks)
        self.epoch = parts.epoch(beginning)
        self._timers = Timers(self.questions)
        self._executors = Executors()
        self._subsumption = parts.subsumption(context, beginning, parts.deletions, parts.store, self.let_go)
        planned, deleted = self._subsumption.deletions.planned, self._subsumption.deleter.has_deleted
        self.folder = DriverFolder(self, beginning.claim.run, beginning.files, self.questions, planned, deleted)
        self._savepoints = parts.savepoints(beginning.claim.run, self.questions, self.proceed)
        policy = parts.policy(context, self._timers, self.proceed)
        self._checkpoints = parts.checkpoints(
            self, context, self._timers, self._executors, self.folder, self._subsumption, policy, self._savepoints
        )
        self._checkpoint_trigger = CheckpointTrigger(
            self, context, self.epoch, self._executors, self._subsumption, policy, self._savepoints, self._checkpoints, self._timers
        )
        self.handover = parts.handover(context, self._executors, self._checkpoints, self._subsumption)
        trim = parts.trim(beginning.claim.run, planned, settings.log_kept_ms, settings.trim_every, self.questions, self.let_go)
        self._log = parts.log(self, context, self._timers, self.folder, self._subsumption.deletions, trim, beginning)
        self._planning = parts.planning(self, context, self.epoch, self.folder, self._log)
        self._ending = parts.ending(self, context, self._log)
        self._replaced = beginning.replaced
        self._failure = (ErrorKind.INTERNAL, "")
        self._last_summary: Summary | None = None
        """Of the checkpoint for which the driver waited last."""

    def begin(self, now_ms: int) -> list[Instruction]:
        """What a new run does first."""
        self.now_ms = self.context.now_ms = self.epoch.asked_ms = now_ms
        running = self.phase is RunPhase.RUNNING
        if self._replaced is not None:
            self._subsumption.take_over(max(self.last_triggered, self._replaced.in_hand))
        if running:
            self._subsumption.loads_from_base(self.epoch.number)
        self._checkpoints.subsume(self._subsumption.store.cut())
        self._checkpoints.ended = max([self.epoch.highest_planned, *self.claim.adopted_past(-1).values()])
        stands = self._checkpoints.tell_again() if self._replaced else []
        taken_over = [*self._take_over(), *self._turn_away_lost(), *stands, *self._checkpoint_trigger.watch()]
        taken_over += self._planning.take_over(self._replaced)
        rests = [] if running or self._log.line else self._log.rest()
        if self.context.waits_for_checkpoints:
            begun = self._checkpoint_trigger.begin(self.epoch.number, now_ms, pressure=False) if running else []
            return [*taken_over, *begun, *rests]
        if self._replaced is None:
            return [*taken_over, *self._checkpoint_trigger.policy.begin(), *(self._watch() if running else []), *rests]
        self._checkpoint_trigger.take_over(self._replaced.sealed)
        # In at-least-once the driver may be past an epoch whose plan is lost, and with it the driver's files that went with that plan: the
        # query goes back, and what it goes back to must not be made without these files.
        at_least_once = self.claim.ahead > 0 and not self._planning.real_time
        ahead = at_least_once and not running and self._replaced.in_hand > self._replaced.sealed
        if self._replaced.sealed > self._subsumption.completed_epoch and not ahead:
            self._checkpoints.finished = self._finished_epoch(self._replaced.sealed, self._replaced.hooks)
        # Nothing is bridged while the epoch in hand runs, however long: which of the driver's files are only its own is not known.
        return [*taken_over, *(self._watch() if running and self._planning.real_time else []), *rests, *self.proceed()]

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        self.context.now_ms = now_ms
        return super().handle(event, now_ms)

    # --- what others may look at

    @property
    def claim(self) -> Claim:
        return self.context.claim

    @property
    def base(self) -> CheckpointId | None:
        """The newest completed checkpoint."""
        return self._subsumption.base

    @property
    def completed(self) -> tuple[CheckpointId, ...]:
        return self._subsumption.store.ids

    @property
    def making(self) -> tuple[int, ...]:
        """Epochs whose checkpoints are in the making and count against `maxConcurrent`."""
        return self._checkpoints.making

    # --- what its parts ask

    @property
    def last_triggered(self) -> int:
        """The newest epoch that was triggered, or is about to be."""
        return self.epoch.number - 1 if self.phase is RunPhase.IDLE else self.epoch.number

    @property
    def lowest_entry(self) -> int | None:
        complete, pending = self._subsumption.lowest_entry, self._checkpoints.lowest_entry
        return complete if complete is None or pending is None else min(complete, pending)

    @property
    def base_is_known(self) -> bool:
        return self.base is not None

    def let_go(self) -> list[Instruction]:
        """Large files of the driver that nothing names any more. After the run's end a `_metadata` may be there, or yet land, that names
        what is not remembered any more."""
        if self.phase is RunPhase.FENCED or self._ending.forgotten:
            return []
        held = self.folder.objects | self.folder.unstored | self._log.objects | self._checkpoints.driver_objects
        return self._subsumption.let_go(held)

    def files_stored(self) -> list[Instruction]:
        return [*self._log.files_stored(), *self._checkpoints.finalise_all()]

    def file_refused(self, message: str) -> list[Instruction]:
        return self.plan_failed(ErrorKind.STORAGE, f"a file of the driver could not be stored: {message}")

    # --- a new coordinator

    def _take_over(self) -> list[Instruction]:
        """What a coordinator that has died had taken in with the last seal: a content has the name that it had for that one."""
        return self.folder.take_in(self._replaced.unplanned, self.last_triggered) if self._replaced else []

    def _turn_away_lost(self) -> list[Instruction]:
        """A coordinator that this one replaced took these up. Where it answered, that answer stays: answers are put if absent."""
        message = "the coordinator was replaced before it met the request; ask again"
        lost = self._replaced.requests if self._replaced else ()
        return [answer for number, request in lost for answer in self._savepoints.refuse(number, request, message)]

    # --- trigger

    def _trigger(self, event: ev.TriggerRequested) -> list[Instruction]:
        if event.epoch != self.epoch.number:
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        self.phase = RunPhase.PLANNING
        if event.drain and not self._savepoints.wants_drain:
            return self.plan_failed(ErrorKind.DECLINED, NO_DRAIN)
        self.epoch.asked_ms = self.now_ms
        appended = self._planning.begin(event)
        if self.phase in OVER:  # no plan can be stored that no reader would take
            return appended
        if self._planning.may_go:
            return [*appended, *self._go()]
        return [*appended, *self._timers.set(ev.Timer.PLAN, self.context.settings.timeout_ms, self._plan_timed_out)]

    def _trigger_again(self, event: ev.TriggerRequested) -> list[Instruction]:
        """Sent again because the coordinator that got it first died."""
        if not self.epoch.is_asked_again(event):
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        return [*self._planning.again(event), self._barrier()]

    def plan_stored(self, plan: Plan, number: int) -> list[Instruction]:
        self.epoch.stored(plan.epoch, number)
        instructions = self._go() if self.phase is RunPhase.PLANNING and self._planning.may_go else []
        if not self._log.line and self.is_quiet:
            instructions += self._log.rest()
        instructions += self._checkpoints.planned(plan.epoch, self.epoch.log(plan.epoch))
        return instructions + self._subsumption.appended(number, self._checkpoints.named)

    def plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        announced: list[Instruction] = []
        if self.context.waits_for_checkpoints and not self._checkpoints.pending:
            failed = Summary(self.claim.run, self.epoch.number, self.epoch.asked_ms, reason=AbortReason.PLAN_FAILURE.value, message=message)
            announced.append(do.Announce(Announcement.ABORTED, failed))
        return [*announced, *self.fail(kind, message)]

    def _plan_timed_out(self, _event: ev.TimerFired) -> list[Instruction]:
        waited = f"within {self.context.settings.timeout_ms} ms (spark.ckpt.timeout)"
        why = self._log.cause or "no answer"
        return self.plan_failed(ErrorKind.TIMEOUT, f"{named(self._log.line[0])} could not be stored {waited}: {why}")

    def _go(self) -> list[Instruction]:
        """The epoch may run. Whether it is a checkpoint is decided now."""
        self.phase = RunPhase.RUNNING
        self.epoch.plan_ms = self.now_ms - self.epoch.asked_ms
        self.epoch.losses = self._executors.losses
        self._subsumption.loads_from_base(self.epoch.number)
        self.handover.forget_before(self.epoch.number - 1)
        begun = self._checkpoint_trigger.begin(self.epoch.number, self.epoch.asked_ms, pressure=True)
        return [*self._timers.cancel(ev.Timer.PLAN), *self._watch(), self._barrier(), *begun]

    def _barrier(self) -> Instruction:
        number, newest = self.epoch.number, self._subsumption.store.newest
        checkpoint = self._checkpoints.of(number) is not None
        version, late = self.epoch.version(self.claim), self._checkpoints.late
        sparse = sparse_packs(newest.snapshots) if checkpoint and newest else ()
        given = (checkpoint, late.epoch if late else None, version, sparse, self.epoch.begins)
        return do.Triggered(self.claim.run, number, self.base, self.now_ms, *given)

    def _watch(self) -> list[Instruction]:
        """An epoch begins to run, or runs on."""
        if self.context.waits_for_checkpoints:
            return []
        return self._timers.set(ev.Timer.LONG, self._checkpoint_trigger.policy.long_ms, self._runs_long)

    def _runs_long(self, _event: ev.TimerFired) -> list[Instruction]:
        looks, alike = self.epoch.is_long or self._log.line, self._planning.real_time
        self.epoch.runs_long()
        return [*self.proceed(), *([] if looks else self._log.look()), *(self._watch() if alike else [])]

    # --- when a checkpoint begins

    @property
    def is_quiet(self) -> bool:
        return self.phase is RunPhase.IDLE or (self.phase is RunPhase.RUNNING and self.epoch.is_long)

    def proceed(self, pressure: bool = False) -> list[Instruction]:
        return self._checkpoint_trigger.proceed(pressure)

    def idle(self, _event: ev.TimerFired) -> list[Instruction]:
        if self._log.line or not self.is_quiet:
            return []
        return [*self.proceed(pressure=True), *self._log.look()]

    # --- seal

    def _seal(self, event: ev.SealRequested) -> list[Instruction]:
        if event.epoch != self.epoch.number:
            return self._seal_again(event)
        puts = self._planning.end(event)
        if self.phase in OVER:
            return [*puts, *self._refuse_seal(event)]
        self.folder.files.apply({commits_file(event.epoch): event.commit})
        self.folder.files.forget_before(event.epoch - 1)
        self.epoch.forget_before(event.epoch)
        before, finished = self._checkpoints.finished, self._finished_epoch(event.epoch, event.hooks)
        self._checkpoints.finish(finished)
        p = self._checkpoints.of(event.epoch)
        if self.context.waits_for_checkpoints:
            self.phase = RunPhase.SEALED
            return [*puts, *(self._checkpoint_trigger.seal(p, finished, before) if p else [])]
        self.epoch.ended()
        self.phase = RunPhase.IDLE
        sealed = [do.Sealed(None, self._checkpoints.lag), *puts, *self._timers.cancel(ev.Timer.LONG), *self._log.stop_looking()]
        rests = [] if self._log.line else self._log.rest()
        ends = self._checkpoints.bridges_end(f"epoch {event.epoch} has ended first")
        if p is not None:
            return [*sealed, *rests, *ends, *self._checkpoint_trigger.seal(p, finished, before)]
        if finished.unfit:
            ends.append(do.Log(Level.WARN, f"epoch {event.epoch} cannot become a checkpoint: {finished.unfit}"))
        return [*sealed, *rests, *ends]

    def _seal_again(self, event: ev.SealRequested) -> list[Instruction]:
        """Sent again because the coordinator that answered it died; or that one let the epoch run before its plan was stored."""
        newest, number = self._subsumption.store.newest, self.epoch.number
        if self.context.waits_for_checkpoints:
            known = newest is not None and newest.id == CheckpointId(self.claim.run, event.epoch)
            if newest is None or not known or newest.files.get(commits_file(event.epoch)) != event.commit:
                return [self._out_of_order(RequestName.SEAL, event.epoch)]
            summary = self._last_summary or Summary(newest.id.run, newest.id.epoch, newest.time_ms, full_bytes=newest.size)
            return [do.Sealed(summary.to_json())]
        if event.epoch == number and self._replaced is not None and self.claim.ahead:
            message = f"the plan of epoch {event.epoch} was lost with the coordinator; the query has to go back to its last checkpoint"
            return [do.Refused(RequestName.SEAL, ErrorKind.LOST, message)]
        if event.epoch != number - 1 or self.folder.files.get(commits_file(event.epoch)) != event.commit:
            return [self._out_of_order(RequestName.SEAL, event.epoch)]
        return [do.Sealed(None, self._checkpoints.lag)]

    def _finished_epoch(self, epoch: int, given: ev.HookStates) -> FinishedEpoch:
        """`commits/N` is among the driver's files."""
        files = self.folder.files.as_mapping()
        commit = files.get(commits_file(epoch))
        ended = FinishedEpoch.of(epoch, commit, self.epoch.asked_ms, files, self.epoch.losses, self._checkpoints.finished)
        return replace(ended, hooks=self.context.hooks.stored(given), declined=self.context.hooks.declined(epoch, given))

    def checkpoint_completed(self, p: PendingCheckpoint, summary: Summary) -> list[Instruction]:
        if self.phase is not RunPhase.SEALED or p.epoch != self.epoch.number:
            return []
        self._last_summary = summary
        self.epoch.ended()
        self.phase = RunPhase.IDLE
        return [do.Sealed(summary.to_json()), *self._log.rest()]

    def checkpoint_aborted(self, p: PendingCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        finished = self._checkpoints.finished
        if self.phase is RunPhase.SEALED and reason is AbortReason.LOST:
            # The epoch runs again in place, under the same plan: the acks of this attempt count no more.
            self._checkpoints.begin(p.epoch, p.log, self.now_ms, p.plan_ms)
            self.epoch.losses = self._executors.losses
            self.phase = RunPhase.RUNNING
            return [do.Refused(RequestName.SEAL, kind, message)]
        if self._savepoints.finishing is None or finished is None or p.epoch != finished.epoch:
            return []
        self._savepoints.finishing = None
        return [do.Refused(RequestName.FINISH, kind, message)]

    # --- what executors say

    def _acks(self, event: ev.AcksReceived) -> list[Instruction]:
        return [*self._checkpoints.acknowledge(event.acks), *self.handover.acknowledged(event.acks)]

    def _decline(self, event: ev.DeclineReceived) -> list[Instruction]:
        return [*self._checkpoints.decline(event.decline), *self.handover.declined(event.decline)]

    def _holding(self, event: ev.HoldingReceived) -> list[Instruction]:
        dropped = self._executors.holds(event.executor, event.held, event.bytes)
        return self.handover.reported(dropped)

    def _state_wanted(self, event: ev.StateWanted) -> list[Instruction]:
        return self.handover.want(event)

    def _executors_lost(self, event: ev.ExecutorsLost) -> list[Instruction]:
        return [*self._checkpoints.executors_lost(event.executors), *self.handover.executors_lost()]

    def _damage_reported(self, event: ev.DamageReported) -> list[Instruction]:
        bad = self._subsumption.registry.hit_by(event.checkpoint, event.object)
        if not bad:
            return [do.Log(Level.ERROR, f"state could not be loaded: {event.cause}")]
        cause = without_way_out(event.cause)
        damage = Damage(self.claim.claim, self.claim.run, tuple(sorted(bad | set(self.claim.bad))), cause, self._log.floor)
        message = damaged_message(damage, self.claim)
        self._subsumption.deleter.keep_rest()
        refused = [*self._refuse_open(ErrorKind.DAMAGED, message), do.Log(Level.ERROR, message)]
        return [*self._over(RunPhase.REPORTING, ErrorKind.DAMAGED, message), *refused, *self._ending.note_damage(damage)]

    # --- people's requests, and the end in good order

    def taken_up(self, number: int, entry: Entry) -> list[Instruction]:
        if not isinstance(entry, Request):
            return [do.Log(Level.WARN, f"log entry {number} is a {type(entry).__name__.lower()} that this run did not write")]
        if entry.drain and self._planning.real_time:
            return self._savepoints.refuse(number, entry, NOT_IN_REAL_TIME)
        return self._savepoints.take(number, entry, self._checkpoints.ended, self._subsumption.store.newest)

    def _finish(self, event: ev.FinishRequested) -> list[Instruction]:
        finished = self._checkpoints.finished
        if finished is not None and finished.unfit:
            kind = ErrorKind.DAMAGED if finished.problem else ErrorKind.DECLINED
            refused = do.Refused(RequestName.FINISH, kind, f"the last epoch cannot become a checkpoint: {finished.unfit}")
            return [*self._savepoints.cannot_finish(event, finished.epoch, finished.unfit), refused]
        if self.phase is not RunPhase.IDLE or self._savepoints.finishing:
            message = f"finish came while epoch {self.epoch.number} was in hand; please report it"
            return [do.Refused(RequestName.FINISH, ErrorKind.INTERNAL, message)]
        self._savepoints.finish(event)
        return self.proceed()

    # --- the ends

    def fail(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """Nothing is deleted: what was uploaded is the successor's garbage."""
        announced = self._checkpoints.tell_stopped("the query failed")
        refused = self._refuse_open(kind, message)
        return [*self._over(RunPhase.FAILED, kind, message), *refused, *announced, do.Failed(kind, message)]

    def fenced(self, number: int, entry: Entry | None) -> list[Instruction]:
        """Listeners are told nothing: the stream is somebody else's. The query ends, also if it asks for nothing."""
        if entry is None:
            message = f"log entry {number} was written by a release this one cannot read; run {self.claim.run} stops"
        else:
            message = fenced_message(self.claim, number, entry)
        self._subsumption.deletions.append_failed(number)
        refused = self._refuse_open(ErrorKind.FENCED, message)
        over = self._over(RunPhase.FENCED, ErrorKind.FENCED, message)
        return [*over, *refused, do.Failed(ErrorKind.FENCED, message), *self._ending.stopped_meanwhile(why_kept(self.phase))]

    def damage_noted(self, *said: Instruction) -> list[Instruction]:
        self.phase = RunPhase.FAILED
        return [*said, *self._ending.stopped_meanwhile(why_kept(self.phase))]

    def _stop(self, event: ev.StopRequested) -> list[Instruction]:
        message = f"the query stopped while epoch {self.epoch.number} was in hand"
        refused = self._refuse_open(ErrorKind.INTERNAL, message)
        announced = self._checkpoints.tell_stopped(message)
        if not event.delete or event.failed or self.phase in OVER:
            stays = kept(event, why_kept(self.phase))
            return [*self._over(RunPhase.STOPPED, ErrorKind.CONFLICT, STOPPED), *refused, *announced, *stays, do.Stopped()]
        in_hand = self._replaced.in_hand if self._replaced and self.claim.ahead else -1
        before = self.claim.used if self.claim.used is not None else -1
        used = max(before, self.last_triggered, in_hand, self.epoch.highest_planned)
        self._ending.going = self._subsumption.everything(self._checkpoints.finalising, self._checkpoints.named | self.folder.unstored)
        over = self._over(RunPhase.ENDING, ErrorKind.CONFLICT, STOPPED)
        return [*over, *refused, *announced, *self._ending.note_end(End(self.claim.claim, self.claim.run, used, self._log.floor))]

    def _stop_after_report(self, event: ev.StopRequested) -> list[Instruction]:
        """Without the note the next start would load the same damage: the query's stop waits for it."""
        self._ending.stop = event
        return []

    def end_noted(self, noted: bool) -> list[Instruction]:
        """Once the end is in the log, nobody will ask for these checkpoints: all go."""
        if not noted:
            self.phase = RunPhase.STOPPED
            return [nothing_deleted(_END_UNKNOWN), do.Stopped()]
        self.phase = RunPhase.ENDED
        return self.all_landed()

    def all_landed(self) -> list[Instruction]:
        """Rule: `_metadata` that is on its way would land after its deletion, which waits until every put is answered."""
        if self.phase is not RunPhase.ENDED or self._ending.landing:
            return []
        self.phase = RunPhase.STOPPED
        return [*self._subsumption.deleter.delete(self._ending.going, at_last=True), do.Stopped()]

    def _over(self, phase: RunPhase, kind: ErrorKind, message: str) -> list[Instruction]:
        """What is in the making is given up. Deletions are waited for, answers to people, and of what ends the stream the puts of
        `_metadata`. A run that is fenced answers nobody."""
        self.phase = phase
        self._failure = (kind, message)
        self._ending.await_puts(self._checkpoints.unanswered)
        self._ending.forgotten = self._ending.forgotten or bool(self._checkpoints.finalising)
        self._checkpoints.give_up_all()
        given_up = [*self._timers.cancel_all(), *self.handover.close(message)]
        closed = self._savepoints.close("the run ended before it met the request; ask again when the query runs")
        self._log.trim.end()
        landing = self._ending.landing if phase is RunPhase.ENDING else ()
        answering = self._savepoints.answering if phase is not RunPhase.FENCED else ()
        self.questions.forget_all(but=[*self._subsumption.deleter.open, self._log.trim.deletion, *landing, *answering])
        return given_up if phase is RunPhase.FENCED else [*given_up, *closed]

    def _refuse_open(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The requests that wait for an answer."""
        waiting = {RunPhase.PLANNING: RequestName.TRIGGER, RunPhase.SEALED: RequestName.SEAL}.get(self.phase)
        finish = RequestName.FINISH if self._savepoints.finishing else None
        return [do.Refused(request, kind, message) for request in (waiting, finish) if request is not None]

    def _out_of_order(self, request: RequestName, epoch: int) -> Instruction:
        message = f"{request.value} of epoch {epoch} came while epoch {self.epoch.number} was due; please report it"
        return do.Refused(request, ErrorKind.INTERNAL, message)

    def _refuse_trigger(self, _event: ev.TriggerRequested) -> list[Instruction]:
        return [do.Refused(RequestName.TRIGGER, *self._failure)]

    def _refuse_seal(self, _event: ev.SealRequested) -> list[Instruction]:
        return [do.Refused(RequestName.SEAL, *self._failure)]

    def _refuse_finish(self, _event: ev.FinishRequested) -> list[Instruction]:
        return [do.Refused(RequestName.FINISH, *self._failure)]

    def _refuse_state(self, event: ev.StateWanted) -> list[Instruction]:
        return [do.NotHandedOver(event.uid, HandoverFailure.DECLINED, self._failure[1])]

    def _answered(self, event: ev.Answer) -> list[Instruction]:
        """Handed to the part that asked."""
        return self.questions.answer(event)

    TABLE: ClassVar = TABLE
