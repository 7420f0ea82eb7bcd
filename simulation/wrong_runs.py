"""Runs, and deletions of runs, that leave out one rule each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Snapshot
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.background import BackgroundCheckpoint, Final, SealedEpoch
from spark_ckpt.protocol.completed import CompletedCheckpointStore
from spark_ckpt.protocol.deletion import Batch, Deletions
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.interval_run import IntervalRun
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.planned_files import PlannedFiles
from spark_ckpt.protocol.reasons import AbortReason, Outcome
from spark_ckpt.protocol.run import Run, RunPhase, Settings
from spark_ckpt.protocol.run_ending import RunEnding
from spark_ckpt.protocol.shared import SharedStateRegistry
from spark_ckpt.protocol.start import Beginning
from spark_ckpt.protocol.stream import Stream


class AtCompletion(Run):
    def _completed(self, metadata_bytes: int) -> list[Instruction]:
        told = super()._completed(metadata_bytes)
        self._deletions.append_issued(0)
        return [*told, *self._delete(self._deletions.append_stored(0))]


class AtCompletionInBackground(IntervalRun):
    def _completed(self, p: BackgroundCheckpoint, metadata_bytes: int) -> list[Instruction]:
        told = super()._completed(p, metadata_bytes)
        self._deletions.append_issued(0)
        return [*told, *self._delete(self._deletions.append_stored(0, self._named_by_pending()))]


class OnAnyAppend(Deletions):
    """Deletes what waits when an append is stored, whenever that was issued."""

    def released(self, number: int) -> tuple[list[CheckpointId], list[str]]:
        checkpoints, strays = super().released(number)
        waiting, self._waiting = self._waiting, []
        queued, self._strays = list(self._strays), {}
        return [*checkpoints, *waiting], [*strays, *queued]


class SparingRetained(Deletions):
    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self._dropped: set[CheckpointId] = set()

    def drop(self, checkpoints: Iterable[CheckpointId], strays: Iterable[str] = ()) -> None:
        dropped = list(checkpoints)
        self._dropped.update(dropped)
        super().drop(dropped, strays)

    def spared(self, checkpoints: list[CheckpointId]) -> frozenset[str]:
        return self._registry.named(but={*checkpoints, *self._dropped})


class SparingNothing(Deletions):
    def spared(self, checkpoints: list[CheckpointId]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


class NotPlanned(PlannedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.all_known = True

    def named(self) -> frozenset[str]:
        return frozenset()


class SparingNoPlan(Deletions):
    """Deletes a large file of the driver with the last checkpoint that names it."""

    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self.planned = NotPlanned()


class UnknownFails(Run):
    """Takes an unknown outcome of `_metadata` for a failure, and deletes what it uploaded."""

    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        if event.outcome is not Outcome.UNKNOWN:
            return super()._metadata_put(event)
        uploaded = sorted(o for o in self._named_by_pending() if o not in self._registry.named())
        aborted = self._abort(AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, "an unknown outcome was taken for a failure")
        return [*self._delete(Batch((), tuple(uploaded))), *aborted]


class UnknownFailsInBackground(IntervalRun):
    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        p = self._asked.get(event.ticket)
        if event.outcome is not Outcome.UNKNOWN or p not in self._pendings:
            return super()._metadata_put(event)
        assert p is not None
        del self._asked[event.ticket]
        uploaded = sorted(o for o in p.named if o not in self._registry.named())
        p.final = Final.NOT_YET
        aborted = self._abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, "an unknown outcome was taken for a failure")
        return [*self._delete(Batch((), tuple(uploaded))), *aborted]


class GivenUpAtOnce(IntervalRun):
    """Takes a checkpoint whose time is up while its `_metadata` is under way for one that will not be there."""

    def _expired(self, p: BackgroundCheckpoint) -> list[Instruction]:
        p.final = Final.NOT_YET
        return super()._expired(p)

    def _abort(self, p: BackgroundCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        given_up = [ticket for ticket, q in self._asked.items() if q is p]
        self.forget(*given_up)
        self._asked = {ticket: q for ticket, q in self._asked.items() if q is not p}
        return super()._abort(p, reason, kind, message)


class ReleasingAtOnce(IntervalRun):
    """What an aborted or losing attempt uploaded goes with the next append."""

    def _release(self, snapshots: Iterable[Snapshot]) -> None:
        own = run_prefix(self.claim.run)
        objects = {h.object for snapshot in snapshots for h in snapshot.handles if h.object.startswith(own)}
        self._deletions.drop([], sorted(objects - self._registry.named()))

    def _named_by_pending(self) -> frozenset[str]:
        return frozenset()


class InOrderOfCompletion(CompletedCheckpointStore):
    """Takes what completed last for the newest."""

    def _place(self, log: int) -> int:  # noqa: ARG002
        return len(self._logs)


class LastCompletedIsNewest(IntervalRun):
    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        known = self._store
        self._store = InOrderOfCompletion(settings.retained)
        self._store.newest, self._store._logs = known.newest, known._logs


class WithoutAcksInBackground(IntervalRun):
    def _maybe_finalise(self, p: BackgroundCheckpoint) -> list[Instruction]:
        if p.waits_for_acks:
            p.required = {uid: slot for uid, slot in p.required.items() if uid not in p.missing}
            p._missing.clear()
        return super()._maybe_finalise(p)


class AheadAtOnce(IntervalRun):
    """Runs epochs ahead of their plans as soon as the first checkpoint is complete."""

    @property
    def _may_be_ahead(self) -> int:
        return self._settings.ahead if self.base is not None else 0


class WithoutItsPlan(IntervalRun):
    """Completes a checkpoint before its plan is in the log, where it will probably be."""

    def _maybe_finalise(self, p: BackgroundCheckpoint) -> list[Instruction]:
        p.log = p.log or self._next_number
        return super()._maybe_finalise(p)


class UnderItsNumber(IntervalRun):
    """Asks for the state of a checkpoint under the number with which the stream goes on from it."""

    @property
    def _version(self) -> int | None:
        return None


class TimedFromItsTrigger(IntervalRun):
    """Counts the time that tasks need as a checkpoint's."""

    def _make(self, p: BackgroundCheckpoint) -> list[Instruction]:
        return [*super()._make(p), *super()._count_time(p)]

    def _count_time(self, p: BackgroundCheckpoint) -> list[Instruction]:  # noqa: ARG002
        return []


