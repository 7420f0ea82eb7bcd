"""The rules of the protocol, each of which can be left out: the simulation must then fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Snapshot
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.background import BackgroundCheckpoint, Final, SealedEpoch
from spark_ckpt.protocol.completed import CompletedCheckpointStore
from spark_ckpt.protocol.deletion import Batch, Deletions
from spark_ckpt.protocol.entries import Claim, Entry, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.interval_run import IntervalRun
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.planned_files import PlannedFiles
from spark_ckpt.protocol.reasons import AbortReason, Outcome
from spark_ckpt.protocol.recorded import Recorded
from spark_ckpt.protocol.run import Run, RunPhase, Settings
from spark_ckpt.protocol.run_ending import RunEnding
from spark_ckpt.protocol.shared import SharedStateRegistry
from spark_ckpt.protocol.start import Beginning, Start, StartOrder, Step
from spark_ckpt.protocol.stream import Stream
from spark_ckpt.testing.simulation.world import OverwritingWorld, World


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


class CollectOrder(Enum):
    """What a collector of garbage reads, after the claim."""

    RIGHT = "RIGHT"
    """The checkpoints that the claim keeps, those of its own run, again if one is gone; then whether the claim is still the last."""
    CLAIM_ONCE = "CLAIM_ONCE"
    """Wrong: a successor may have deleted both kinds meanwhile, and what it needs of older runs is named by nothing that was read."""
    OWN_FIRST = "OWN_FIRST"
    """Wrong: a kept one may be superseded and deleted after the listing, and its objects are named by nothing that was read."""
    UNSETTLED = "UNSETTLED"
    """Wrong: what the living run has stored since its newest checkpoint was triggered is named by one to come."""


@dataclass(frozen=True)
class Rules:
    """What a simulated world is made of; by default all real. `faults`, `settings`: not left to the seed, so that a rule soon matters."""

    deletions: Callable[[SharedStateRegistry], Deletions] = Deletions
    order: StartOrder = field(default_factory=StartOrder)
    stream: type[Stream] = Stream
    world: type[World] = World
    settle: Callable[[Outcome], Outcome] = _as_it_is
    collect: CollectOrder = CollectOrder.RIGHT
    faults: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)


class _TailTwice(StartOrder):
    """Lists the checkpoints, and only then reads the tail behind which it claims."""

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS, Step.TAIL)


class _AtCompletion(Run):
    def _completed(self, metadata_bytes: int) -> list[Instruction]:
        told = super()._completed(metadata_bytes)
        self._deletions.append_issued(0)
        return [*told, *self._delete(self._deletions.append_stored(0))]


class _AtCompletionInBackground(IntervalRun):
    def _completed(self, p: BackgroundCheckpoint, metadata_bytes: int) -> list[Instruction]:
        told = super()._completed(p, metadata_bytes)
        self._deletions.append_issued(0)
        return [*told, *self._delete(self._deletions.append_stored(0, self._named_by_pending()))]


class _OnAnyAppend(Deletions):
    """Deletes what waits when an append is stored, whenever that was issued."""

    def released(self, number: int) -> tuple[list[CheckpointId], list[str]]:
        checkpoints, strays = super().released(number)
        waiting, self._waiting = self._waiting, []
        queued, self._strays = list(self._strays), {}
        return [*checkpoints, *waiting], [*strays, *queued]


class _SparingRetained(Deletions):
    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self._dropped: set[CheckpointId] = set()

    def drop(self, checkpoints: Iterable[CheckpointId], strays: Iterable[str] = ()) -> None:
        dropped = list(checkpoints)
        self._dropped.update(dropped)
        super().drop(dropped, strays)

    def spared(self, checkpoints: list[CheckpointId]) -> frozenset[str]:
        return self._registry.named(but={*checkpoints, *self._dropped})


class _SparingNothing(Deletions):
    def spared(self, checkpoints: list[CheckpointId]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


class _NotPlanned(PlannedFiles):
    def keeps(self, name: str) -> bool:  # noqa: ARG002
        return False


class _SparingNoPlan(Deletions):
    """Deletes a large file of the driver with the last checkpoint that names it."""

    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self.planned = _NotPlanned()


class _WithoutPlans(Start):
    """Plans anew what was planned before, under the same numbers."""

    def _append_claim(self) -> list[Instruction]:
        self._plans = ()
        return super()._append_claim()


class _WithoutReplan(Start):
    """Runs what was planned before on the strength of the old plan."""

    def _claimed(self) -> list[Instruction]:
        told = self._done()
        assert self.beginning is not None
        claim = self.beginning.claim.claim
        self.beginning = replace(self.beginning, next_number=claim + 1, numbers={self.beginning.epoch: claim})
        return told


class _UnknownFails(Run):
    """Takes an unknown outcome of `_metadata` for a failure, and deletes what it uploaded."""

    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        if event.outcome is not Outcome.UNKNOWN:
            return super()._metadata_put(event)
        uploaded = sorted(o for o in self._named_by_pending() if o not in self._registry.named())
        aborted = self._abort(AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, "an unknown outcome was taken for a failure")
        return [*self._delete(Batch((), tuple(uploaded))), *aborted]


class _UnknownFailsInBackground(IntervalRun):
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


class _GivenUpAtOnce(IntervalRun):
    """Takes a checkpoint whose time is up while its `_metadata` is under way for one that will not be there."""

    def _expired(self, p: BackgroundCheckpoint) -> list[Instruction]:
        p.final = Final.NOT_YET
        return super()._expired(p)

    def _abort(self, p: BackgroundCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        given_up = [ticket for ticket, q in self._asked.items() if q is p]
        self.forget(*given_up)
        self._asked = {ticket: q for ticket, q in self._asked.items() if q is not p}
        return super()._abort(p, reason, kind, message)


class _ReleasingAtOnce(IntervalRun):
    """What an aborted or losing attempt uploaded goes with the next append."""

    def _release(self, snapshots: Iterable[Snapshot]) -> None:
        own = run_prefix(self.claim.run)
        objects = {h.object for snapshot in snapshots for h in snapshot.handles if h.object.startswith(own)}
        self._deletions.drop([], sorted(objects - self._registry.named()))

    def _named_by_pending(self) -> frozenset[str]:
        return frozenset()


class _InOrderOfCompletion(CompletedCheckpointStore):
    """Takes what completed last for the newest."""

    def _place(self, log: int) -> int:  # noqa: ARG002
        return len(self._logs)


class _LastCompletedIsNewest(IntervalRun):
    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        known = self._store
        self._store = _InOrderOfCompletion(settings.retained)
        self._store.newest, self._store._logs = known.newest, known._logs


class _LastPlanCounts(IntervalRun):
    """Notes for a checkpoint the last log entry that planned its epoch."""

    def _plan_stored(self, number: int) -> list[Instruction]:
        self._numbers.pop(self._line[0].epoch, None)
        return super()._plan_stored(number)


class _WithoutAcksInBackground(IntervalRun):
    def _maybe_finalise(self, p: BackgroundCheckpoint) -> list[Instruction]:
        if p.waits_for_acks:
            p.required = {uid: slot for uid, slot in p.required.items() if uid not in p.missing}
            p._missing.clear()
        return super()._maybe_finalise(p)


class _ChoosingAny(Start):
    """Goes on from any checkpoint that a person chose and that is there."""

    def _is_retained(self, checkpoint: CheckpointId) -> bool:  # noqa: ARG002
        return True


class _CountingPlans(Start):
    """Takes the highest number that was planned for the highest that was used."""

    def _plans_found(self, found: Recorded) -> None:
        planned = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan)]
        super()._plans_found(replace(found, used=max(planned, default=found.first - 1)))


class _VoidingNothing(Start):
    """Overlooks that plans were voided."""

    def _past_the_end(self) -> dict[int, Entry]:
        entries = super()._past_the_end()
        return {n: replace(entry, first=None) if isinstance(entry, Claim) else entry for n, entry in entries.items()}


class _VoidingTwice(Start):
    """Takes plans for void that came before a claim which only carries new numbers on."""

    def _past_the_end(self) -> dict[int, Entry]:
        entries = super()._past_the_end()
        last = max((n for n, entry in entries.items() if isinstance(entry, Claim) and entry.first is not None), default=0)
        return {n: entry for n, entry in entries.items() if n >= last or not isinstance(entry, Plan)}


class _AheadAtOnce(IntervalRun):
    """Runs epochs ahead of their plans as soon as the first checkpoint is complete."""

    @property
    def _may_be_ahead(self) -> int:
        return self._settings.ahead if self.base is not None else 0


class _WithoutItsPlan(IntervalRun):
    """Completes a checkpoint before its plan is in the log, where it will probably be."""

    def _maybe_finalise(self, p: BackgroundCheckpoint) -> list[Instruction]:
        p.log = p.log or self._next_number
        return super()._maybe_finalise(p)


class _UnderItsNumber(IntervalRun):
    """Asks for the state of a checkpoint under the number with which the stream goes on from it."""

    @property
    def _version(self) -> int | None:
        return None


class _TakingItBack(Start):
    """A query that goes back in place claims the stream, whoever has it now."""

    def _claim_known(self, claim: Claim) -> list[Instruction]:
        self._request = replace(self._request, again=False)
        return super()._claim_known(claim)


class _TimedFromItsTrigger(IntervalRun):
    """Counts the time that tasks need as a checkpoint's."""

    def _make(self, p: BackgroundCheckpoint) -> list[Instruction]:
        return [*super()._make(p), *super()._count_time(p)]

    def _count_time(self, p: BackgroundCheckpoint) -> list[Instruction]:  # noqa: ARG002
        return []


