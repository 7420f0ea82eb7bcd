"""A coordinator takes the place of one that died in the middle of a run: everything is rebuilt from the log and the storage."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId, Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import DriverFiles, beside_state, is_numbered, offsets_file
from spark_ckpt.protocol.entries import Claim, Damage, Entry, Plan, Request, decode
from spark_ckpt.protocol.instructions import Gate, Instruction, RequestName
from spark_ckpt.protocol.machine import Machine, Story, Tickets, leads
from spark_ckpt.protocol.planning import begun
from spark_ckpt.protocol.retention.planned_files import objects_by_entry
from spark_ckpt.protocol.settings import REAL_TIME_AHEAD
from spark_ckpt.protocol.start.beginning import Beginning, Replaced
from spark_ckpt.protocol.start.log_read import LogRead
from spark_ckpt.protocol.start.planned_before import PlannedBefore, Reach, check_unbroken, driver_files_of, planned_before, reach
from spark_ckpt.protocol.start.recovery import GivenUpError, Recovery, damaged_message, fenced_message


class ResumePhase(Enum):
    NEW = "NEW"
    LOCATING = "LOCATING"
    READING_CLAIM = "READING_CLAIM"
    READING_TAIL = "READING_TAIL"
    LISTING = "LISTING"
    READING_METADATA = "READING_METADATA"
    CONFIRMING = "CONFIRMING"
    CHECKING = "CHECKING"
    """Whether the log has grown, since something is missing."""
    READING_PLANS = "READING_PLANS"
    DONE = "DONE"
    REFUSED = "REFUSED"


REQUESTS_BACK = 128
"""Log entries below a checkpoint's in which the request may stand for whose savepoint it is being copied: more than there may be plans in
line (`Settings.ahead`), of which a request takes the first one's number."""
MOST_BACK = 1000
"""The same below the newest checkpoint's, however old another one is that is still there: all of these are read."""
_SILENT = (ResumePhase.NEW, ResumePhase.DONE, ResumePhase.REFUSED)
_At = ResumePhase
_ONWARD = (_At.READING_PLANS, _At.CONFIRMING)