class WaitingForItsEnd(IntervalRun):
    """While an epoch runs none that has ended becomes a checkpoint, however long that takes."""

    @property
    def _quiet(self) -> bool:
        return self.phase is RunPhase.IDLE


class WithFilesOfNow(IntervalRun):
    """A checkpoint of a finished epoch holds the driver's files as they are when it begins."""

    def _seal_background(self, p: BackgroundCheckpoint, sealed: SealedEpoch) -> list[Instruction]:
        return super()._seal_background(p, replace(sealed, files=self._files.as_mapping()))


class WithoutAcks(Run):
    """Completes a checkpoint with the snapshots that happen to be there."""

    def _maybe_finalise(self) -> list[Instruction]:
        if self.phase is RunPhase.SEALED and self._pending is not None:
            pending = self._pending
            pending.required = {uid: slot for uid, slot in pending.required.items() if uid not in pending.missing}
            pending._missing.clear()
        return super()._maybe_finalise()


class GoingAtOnce(RunEnding):
    """Deletes all there is at the end, whatever `_metadata` is still on its way."""

    def _gone(self) -> list[Instruction]:
        self.forget(*self._puts)
        self._puts.clear()
        return super()._gone()


class GoneAtOnce(GoingAtOnce, Run):
    """In the every-epoch mode."""


class GoneAtOnceInBackground(GoingAtOnce, IntervalRun):
    """In the interval mode."""


class WithoutSeals(Stream):
    """Of what the driver has sealed, a coordinator that takes another one's place is told the commits only."""

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        if isinstance(event, ev.ResumeRequested):
            event = replace(event, files={path: content for path, content in event.files.items() if path.startswith("commits/")})
        return super().handle(event, now_ms)
