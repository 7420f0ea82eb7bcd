"""What one run remembers, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.completed import CompletedCheckpointStore
from spark_ckpt.protocol.deletion import Batch, Deletions
from spark_ckpt.protocol.entries import Claim, Damage, Entry, Plan, decode
from spark_ckpt.protocol.executors import Executors
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level, RequestName
from spark_ckpt.protocol.machine import Machine, Story, Tickets
from spark_ckpt.protocol.pending import PendingCheckpoint
from spark_ckpt.protocol.reasons import AbortReason
from spark_ckpt.protocol.shared import SharedStateRegistry
from spark_ckpt.protocol.start import Beginning, fenced_message
from spark_ckpt.protocol.stats import Statistics, Summary, summary

FORGET_RELEASED = 10_000
"""How many released objects are remembered, to refuse acks that name one."""


@dataclass(frozen=True)
class Settings:
    """Durations in milliseconds. `deletions`: the rule of deletion (a test may give one with a part left out)."""

    retained: int = 3
    timeout_ms: int = 600_000
    grace_ms: int = 5_000
    idle_ms: int = 5_000
    deletions: Callable[[SharedStateRegistry], Deletions] = Deletions


class RunPhase(Enum):
    IDLE = "IDLE"
    """Between two epochs."""
    PLANNING = "PLANNING"
    """The epoch's plan is being appended."""
    RUNNING = "RUNNING"
    """The plan is durable, tasks run."""
    SEALED = "SEALED"
    """`commits/N` is known, acks are missing."""
    STORING = "STORING"
    """`_metadata` is being put."""
    READING_BACK = "READING_BACK"
    """It is unknown whether `_metadata` was put: read, compare, delete nothing."""
    REPORTING = "REPORTING"
    """Damage is being noted in the log."""
    ENDING = "ENDING"
    """The stream's end is being noted in the log."""
    FAILED = "FAILED"
    FENCED = "FENCED"
    STOPPED = "STOPPED"


OPEN_REQUEST = {
    RunPhase.PLANNING: RequestName.TRIGGER,
    RunPhase.SEALED: RequestName.SEAL,
    RunPhase.STORING: RequestName.SEAL,
    RunPhase.READING_BACK: RequestName.SEAL,
}
LIVE = (RunPhase.IDLE, RunPhase.PLANNING, RunPhase.RUNNING, RunPhase.SEALED, RunPhase.STORING, RunPhase.READING_BACK)
OVER = (RunPhase.REPORTING, RunPhase.ENDING, RunPhase.FAILED, RunPhase.FENCED, RunPhase.STOPPED)