class Resume(Machine):
    """Ends in phase DONE with `beginning` set, or REFUSED. Appends nothing: the run goes on under its claim."""

    def __init__(self, request: ev.ResumeRequested, gate: Gate, tickets: Tickets, story: Story) -> None:
        super().__init__(ResumePhase.NEW, tickets, story)
        self.beginning: Beginning | None = None
        self._request = request
        self._gate = gate
        self._recovery = Recovery(self, RequestName.RESUME, ResumePhase.CHECKING, ResumePhase.REFUSED)
        self._log = LogRead(self._recovery)
        self._claim: Claim | None = None
        self._read: dict[CheckpointId, Checkpoint] = {}
        self._damaged: dict[CheckpointId, str] = {}

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        return self._recovery.carry_out(functools.partial(super().handle, event, now_ms))

    def _answered(self, event: ev.Answer) -> list[Instruction]:
        return self.questions.answer(event)

    @property
    def tail(self) -> int:
        return self._log.tail

    def begin(self, now_ms: int) -> list[Instruction]:
        self.now_ms = now_ms
        self._log = LogRead(self._recovery)
        self._read, self._damaged = {}, {}
        return self._log.locate(ResumePhase.LOCATING, self._tail_located)

    def _tail_located(self) -> list[Instruction]:
        if self.tail < self._request.claim:
            raise GivenUpError(
                ErrorKind.DAMAGED, f"claim {self._request.claim} of run {self._request.run} is not in the log; start the query again"
            )
        return self._log.read_one(ResumePhase.READING_TAIL, self.tail, self._tail_read)

    def _tail_read(self, entry: Entry) -> list[Instruction]:
        """A successor's: the run is fenced, and its claim may be gone."""
        if entry.claim != self._request.claim:
            raise GivenUpError(ErrorKind.FENCED, fenced_message(None, self.tail, entry))
        return self._log.read_one(ResumePhase.READING_CLAIM, self._request.claim, self._claim_read)

    def _claim_read(self, entry: Entry) -> list[Instruction]:
        if not isinstance(entry, Claim) or entry.run != self._request.run:
            raise GivenUpError(
                ErrorKind.DAMAGED, f"log entry {self._request.claim} is not the claim of run {self._request.run}; start the query again"
            )
        self._claim = entry
        return self._recovery.ask(ResumePhase.LISTING, lambda ticket: do.ListCheckpoints(ticket, entry.run), self._listed)

    def _listed(self, event: ev.CheckpointsListed) -> list[Instruction]:
        assert self._claim is not None
        known = [*event.found, *self._claim.inherits, *([self._claim.origin] if self._claim.origin else [])]
        wanted = list(dict.fromkeys(known))
        return self._recovery.ask_each(ResumePhase.READING_METADATA, wanted, do.ReadMetadata, self._metadata_read, self._all_read)

    def _metadata_read(self, event: ev.MetadataRead) -> None:
        if event.damage is not None:
            self._damaged[event.id] = event.damage
        if event.checkpoint is not None:
            self._read[event.id] = event.checkpoint

    def _all_read(self) -> list[Instruction]:
        """What the run goes on with has to be intact; an older one that is not is nobody's base, and is left out."""
        base = self._base
        for c, damage in sorted(self._damaged.items(), reverse=True):
            if base is None or (c.run, c.epoch) > (base.id.run, base.id.epoch):
                raise GivenUpError(ErrorKind.DAMAGED, f"checkpoint run {c.run} epoch {c.epoch} is damaged: {damage}")
        return self._read_plans()

    @property
    def _base(self) -> Checkpoint | None:
        """The newest that the run completed itself, else the one it began with."""
        assert self._claim is not None
        own = [c for c in self._read.values() if c.id.run == self._claim.run]
        origin = self._claim.origin
        return max(own, key=lambda c: c.log) if own else self._read.get(origin) if origin else None

    def _read_plans(self) -> list[Instruction]:
        assert self._claim is not None
        within, base = self._reach, self._base
        requests = range(max(self._claim.claim + 1, self._oldest_request(base, within.after)), within.after + 1)
        wanted = sorted({*requests, *within.numbers(base, self.tail)})
        # Below the floor stands an old request, if it was one.
        return self._log.read(ResumePhase.READING_PLANS, wanted, self._look_again, may_be_gone=lambda number: number < self._floor)

    def _oldest_request(self, base: Checkpoint | None, after: int) -> int:
        """Where requests may begin that wait. Rules: who asks for a checkpoint or a stop while that runs again which the claim has adopted
        waits for the last of it; what is being copied for a savepoint is there until it has been."""
        assert self._claim is not None
        if base is not None and base.id.epoch <= max(self._claim.adopted_past(-1).values(), default=-1):
            return self._claim.claim
        oldest = min((c.log for c in self._read.values()), default=after)
        return max(oldest + 1 - REQUESTS_BACK, after + 1 - MOST_BACK)

    @property
    def _reach(self) -> Reach:
        return reach(self._base, self._claim, self._claim)

    @property
    def _floor(self) -> int:
        return self._log.entries[self.tail].floor

    def _look_again(self) -> list[Instruction]:
        return self._recovery.ask(ResumePhase.CONFIRMING, lambda ticket: do.LookPast(ticket, self.tail), self._looked_again)

    def _looked_again(self, event: ev.PastSeen) -> list[Instruction]:
        """Right only if nobody has claimed since: a successor drops this run's checkpoints, maybe while they were read."""
        assert self._claim is not None
        if event.found is None:
            if self._base is None and self._had_one:
                raise GivenUpError(ErrorKind.MISSING, f"the checkpoints of run {self._claim.run} are gone; start the query again")
            return self._done()
        return self.moved_on(event)

    @property
    def _had_one(self) -> bool:
        """No run raises the floor before it has a checkpoint."""
        assert self._claim is not None
        return self._claim.origin is not None or self._floor > self._claim.floor

    def moved_on(self, event: ev.PastSeen) -> list[Instruction]:
        assert event.found is not None
        assert event.data is not None
        entry = decode(event.found, event.data)
        if entry.claim != self._request.claim:
            raise GivenUpError(ErrorKind.FENCED, fenced_message(self._claim, event.found, entry))
        return self.begin(self.now_ms)

    def _done(self) -> list[Instruction]:
        """Rule: nothing is appended behind damage that the run has noted, where the next start would not see it any more."""
        base = self._base
        for entry in self._log.entries.values():
            if isinstance(entry, Damage) and entry.claim == self._request.claim and self._claim is not None:
                raise GivenUpError(ErrorKind.DAMAGED, damaged_message(entry, self._claim))
        found = planned_before(self._log.entries, base, self.tail, self._claim, self._reach)
        check_unbroken(found, base.id if base else None)
        if self._request.real_time:
            self.beginning = self._in_real_time(base, found)
        else:
            self.beginning = self._in_the_background(base, found) if self._gate is Gate.BACKGROUND else self._every_epoch(base, found)
        self.phase = ResumePhase.DONE
        return [do.Resumed()]

    def _every_epoch(self, base: Checkpoint | None, found: PlannedBefore) -> Beginning:
        """The run's own plan past its newest checkpoint is the epoch in hand, unless the driver still waits for the seal of the one before
        (others may run again); the others have still to run."""
        assert self._claim is not None
        if found.first < self._request.epoch:
            raise GivenUpError(
                ErrorKind.MISSING,
                f"checkpoint run {self._claim.run} epoch {self._request.epoch - 1} was complete and is gone; start the query again",
            )
        plans = found.plans
        mine = bool(plans) and plans[0].epoch in self._numbers and plans[0].epoch <= self._request.epoch
        current = plans[0] if mine else None
        files = DriverFiles(driver_files_of(base, found.first, len(self._claim.job.sources)))
        files.apply(self._entries_sent)
        if current:
            files.apply({**self._files_of(current), offsets_file(current.epoch): current.offsets})
            files.take_changes()
        replaced = Replaced(self._requests, unplanned=self._unplanned(current))
        return self._beginning(files, found.first, current, plans[1:] if current else plans, replaced)

    def _in_the_background(self, base: Checkpoint | None, found: PlannedBefore) -> Beginning:
        """Epochs past the newest checkpoint may have finished, as the driver says; the one after them is in hand if it is planned."""
        assert self._claim is not None
        completed = found.first - 1
        sealed = max(self._request.sealed, completed)
        by_epoch = {plan.epoch: plan for plan in found.plans}
        lost = [epoch for epoch in range(completed + 1, sealed + 1) if epoch not in by_epoch]
        if lost:
            message = f"the plans of the epochs from {lost[0]} to {lost[-1]} were lost with the coordinator; start the query again"
            raise GivenUpError(ErrorKind.LOST, message)
        current = by_epoch.get(sealed + 1) if sealed + 1 in self._numbers else None
        files = DriverFiles(driver_files_of(base, found.first, len(self._claim.job.sources)))
        for plan in found.plans:
            if plan.epoch <= sealed:
                files.apply({**self._files_of(plan), offsets_file(plan.epoch): plan.offsets})
        files.take_changes()
        files.apply(self._entries_sent)
        if current is not None:
            files.apply({**self._files_of(current), offsets_file(current.epoch): current.offsets})
            files.take_changes()
        to_run = tuple(plan for plan in found.plans if plan.epoch > sealed and plan is not current)
        replaced = Replaced(self._requests, sealed, self._request.epoch, self._unplanned(current), self._request.sealed_hooks)
        return self._beginning(files, sealed + 1, current, to_run, replaced)

    def _in_real_time(self, base: Checkpoint | None, found: PlannedBefore) -> Beginning:
        """What epochs have read the log may not say yet, and the driver knows: it sends its newest `offsets/`. One that runs has no record,
        or one that says so."""
        assert self._claim is not None
        sealed = max(self._request.sealed, found.first - 1)
        records = [record for _, record in sorted(found.records.items())]
        files = DriverFiles(driver_files_of(base, found.first, len(self._claim.job.sources)))
        for record in records:
            files.apply(self._files_of(record))
        files.take_changes()
        files.apply(self._entries_sent)
        runs = self._request.running and self._request.epoch == sealed + 1
        current = begun(self._claim, sealed + 1) if runs else None
        said = {record.epoch for record in records if record.offsets}
        # So many may be on their way when a coordinator dies, and so many the driver sends.
        ended = range(max(found.first, sealed + 1 - REAL_TIME_AHEAD), sealed + 1)
        unrecorded = {epoch: self._entries_sent.get(offsets_file(epoch), b"") for epoch in ended if epoch not in said}
        replaced = Replaced(
            self._requests,
            sealed,
            self._request.epoch,
            self._unplanned(current),
            self._request.sealed_hooks,
            unrecorded,
        )
        return self._beginning(files, sealed + 1, current, (), replaced)

    def _files_of(self, plan: Plan) -> Mapping[str, Content | None]:
        """One that the run has adopted: as a start takes it."""
        assert self._claim is not None
        return plan.files if plan.claim == self._claim.claim else beside_state(plan.files)

    @property
    def _numbers(self) -> dict[int, int]:
        """Epochs that the run has planned -> the first entry that does: the claim for the first that runs again, which is adopted, and not
        appended. Others that are adopted it has still to append, each when it is triggered."""
        assert self._claim is not None
        entries = self._log.entries
        records = {n for n, entry in entries.items() if isinstance(entry, Plan) and entry.real_time}
        again = sorted(epoch for n, epoch in self._claim.adopted_past(-1).items() if n not in records)
        numbers = dict.fromkeys(again[:1], self._claim.claim)
        for n, entry in sorted(entries.items()):
            if isinstance(entry, Plan) and entry.claim == self._claim.claim:
                numbers.setdefault(entry.epoch, n)
        return numbers

    @property
    def _entries_sent(self) -> dict[str, bytes]:
        """The `offsets/` and `commits/` among what the driver has sent."""
        return {path: content for path, content in self._request.files.items() if is_numbered(path) and isinstance(content, bytes)}

    def _unplanned(self, current: Plan | None) -> ev.Changes:
        """All else, less what the plan of the epoch in hand holds. An epoch that runs again in place writes again nothing of what its first
        attempt has written."""
        planned = current.files if current else {}
        return {path: content for path, content in self._request.files.items() if not is_numbered(path) and path not in planned}

    def _beginning(self, files: DriverFiles, epoch: int, current: Plan | None, to_run: tuple[Plan, ...], replaced: Replaced) -> Beginning:
        assert self._claim is not None
        base = self._base
        known = sorted(self._read.values(), key=lambda c: (c.log, c.id))
        # What a person chose not to go on from is newer than what the run went on from.
        not_inherited = tuple(c for c in known if base is not None and c.log > base.log)
        inherited = tuple(c for c in known if c not in not_inherited)
        return Beginning(
            self._claim,
            self.tail + 1,
            base,
            inherited,
            files,
            epoch,
            current,
            self._numbers,
            to_run,
            not_inherited,
            replaced,
            objects_by_entry(self._log.entries),
            self._floor,
            hooks=self._request.hooks,
            real_time=self._request.real_time,
        )

    @property
    def _requests(self) -> tuple[tuple[int, Request], ...]:
        return tuple((n, entry) for n, entry in sorted(self._log.entries.items()) if isinstance(entry, Request))

    TABLE: ClassVar = {
        (_At.LOCATING, ev.TailLocated): leads("_answered", _At.READING_TAIL),
        (_At.READING_TAIL, ev.EntryRead): leads("_answered", _At.READING_CLAIM),
        (_At.READING_CLAIM, ev.EntryRead): leads("_answered", _At.LISTING),
        (_At.LISTING, ev.CheckpointsListed): leads("_answered", _At.READING_METADATA, *_ONWARD),
        (_At.READING_METADATA, ev.MetadataRead): leads("_answered", *_ONWARD),
        (_At.READING_PLANS, ev.EntryRead): leads("_answered", _At.CONFIRMING),
        (_At.CONFIRMING, ev.PastSeen): leads("_answered", _At.LOCATING, _At.DONE),
        (_At.CHECKING, ev.PastSeen): leads("_answered", _At.LOCATING),
        **{(phase, ev.ReadFailed): leads("_answered") for phase in ResumePhase if phase not in _SILENT},
    }
