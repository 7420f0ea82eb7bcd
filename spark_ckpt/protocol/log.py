"""A run's dealings with the log: the plans that stand in line, looks while nothing is appended, and what else turns up there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.driver_folder import DriverFolder
from spark_ckpt.protocol.durable_put import DurablePut, Known, put_entry
from spark_ckpt.protocol.entries import Entry, Files, Plan, encode, entry_in, is_request
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Then
from spark_ckpt.protocol.retention.deletion import Deletions
from spark_ckpt.protocol.retention.log_trim import LogTrim, is_sure
from spark_ckpt.protocol.start.beginning import Beginning
from spark_ckpt.protocol.timers import Timers


class LogOwner(Protocol):
    """The run, as its log sees it."""

    @property
    def lowest_entry(self) -> int | None:
        """That a start from any checkpoint, complete or in the making, would read; None: all of them."""

    @property
    def base_is_known(self) -> bool:
        """Whether a checkpoint is complete."""

    def plan_stored(self, plan: Plan, number: int) -> list[Instruction]: ...

    def plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The run cannot go on."""

    def fenced(self, number: int, entry: Entry | None) -> list[Instruction]:
        """That entry is not the run's own. None: it cannot be read."""

    def taken_up(self, number: int, entry: Entry) -> list[Instruction]:
        """An entry under the run's own claim that it did not write: a request of a person. Its number is used up."""

    def proceed(self, pressure: bool = False) -> list[Instruction]:
        """Something changed."""

    def idle(self, event: ev.TimerFired) -> list[Instruction]:
        """Nothing was appended for a while."""


def named(plan: Plan) -> str:
    return f"{'the record' if plan.real_time else 'the plan'} of epoch {plan.epoch}"


def changes_beside(plan: Plan, other: Plan) -> Files:
    """What a plan says of the driver's files, and another one does not."""
    return {path: content for path, content in plan.files.items() if path not in other.files or other.files[path] != content}


