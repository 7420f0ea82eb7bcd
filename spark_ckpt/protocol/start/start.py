"""The beginning of a run: tail, job, checkpoints, claim, materialise - in this order."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import DriverFiles, offsets_file
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.machine import Machine, Story, Tickets, leads
from spark_ckpt.protocol.retention.planned_files import objects_by_entry
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.admission import Admission
from spark_ckpt.protocol.start.beginning import Beginning
from spark_ckpt.protocol.start.candidates import Candidates
from spark_ckpt.protocol.start.claiming import Claiming, claim_of
from spark_ckpt.protocol.start.last_run import LastRun, LastRunReader
from spark_ckpt.protocol.start.log_read import LogRead
from spark_ckpt.protocol.start.phases import StartOrder, StartPhase, Step
from spark_ckpt.protocol.start.planned_before import driver_files_of
from spark_ckpt.protocol.start.plans import PlansPast
from spark_ckpt.protocol.start.recovery import GivenUpError, Recovery
from spark_ckpt.protocol.start.restoring import Restoring
from spark_ckpt.protocol.start.round import Round

ROUNDS = 20

_SILENT = (StartPhase.NEW, StartPhase.DONE, StartPhase.REFUSED)
_At = StartPhase
_ONWARD = (_At.VERIFYING, _At.READING_METADATA, _At.FETCHING, _At.READING_PLANS, _At.CLAIMING, _At.LOCATING)
"""What follows from a checkpoint that was looked at; LOCATING where `StartOrder` looks for the tail once more."""
_CHOOSING = (_At.READING_RESTORE_PATH, *_ONWARD)
_CHOSEN = (_At.READING_ITS_PLAN, _At.READING_METADATA, _At.VERIFYING, _At.FETCHING, _At.COPYING, _At.DESCRIBING, _At.REFUSED)
"""What a person chose is looked at. REFUSED: the start is asked for once more when its schemas are compared."""

_METADATA_KNOWN = leads("_answered", _At.COPYING, _At.DESCRIBING, _At.REFUSED, *_ONWARD)


@dataclass(frozen=True)
class StartParts:
    """What a start is made of, for each of its rounds anew. The simulation gives some in which a rule is left out."""

    order: type[StartOrder] = StartOrder
    admission: type[Admission] = Admission
    candidates: type[Candidates] = Candidates
    restoring: type[Restoring] = Restoring
    plans: type[PlansPast] = PlansPast
    claiming: type[Claiming] = Claiming


class Start(Machine):
    """Ends in phase DONE with `beginning` set, or REFUSED. Somebody else's claim at our number: begin again, at most `ROUNDS` times.

    Questions are its parts', and each takes the answers to its own. `settings`: what the claim to come says of them is what its run does.
    """

    def __init__(self, request: ev.StartRequested, tickets: Tickets, story: Story, settings: Settings, parts: StartParts) -> None:
        super().__init__(StartPhase.NEW, tickets, story)
        self.beginning: Beginning | None = None
        self._request = request
        self._settings = settings
        self._parts = parts
        self._recovery = Recovery(self, RequestName.START, StartPhase.CONFIRMING, StartPhase.REFUSED)
        self._rounds = 0

    # Made anew for each round: when it begins, when the last run is known, when the origin is.
    _steps: list[Step]
    _log: LogRead
    _round: Round
    _candidates: Candidates
    _restoring: Restoring
    _plans: PlansPast

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        return self._recovery.carry_out(functools.partial(super().handle, event, now_ms))

    def _answered(self, event: ev.Answer) -> list[Instruction]:
        """Handed to the part that asked."""
        return self.questions.answer(event)

    # --- beginning, and beginning again

    def begin(self, now_ms: int) -> list[Instruction]:
        self.now_ms = now_ms
        self._rounds += 1
        if self._rounds > ROUNDS:
            raise GivenUpError(
                ErrorKind.CONFLICT,
                f"the stream is in use: its log grew {ROUNDS} times while this query tried to start; stop the other query that runs on the "
                "same checkpointLocation",
            )
        self._log = LogRead(self._recovery)
        self._steps = list(self._parts.order().steps())
        return self._next_step()

    @property
    def tail(self) -> int:
        return self._log.tail

    def moved_on(self, _event: ev.PastSeen) -> list[Instruction]:
        return self.begin(self.now_ms)

    def overtaken(self) -> list[Instruction]:
        return self.begin(self.now_ms)

    # --- step by step

    def _next_step(self) -> list[Instruction]:
        if not self._steps:
            return self._append_claim()
        step = self._steps.pop(0)
        if step is Step.TAIL:
            return LastRunReader(self._recovery, self._log, self._found).begin()
        if self._round.last.living is None:
            return self._restoring.begin() or self._candidates.choose()
        return self._candidates.find(lambda: self._restoring.read_behind(self._restore))

    def _found(self, last: LastRun) -> list[Instruction]:
        if Step.CHECKPOINTS in self._steps:
            self._round = Round(self._request, self._settings, self._recovery, self._log, last)
            self._candidates = self._parts.candidates(self._round, self._origin_known)
            self._restoring = self._parts.restoring(self._round, self._candidates)
        elif self._round.last.claim in (None, last.claim):  # the order looks for the tail once more
            self._round = replace(self._round, last=last)
        else:
            return self.begin(self.now_ms)
        told = self._parts.admission(self._request).admit(last)
        if last.claim is None:
            return self._recovery.ask(StartPhase.CHECKING_STORAGE, do.CheckStorage, lambda _: self._next_step())
        return [*told, *self._next_step()]

    def _restore(self) -> list[Instruction]:
        return self._restoring.begin() or self._candidates.read_all(self._candidates.choose)

    def _origin_known(self, origin: Checkpoint | None) -> list[Instruction]:
        admission, last = self._parts.admission(self._request), self._round.last.living
        admission.admit_hooks(origin)
        if origin is not None:
            return self._restoring.changed(origin, self._find_plans)
        if last is not None and last.job.operators != self._request.job.operators:
            self._round.notes.append("the stream has no checkpoint yet, and its query has other stateful operators now: it begins anew")
        return self._find_plans(None)

    def _find_plans(self, origin: Checkpoint | None) -> list[Instruction]:
        self._plans = self._parts.plans(self._round, self._candidates, self._restoring, origin, self._next_step)
        return self._plans.begin()

    def _append_claim(self) -> list[Instruction]:
        claim = claim_of(self._round, self._candidates, self._restoring, self._plans, self.now_ms)
        return self._parts.claiming(self, self._recovery, claim, self._restoring.copy).begin()

    def claimed(self, claim: Claim, stored_ms: int | None) -> list[Instruction]:
        self.phase = StartPhase.DONE
        origin, first = self._plans.origin, self._plans.first
        following = self._plans.following
        epoch = following if first is None else first
        plans = tuple(replace(plan, claim=claim.claim, run=claim.run, rerun=True) for plan in self._plans.again)
        # One that no log entry has yet is triggered like any other, so that it gets one.
        adopts_first = bool(plans) and plans[0].epoch in self._plans.adopted.values()
        plan, planned_before = (plans[0], plans[1:]) if adopts_first else (None, plans)
        files = DriverFiles(driver_files_of(origin, epoch, len(claim.job.sources)))
        files.apply(self._plans.listed)
        if plan:
            files.apply({**self._plans.files_again(plan), offsets_file(plan.epoch): plan.offsets})
            files.take_changes()
        self.beginning = Beginning(
            claim,
            claim.claim + 1,
            origin,
            tuple(sorted(self._candidates.read.values(), key=lambda c: (c.log, c.id))),
            files,
            epoch,
            plan,
            # Nothing is appended for the first that runs again: Spark does not trigger it once more, and the claim has just fenced it.
            {plan.epoch: claim.claim} if plan else {},
            planned_before,
            self._restoring.not_inherited,
            planned=objects_by_entry(self._log.entries),
            floor=claim.floor,
            stored_ms=stored_ms,
            hooks=self._request.hooks,
            real_time=self._plans.settings.real_time,
        )
        started = do.Started(
            claim.run,
            claim.claim,
            origin.id if origin else None,
            epoch,
            plan is not None,
            self.now_ms,
            files.as_mapping(),
            planned_before,
            restored=claim.restored.path if claim.restored else None,
            version=None if first is None else following,
            taken_over=self._taken_over,
            hooks=origin.hooks if origin else {},
            begins=origin.begins if origin else (),
            real_time=self._plans.settings.real_time,
        )
        return [*self._warnings, started]

    @property
    def _warnings(self) -> list[Instruction]:
        last = self._round.last.claim
        known = frozenset(last.bad if last else ())
        instead = dict.fromkeys(self._plans.newer, ", the one before it is restored")
        damaged = [
            f"checkpoint run {c.run} epoch {c.epoch} is damaged and left out{instead.get(c, '')}: {why}"
            for c, why in sorted(self._candidates.bad.items())
            if c not in known
        ]
        drain = self._restoring.drain_among(self._plans.again)
        return [do.Log(do.Level.WARN, warning) for warning in (*damaged, *self._round.notes, *([drain] if drain else []))]

    @property
    def _taken_over(self) -> Claim | None:
        """The last claim, if it is another application's."""
        last, mine = self._round.last.living, self._request.application
        if last is None:
            return None
        same = last.application is None or mine is None or last.application.id == mine.id
        return None if same and last.host == self._request.host else last

    TABLE: ClassVar = {
        (_At.LOCATING, ev.TailLocated): leads("_answered", _At.READING_TAIL, _At.CHECKING_STORAGE),
        (_At.READING_TAIL, ev.EntryRead): leads("_answered", _At.READING_CLAIM, _At.LISTING, _At.LOCATING, *_CHOOSING),
        (_At.READING_CLAIM, ev.EntryRead): leads("_answered", _At.LISTING, _At.LOCATING, *_CHOOSING),
        (_At.CHECKING_STORAGE, ev.StorageChecked): leads("_answered", *_CHOOSING),
        (_At.LISTING, ev.CheckpointsListed): leads("_answered", _At.READING_BEHIND, *_CHOOSING),
        (_At.READING_BEHIND, ev.EntryRead): leads("_answered", *_CHOOSING),
        (_At.READING_RESTORE_PATH, ev.RestorePathRead): leads("_answered", _At.DATING, *_CHOSEN),
        (_At.DATING, ev.EntriesDated): leads("_answered", *_CHOSEN),
        (_At.READING_ITS_PLAN, ev.EntryRead): leads("_answered", *_CHOSEN),
        (_At.READING_METADATA, ev.MetadataRead): _METADATA_KNOWN,
        (_At.VERIFYING, ev.ObjectsVerified): leads("_answered", _At.DESCRIBING, _At.REFUSED, *_ONWARD),
        (_At.FETCHING, ev.FilesFetched): leads("_answered", _At.COPYING, _At.DESCRIBING, _At.REFUSED, *_ONWARD),
        (_At.DESCRIBING, ev.OperatorsDescribed): leads("_answered", _At.COPYING, _At.REFUSED, *_ONWARD),
        (_At.CONFIRMING, ev.PastSeen): leads("_answered", _At.LOCATING),
        (_At.READING_PLANS, ev.EntryRead): leads("_answered", *_ONWARD),
        (_At.COPYING, ev.ObjectsImported): leads("_answered", *_ONWARD),
        (_At.CLAIMING, ev.EntryPut): leads("_answered", _At.LOOKING_PAST),
        (_At.CLAIMING, ev.EntryRead): leads("_answered", _At.LOOKING_PAST, _At.LOCATING),
        (_At.LOOKING_PAST, ev.PastSeen): leads("_answered", _At.IMPORTING, _At.DONE),
        (_At.IMPORTING, ev.MetadataPut): leads("_answered", _At.DONE),
        (_At.IMPORTING, ev.MetadataRead): leads("_answered", _At.DONE),
        **{(phase, ev.ReadFailed): leads("_answered") for phase in StartPhase if phase not in _SILENT},
        (_At.READING_METADATA, ev.ReadFailed): _METADATA_KNOWN,  # of what is known to be damaged it need not be
    }