class RunState(Machine):
    """The memory of a run, without the transitions."""

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(RunPhase.RUNNING if beginning.plan else RunPhase.IDLE, tickets, story)
        self.claim: Claim = beginning.claim
        self.statistics = Statistics()
        self._settings = settings
        self._next_number = beginning.next_number
        self._epoch = beginning.epoch
        self._recorded = {plan.epoch: plan for plan in beginning.recorded}
        self._files = beginning.files
        self._registry = SharedStateRegistry()
        for checkpoint in beginning.inherited:
            self._registry.register(checkpoint)
        self._store = CompletedCheckpointStore(settings.retained, beginning.inherited)
        self._deletions = settings.deletions(self._registry)
        self._failed_deletions: list[Batch] = []
        self._deleting: dict[int, Batch] = {}
        self._released: dict[str, None] = {}
        self._strays: dict[str, int] = {}
        self._executors = Executors()
        self._losses_seen = 0
        self._early: list[Ack] = []
        self._plan: Plan | None = beginning.plan
        self._plan_ms = 0
        self._asked_ms = 0
        self._pending: PendingCheckpoint | None = None
        self._checkpoint: Checkpoint | None = None
        self._last_summary: Summary | None = None
        self._timers: dict[ev.Timer, int] = {}
        self._look: int | None = None
        self._left: int | None = None
        self._cause = ""
        self._attempt = 0
        self._failure = (ErrorKind.INTERNAL, "")
        self._damage: Damage | None = None
        self._finalise_from = 0
        if beginning.plan:
            self._pending = self._new_pending(beginning.plan_number, beginning.claim.time_ms)

    # --- what others may look at

    @property
    def base(self) -> CheckpointId | None:
        """The newest completed checkpoint."""
        return self._store.newest.id if self._store.newest else None

    @property
    def completed(self) -> tuple[CheckpointId, ...]:
        return self._store.ids

    @property
    def registry(self) -> SharedStateRegistry:
        return self._registry

    # --- timers

    def _set(self, timer: ev.Timer, after_ms: int) -> list[Instruction]:
        cancelled = self._cancel(timer)
        self._timers[timer] = self.ticket()
        return [*cancelled, do.SetTimer(self._timers[timer], timer, after_ms)]

    def _cancel(self, *timers: ev.Timer) -> list[Instruction]:
        cancelled: list[Instruction] = []
        for timer in timers:
            ticket = self._timers.pop(timer, None)
            if ticket is not None:
                self.forget(ticket)
                cancelled.append(do.CancelTimer(ticket))
        return cancelled

    # --- the checkpoint in hand

    def _new_pending(self, number: int, triggered_ms: int) -> PendingCheckpoint:
        pending = PendingCheckpoint(CheckpointId(self.claim.run, self._epoch), number, triggered_ms)
        early, self._early = self._early, []
        for ack in early:
            pending.acknowledge(ack)
        self._losses_seen = self._executors.losses
        return pending

    def _named_by_pending(self) -> frozenset[str]:
        acks = self._pending.acks.values() if self._pending else ()
        return frozenset(h.object for a in [*acks, *self._early] for h in a.snapshot.handles)

    def _summary(self, **numbers: Any) -> Summary:
        pending = self._pending
        assert pending is not None
        return summary(
            pending.id,
            pending.triggered_ms,
            pending.acks.values(),
            len(pending.required),
            carried=len(pending.carried),
            duration_ms=self.now_ms - pending.triggered_ms,
            plan_ms=self._plan_ms,
            **numbers,
        )

    def _decode(self, event: ev.EntryRead) -> Entry | None:
        assert event.data is not None
        try:
            return decode(event.number, event.data)
        except FormatError:
            return None

    # --- deletion

    def _delete(self, batch: Batch | None) -> list[Instruction]:
        again, self._failed_deletions = self._failed_deletions, []
        instructions: list[Instruction] = []
        for b in [*again, *([batch] if batch else [])]:
            ticket = self.ticket()
            self._deleting[ticket] = b
            self._released.update(dict.fromkeys(b.objects))
            instructions.append(do.Delete(ticket, b.checkpoints, b.objects))
        while len(self._released) > FORGET_RELEASED:
            del self._released[next(iter(self._released))]
        return instructions

    def _deleted(self, event: ev.Deleted) -> list[Instruction]:
        batch = self._deleting.pop(event.ticket)
        if event.failure is None:
            self._deletions.deleted(batch)
            return []
        self._failed_deletions.append(batch)
        return [do.Log(Level.WARN, f"old checkpoints could not be deleted, which is tried again: {event.failure}")]

    # --- the ends

    def _aborted(self, reason: AbortReason, message: str) -> Instruction:
        self.statistics.aborted[reason] += 1
        told = self._summary() if self._pending is not None else Summary(self.claim.run, self._epoch, self._asked_ms)
        return do.Announce(Announcement.ABORTED, replace(told, reason=reason.value, message=message).announcement())

    def _abort(self, reason: AbortReason, kind: ErrorKind, message: str, request: RequestName | None = None) -> list[Instruction]:
        """The query fails. Nothing is deleted: what was uploaded is the successor's garbage."""
        open_request = request or OPEN_REQUEST.get(self.phase)
        aborted = self._aborted(reason, message)
        return [*self._over(RunPhase.FAILED, kind, message), *([do.Refused(open_request, kind, message)] if open_request else []), aborted]

    def _over(self, phase: RunPhase, kind: ErrorKind, message: str) -> list[Instruction]:
        self.phase = phase
        self._failure = (kind, message)
        if self._pending:
            self._pending.discard()
        cancelled = self._cancel(*ev.Timer)
        self._awaited &= set(self._deleting)
        return cancelled

    def _fenced(self, number: int, entry: Entry | None) -> list[Instruction]:
        """Listeners are told nothing: the stream is somebody else's."""
        if entry is None:
            message = f"log entry {number} was written by a release this one cannot read; run {self.claim.run} stops"
        else:
            message = fenced_message(self.claim, number, entry)
        open_request = OPEN_REQUEST.get(self.phase)
        self._deletions.append_failed(number)
        self.statistics.aborted[AbortReason.FENCED] += 1
        return [
            *self._over(RunPhase.FENCED, ErrorKind.FENCED, message),
            do.Refused(open_request, ErrorKind.FENCED, message) if open_request else do.Log(Level.ERROR, message),
        ]