class RunLog:
    """Plans stand in a line, the first of which is being appended. `trim`: the passes over old entries."""

    def __init__(
        self,
        owner: LogOwner,
        context: Context,
        timers: Timers,
        folder: DriverFolder,
        deletions: Deletions,
        trim: LogTrim,
        beginning: Beginning,
    ) -> None:
        self.next_number = beginning.next_number
        self.floor = beginning.floor
        """What lies below it nobody asks for any more."""
        self.line: deque[Plan] = deque()
        self.may_run_ahead = context.claim.origin is not None
        """Rule: without a checkpoint there is no state that could go on under new numbers, so every number must be accounted for.

        One of the run's own counts when an append that was issued after its completion has succeeded: (1) a successor lists, and finds
        none; (2) this run completes its first, and an epoch runs ahead of its plan; (3) the successor claims, and gives out its number.
        """
        self.trim = trim
        self._owner = owner
        self._context = context
        self._timers = timers
        self._folder = folder
        self._deletions = deletions
        self._stored_ms = beginning.stored_ms
        self._put: DurablePut | None = None
        self._issued_with_base = False
        self._waits = False
        """The first in line waits for large files that it names."""
        self._look: int | None = None
        self._trim_ms: int | None = None

    # --- plans

    @property
    def ahead(self) -> int:
        """So many epochs may run whose plan is not stored yet."""
        return self._context.settings.ahead if self.may_run_ahead and not self._context.waits_for_checkpoints else 0

    def may_go(self, epoch: int, logged: bool) -> bool:
        """Rule: no epoch runs that is more than `ahead` past the newest one that is in the log. `logged`: this one is."""
        stands = logged or any(plan.epoch == epoch for plan in self.line)
        return len(self.line) + (not stands) <= self.ahead

    @property
    def cause(self) -> str:
        """Why the first in line is not stored."""
        return self._put.cause if self._put else self._folder.cause

    @property
    def objects(self) -> frozenset[str]:
        """What the plans in line name."""
        return frozenset[str]().union(*(plan.objects for plan in self.line))

    def append(self, plan: Plan) -> list[Instruction]:
        stopped = self.stop_looking()
        self.line.append(plan)
        return [*stopped, *(self._next() if len(self.line) == 1 else [])]

    def files_stored(self) -> list[Instruction]:
        """The first in line may have waited for it."""
        return self._next() if self._waits else []

    def _next(self) -> list[Instruction]:
        """All that a plan names is durable before it is put."""
        plan = self.line[0]
        self._put = None
        self._waits = self._folder.awaits(plan.files.values())
        if self._waits:
            return []
        self.floor = self._next_floor
        self.line[0] = plan = replace(plan, floor=self.floor)
        try:
            data = encode(plan)
        except FormatError as error:
            return self._owner.plan_failed(ErrorKind.STORAGE, f"{named(plan)} could not be stored: {error}")
        number = self.next_number
        self._issued_with_base = self._owner.base_is_known
        self._deletions.append_issued(number)
        self._put = put_entry(self._context.questions, number, data, self._known, is_ours=partial(self._is_ours, number))
        return self._put.begin()

    @property
    def _next_floor(self) -> int:
        """It never falls: what the entry before said, which may be stored, holds."""
        lowest = self._owner.lowest_entry
        return self.floor if lowest is None else max(self.floor, lowest)

    def _is_ours(self, number: int, data: bytes) -> bool:
        """A coordinator that this one replaced may have put it, with another floor."""
        entry = entry_in(number, data)
        return isinstance(entry, Plan) and entry.claim == self._context.claim.claim and entry.same_data(self.line[0])

    def _known(self, known: Known, event: ev.EntryPut | ev.EntryRead) -> list[Instruction]:
        if known is Known.STORED and isinstance(event, ev.EntryPut):
            return self._appended(event.stored_ms)
        if known is Known.STORED:
            assert isinstance(event, ev.EntryRead)
            entry = entry_in(event.number, event.data)
            assert isinstance(entry, Plan)
            self._carry(changes_beside(self.line[0], entry))
            self.line[0], self.floor = entry, max(self.floor, entry.floor)
            return self._appended(None)
        if known is Known.TAKEN:
            assert isinstance(event, ev.EntryRead)
            return self._taken(entry_in(event.number, event.data))
        return self._owner.plan_failed(ErrorKind.STORAGE, f"{named(self.line[0])} could not be stored: {self.cause}")

    def _carry(self, changes: Files) -> None:
        """What the entry that was found does not say of the driver's files. Rule: the next one says it."""
        if len(self.line) > 1:
            self.line[1] = replace(self.line[1], files={**changes, **self.line[1].files})
        else:
            self._folder.files.carry(changes)

    def _taken(self, entry: Entry | None) -> list[Instruction]:
        """Another entry is where the plan was to go. A record that a coordinator which this one replaced had sent may land at any moment:
        it says what this one knows, or has recorded before it."""
        number, claim = self.next_number, self._context.claim.claim
        late = isinstance(entry, Plan) and entry.real_time and entry.claim == claim
        if entry is None or not (late or is_request(entry, claim)):
            return self._owner.fenced(number, entry)
        taken = self._take_up(number, entry)
        self._deletions.append_failed(number)
        return [*taken, *self._next(), *self._owner.proceed()]

    def _take_up(self, number: int, entry: Entry) -> list[Instruction]:
        self.next_number = number + 1
        return self._owner.taken_up(number, entry)

    def _appended(self, stored_ms: int | None) -> list[Instruction]:
        """The run's own plan is there. `stored_ms`: since when, None where the put's answer was lost."""
        before, self._stored_ms = self._stored_ms, stored_ms
        sure = self.is_sure(before)
        # Of a storage whose clock jumps one date may be wrong: what is deleted on the strength of it rests on two.
        self._trim_ms = min(before, stored_ms) if before is not None and stored_ms is not None and sure else None
        return self._stored() if sure else self.look_past(self.next_number, self._past_seen, self._past_not_seen)

    def is_sure(self, before_ms: int | None) -> bool:
        """Rule: a run that slept looks past what it has appended."""
        return is_sure(before_ms, self._stored_ms, self._context.settings.log_kept_ms)

    def look_past(
        self, number: int, seen: Callable[[int | None, Entry | None], list[Instruction]], failed: Then, attempt: int = 0
    ) -> list[Instruction]:
        """Whether an entry of the run's own stands at the log's end, or in a hole that others have left behind them. `seen` takes the
        first entry past it that is no request to the run; None: there is none."""

        def answered(event: ev.PastSeen) -> list[Instruction]:
            if event.found is None:
                return seen(None, None)
            entry = entry_in(event.found, event.data)
            return self.look_past(event.found, seen, failed) if is_request(entry, self._context.claim.claim) else seen(event.found, entry)

        return [self._context.questions.ask(lambda ticket: do.LookPast(ticket, number, attempt), answered, failed)]

    def _past_seen(self, found: int | None, entry: Entry | None) -> list[Instruction]:
        return self._stored() if found is None else self._owner.fenced(found, entry)

    def _past_not_seen(self, event: ev.ReadFailed) -> list[Instruction]:
        """Put again, which shows that it is there, and look past it once more."""
        assert self._put is not None
        self._put.cause = event.message
        return self._put.insist()

    def _stored(self) -> list[Instruction]:
        plan, number = self.line.popleft(), self.next_number
        self._put = None
        self.next_number = number + 1
        self.may_run_ahead = self.may_run_ahead or self._issued_with_base
        self._deletions.planned.add(number, plan.objects)
        stored = self._owner.plan_stored(plan, number)
        following = self._next() if self.line else []
        return [*stored, *following, *self.trim.begin(number, plan.floor, self._trim_ms)]

    # --- looks

    def look(self) -> list[Instruction]:
        """Nobody appends while the stream is idle, so a successor or a request is noticed by looking. Of two looks the later one counts:
        what the earlier one finds may be this run's own entry by the time that it is told."""
        self._context.questions.forget(self._look)
        asked = self._context.questions.ask(lambda ticket: do.ReadEntry(ticket, self.next_number), self._looked, self._not_looked)
        self._look = asked.ticket
        return [asked]

    def stop_looking(self) -> list[Instruction]:
        self._context.questions.forget(self._look)
        self._look = None
        return self._timers.cancel(ev.Timer.IDLE)

    def rest(self) -> list[Instruction]:
        """Nothing is to be appended for now."""
        return self._timers.set(ev.Timer.IDLE, self._context.settings.idle_ms, self._owner.idle)

    def _looked(self, event: ev.EntryRead) -> list[Instruction]:
        self._look = None
        if event.data is None:
            return self.rest()
        entry = entry_in(event.number, event.data)
        if entry is None or entry.claim != self._context.claim.claim:
            return self._owner.fenced(event.number, entry)
        return [*self._take_up(event.number, entry), *self._owner.proceed(), *self.look()]

    def _not_looked(self, _event: ev.ReadFailed) -> list[Instruction]:
        self._look = None
        return self.rest()
