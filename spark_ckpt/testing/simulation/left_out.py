"""The rules of the protocol, each of which can be left out: the simulation must then fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.deletion import Batch, Deletions
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import AbortReason, Outcome
from spark_ckpt.protocol.run import Run, RunPhase
from spark_ckpt.protocol.shared import SharedStateRegistry
from spark_ckpt.protocol.start import Start, StartOrder, Step
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


@dataclass(frozen=True)
class Rules:
    """What a simulated world is made of; by default all real."""

    deletions: Callable[[SharedStateRegistry], Deletions] = Deletions
    order: StartOrder = field(default_factory=StartOrder)
    stream: type[Stream] = Stream
    world: type[World] = World
    settle: Callable[[Outcome], Outcome] = _as_it_is
    collect: CollectOrder = CollectOrder.RIGHT


class _TailTwice(StartOrder):
    """Lists the checkpoints, and only then reads the tail behind which it claims."""

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS, Step.TAIL)


class _AtCompletion(Run):
    def _completed(self, metadata_bytes: int) -> list[Instruction]:
        told = super()._completed(metadata_bytes)
        self._deletions.append_issued(0)
        return [*told, *self._delete(self._deletions.append_stored(0))]


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


class _WithoutAcks(Run):
    """Completes a checkpoint with the snapshots that happen to be there."""

    def _maybe_finalise(self) -> list[Instruction]:
        if self.phase is RunPhase.SEALED and self._pending is not None:
            gone = self._pending.missing
            self._pending.required = {uid: slot for uid, slot in self._pending.required.items() if uid not in gone}
        return super()._maybe_finalise()


class _AtCompletionStream(Stream):
    RUN = _AtCompletion


class _WithoutPlansStream(Stream):
    START = _WithoutPlans


class _WithoutReplanStream(Stream):
    START = _WithoutReplan


class _UnknownFailsStream(Stream):
    RUN = _UnknownFails


class _WithoutAcksStream(Stream):
    RUN = _WithoutAcks


def _unknown_is_stored(outcome: Outcome) -> Outcome:
    return Outcome.STORED if outcome is Outcome.UNKNOWN else outcome


class LeftOut(Enum):
    """One rule each.

    That a deletion waits for an append *issued* after the completion is not among them: in the every-epoch mode an epoch's append is
    issued when the checkpoint of the one before is complete, so every append that is stored later was issued after it.
    """

    START_ORDER = "the tail is read before the checkpoints are listed"
    DELETE_AFTER_APPEND = "nothing is deleted before an own append that follows the completion"
    PUT_IF_ABSENT = "an entry that exists is not overwritten"
    SPARE_DROPPED = "a deletion spares what dropped checkpoints name that are not gone yet"
    SPARE_NAMED = "a deletion spares what other checkpoints name"
    RERUN_PLANNED = "planned epochs run again as planned"
    REPLAN = "what runs again is appended again first"
    READ_BACK = "an unknown outcome is read back, not taken for stored"
    DELETE_NOTHING_UNKNOWN = "after an unknown outcome nothing is deleted"
    WAIT_FOR_ACKS = "a checkpoint is complete when all its acks are in"
    COLLECT_KEPT_FIRST = "a collector of garbage reads the kept checkpoints before it lists the run's own"
    COLLECT_CLAIM_AGAIN = "a collector of garbage looks whether the claim is still the last when it has read the checkpoints"


def leaving_out(rule: LeftOut) -> Rules:
    """A world in which one rule is not kept."""
    return {
        LeftOut.START_ORDER: Rules(order=_TailTwice()),
        LeftOut.DELETE_AFTER_APPEND: Rules(stream=_AtCompletionStream),
        LeftOut.PUT_IF_ABSENT: Rules(world=OverwritingWorld),
        LeftOut.SPARE_DROPPED: Rules(deletions=_SparingRetained),
        LeftOut.SPARE_NAMED: Rules(deletions=_SparingNothing),
        LeftOut.RERUN_PLANNED: Rules(stream=_WithoutPlansStream),
        LeftOut.REPLAN: Rules(stream=_WithoutReplanStream),
        LeftOut.READ_BACK: Rules(settle=_unknown_is_stored),
        LeftOut.DELETE_NOTHING_UNKNOWN: Rules(stream=_UnknownFailsStream),
        LeftOut.WAIT_FOR_ACKS: Rules(stream=_WithoutAcksStream),
        LeftOut.COLLECT_CLAIM_AGAIN: Rules(collect=CollectOrder.CLAIM_ONCE),
        LeftOut.COLLECT_KEPT_FIRST: Rules(collect=CollectOrder.OWN_FIRST),
    }[rule]