class _WaitingForItsEnd(IntervalRun):
    """While an epoch runs none that has ended becomes a checkpoint, however long that takes."""

    @property
    def _quiet(self) -> bool:
        return self.phase is RunPhase.IDLE


class _WithFilesOfNow(IntervalRun):
    """A checkpoint of a finished epoch holds the driver's files as they are when it begins."""

    def _seal_background(self, p: BackgroundCheckpoint, sealed: SealedEpoch) -> list[Instruction]:
        return super()._seal_background(p, replace(sealed, files=self._files.as_mapping()))


class _NumbersAnew(Start):
    """A stream that begins anew begins with epoch 0."""

    def _append_claim(self) -> list[Instruction]:
        if self._end is not None:
            self._first = None
        return super()._append_claim()


class _WithoutAcks(Run):
    """Completes a checkpoint with the snapshots that happen to be there."""

    def _maybe_finalise(self) -> list[Instruction]:
        if self.phase is RunPhase.SEALED and self._pending is not None:
            pending = self._pending
            pending.required = {uid: slot for uid, slot in pending.required.items() if uid not in pending.missing}
            pending._missing.clear()
        return super()._maybe_finalise()


class _GoingAtOnce(RunEnding):
    """Deletes all there is at the end, whatever `_metadata` is still on its way."""

    def _gone(self) -> list[Instruction]:
        self.forget(*self._puts)
        self._puts.clear()
        return super()._gone()


class _GoneAtOnce(_GoingAtOnce, Run):
    """In the every-epoch mode."""


class _GoneAtOnceInBackground(_GoingAtOnce, IntervalRun):
    """In the interval mode."""


class _AtCompletionStream(Stream):
    RUN = _AtCompletion
    INTERVAL_RUN = _AtCompletionInBackground


class _WithoutPlansStream(Stream):
    START = _WithoutPlans


class _WithoutReplanStream(Stream):
    START = _WithoutReplan


class _UnknownFailsStream(Stream):
    RUN = _UnknownFails
    INTERVAL_RUN = _UnknownFailsInBackground


class _GivenUpAtOnceStream(Stream):
    INTERVAL_RUN = _GivenUpAtOnce


class _ReleasingAtOnceStream(Stream):
    INTERVAL_RUN = _ReleasingAtOnce


class _LastCompletedIsNewestStream(Stream):
    INTERVAL_RUN = _LastCompletedIsNewest


class _LastPlanCountsStream(Stream):
    INTERVAL_RUN = _LastPlanCounts


class _ChoosingAnyStream(Stream):
    START = _ChoosingAny


class _CountingPlansStream(Stream):
    START = _CountingPlans


class _VoidingNothingStream(Stream):
    START = _VoidingNothing


class _VoidingTwiceStream(Stream):
    START = _VoidingTwice


class _AheadAtOnceStream(Stream):
    INTERVAL_RUN = _AheadAtOnce


class _WithoutItsPlanStream(Stream):
    INTERVAL_RUN = _WithoutItsPlan


class _UnderItsNumberStream(Stream):
    INTERVAL_RUN = _UnderItsNumber


class _TakingItBackStream(Stream):
    START = _TakingItBack


class _NumbersAnewStream(Stream):
    START = _NumbersAnew


class _GoneAtOnceStream(Stream):
    RUN = _GoneAtOnce
    INTERVAL_RUN = _GoneAtOnceInBackground


class _TimedFromItsTriggerStream(Stream):
    INTERVAL_RUN = _TimedFromItsTrigger


class _WaitingForItsEndStream(Stream):
    INTERVAL_RUN = _WaitingForItsEnd


class _WithFilesOfNowStream(Stream):
    INTERVAL_RUN = _WithFilesOfNow


class _WithoutAcksStream(Stream):
    RUN = _WithoutAcks
    INTERVAL_RUN = _WithoutAcksInBackground


def _unknown_is_stored(outcome: Outcome) -> Outcome:
    return Outcome.STORED if outcome is Outcome.UNKNOWN else outcome


class LeftOut(Enum):
    """One rule each."""

    START_ORDER = "the tail is read before the checkpoints are listed"
    DELETE_AFTER_APPEND = "nothing is deleted before an own append that follows the completion"
    PUT_IF_ABSENT = "an entry that exists is not overwritten"
    SPARE_DROPPED = "a deletion spares what dropped checkpoints name that are not gone yet"
    SPARE_NAMED = "a deletion spares what other checkpoints name"
    SPARE_PLANNED = "a deletion spares what plans in the log name"
    RERUN_PLANNED = "planned epochs run again as planned"
    REPLAN = "what runs again is appended again first"
    READ_BACK = "an unknown outcome is read back, not taken for stored"
    DELETE_NOTHING_UNKNOWN = "after an unknown outcome nothing is deleted"
    WAIT_FOR_ACKS = "a checkpoint is complete when all its acks are in"
    DELETE_ISSUED_AFTER = "nothing is deleted on an append that was issued before the completion was known"
    GHOSTS_KEPT = "a checkpoint that is given up while its _metadata is under way keeps its objects until it is known"
    RELEASE_LATER = "what aborted and losing attempts uploaded stays until a later checkpoint completes"
    NEWEST_BY_EPOCH = "a checkpoint that completes after a newer one is not the newest"
    FIRST_PLAN_COUNTS = "a checkpoint notes the first log entry of its run that planned its epoch"
    AHEAD_COUNTED = "numbers that may have been used without a plan are not used again"
    FIRST_VOIDS = "plans before a claim with new numbers are void"
    CARRIED_VOIDS_NOT = "a claim that carries new numbers on voids no plans"
    AHEAD_WHEN_KNOWN = "no epoch runs ahead of its plan before every successor finds a checkpoint"
    PLAN_BEFORE_METADATA = "a checkpoint is stored after the plan of its epoch"
    OLD_VERSION = "state that goes on under a new number is loaded under its old one"
    GO_BACK_OWN = "a query goes back in place only while the stream is its own"
    CHOOSE_RETAINED = "a person can choose only what the last run retains"
    TIMED_FROM_SEAL = "the time-out of a checkpoint is counted from the end of its epoch"
    LONG_BRIDGED = "while an epoch runs for long, the newest finished one becomes a checkpoint"
    FILES_OF_ITS_END = "a checkpoint of a finished epoch holds the driver's files as they were at its end"
    NUMBERS_GO_ON = "a stream that was deleted begins anew behind every number that it had used"
    GONE_AT_LAST = "what a deleted stream leaves goes when every put of _metadata is answered"
    COLLECT_KEPT_FIRST = "a collector of garbage reads the kept checkpoints before it lists the run's own"
    COLLECT_SETTLED = "a collector takes for garbage of a living run only what was stored before the epoch of a completed checkpoint ran"
    COLLECT_CLAIM_AGAIN = "a collector of garbage looks whether the claim is still the last when it has read the checkpoints"


IN_BACKGROUND = frozenset(
    {
        LeftOut.DELETE_ISSUED_AFTER,
        LeftOut.GHOSTS_KEPT,
        LeftOut.RELEASE_LATER,
        LeftOut.NEWEST_BY_EPOCH,
        LeftOut.FIRST_PLAN_COUNTS,
        LeftOut.GO_BACK_OWN,
        LeftOut.TIMED_FROM_SEAL,
        LeftOut.LONG_BRIDGED,
    }
)
"""What only the interval mode can show: in the other one an epoch's append is issued when the checkpoint of the one before is complete."""

IN_AT_LEAST_ONCE = frozenset(
    {
        LeftOut.AHEAD_COUNTED,
        LeftOut.FIRST_VOIDS,
        LeftOut.CARRIED_VOIDS_NOT,
        LeftOut.AHEAD_WHEN_KNOWN,
        LeftOut.PLAN_BEFORE_METADATA,
        LeftOut.OLD_VERSION,
        LeftOut.FILES_OF_ITS_END,
    }
)
"""What only at-least-once can show: where a plan is stored while its epoch's tasks run, and input runs again under new numbers."""


_STEADY = {"crash": 0, "sleep": 0, "stop": 0, "task_failure": 0}
_SLOW_ANSWERS = {**_STEADY, "answer_lost": 0.4, "ack_lost": 0.5, "rival": 1}
_SLOW_ACKS = {**_STEADY, "answer_lost": 0.2, "ack_lost": 0.8, "rival": 0, "coordinator_crash": 0, "executor_loss": 0}
_SHORT_LIVES = {**_STEADY, "crash": 0.015, "rival": 1, "outage": 0, "ask": 0}
_RIVALS = {**_STEADY, "coordinator_crash": 0, "outage": 0, "read_failed": 0, "slow": 0.05, "restore": 0, "rival": 1}
_CHOICES = {"restore": 1, "rival": 0.4, "sleep": 0.03, "slow": 0.1, "stop": 0, "crash": 0.003}
_OFTEN = {"interval_ms": 30, "max_concurrent": 3}
_IN_A_HURRY = {**_OFTEN, "timeout_ms": 150, "tolerable_failures": 10}


def leaving_out(rule: LeftOut) -> Rules:
    """A world in which one rule is not kept."""
    return {
        LeftOut.START_ORDER: Rules(order=_TailTwice()),
        LeftOut.DELETE_AFTER_APPEND: Rules(stream=_AtCompletionStream),
        LeftOut.PUT_IF_ABSENT: Rules(world=OverwritingWorld),
        LeftOut.SPARE_DROPPED: Rules(deletions=_SparingRetained, faults={"delete_failed": 0.6, "crash": 0}),
        LeftOut.SPARE_NAMED: Rules(deletions=_SparingNothing),
        LeftOut.SPARE_PLANNED: Rules(deletions=_SparingNoPlan),
        LeftOut.RERUN_PLANNED: Rules(stream=_WithoutPlansStream),
        LeftOut.REPLAN: Rules(stream=_WithoutReplanStream),
        LeftOut.READ_BACK: Rules(settle=_unknown_is_stored),
        LeftOut.DELETE_NOTHING_UNKNOWN: Rules(stream=_UnknownFailsStream),
        LeftOut.WAIT_FOR_ACKS: Rules(stream=_WithoutAcksStream),
        LeftOut.DELETE_ISSUED_AFTER: Rules(deletions=_OnAnyAppend, faults=_SLOW_ANSWERS, settings=_OFTEN),
        LeftOut.GHOSTS_KEPT: Rules(stream=_GivenUpAtOnceStream, faults=_SLOW_ACKS, settings=_IN_A_HURRY),
        LeftOut.RELEASE_LATER: Rules(stream=_ReleasingAtOnceStream),
        LeftOut.NEWEST_BY_EPOCH: Rules(stream=_LastCompletedIsNewestStream, faults={**_STEADY, "answer_lost": 0.4}, settings=_OFTEN),
        LeftOut.FIRST_PLAN_COUNTS: Rules(stream=_LastPlanCountsStream, faults=_SHORT_LIVES, settings={"interval_ms": 120}),
        LeftOut.AHEAD_COUNTED: Rules(stream=_CountingPlansStream),
        LeftOut.FIRST_VOIDS: Rules(stream=_VoidingNothingStream),
        LeftOut.CARRIED_VOIDS_NOT: Rules(stream=_VoidingTwiceStream, faults={"rival": 1, "crash": 0.01, "sleep": 0.02}),
        LeftOut.AHEAD_WHEN_KNOWN: Rules(stream=_AheadAtOnceStream, faults=_RIVALS, settings={**_OFTEN, "interval_ms": 10, "ahead": 5}),
        LeftOut.PLAN_BEFORE_METADATA: Rules(stream=_WithoutItsPlanStream),
        LeftOut.OLD_VERSION: Rules(stream=_UnderItsNumberStream),
        LeftOut.GO_BACK_OWN: Rules(stream=_TakingItBackStream, faults={**_STEADY, "sleep": 0.005, "rival": 1, "executor_loss": 0.15}),
        LeftOut.CHOOSE_RETAINED: Rules(stream=_ChoosingAnyStream, faults=_CHOICES, settings={"retained": 1}),
        LeftOut.TIMED_FROM_SEAL: Rules(stream=_TimedFromItsTriggerStream),
        LeftOut.LONG_BRIDGED: Rules(stream=_WaitingForItsEndStream),
        LeftOut.FILES_OF_ITS_END: Rules(stream=_WithFilesOfNowStream),
        LeftOut.NUMBERS_GO_ON: Rules(stream=_NumbersAnewStream),
        LeftOut.GONE_AT_LAST: Rules(stream=_GoneAtOnceStream),
        LeftOut.COLLECT_SETTLED: Rules(collect=CollectOrder.UNSETTLED, faults={"gc": 1}),
        LeftOut.COLLECT_CLAIM_AGAIN: Rules(collect=CollectOrder.CLAIM_ONCE, faults={"gc": 1, "rival": 1}),
        LeftOut.COLLECT_KEPT_FIRST: Rules(collect=CollectOrder.OWN_FIRST, faults={"gc": 0.7, "rival": 0.5}),
    }[rule]
