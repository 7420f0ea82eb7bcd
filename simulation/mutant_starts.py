"""Beginnings of a run that leave out one rule each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Claim, Entry, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.start.recorded import Recorded
from spark_ckpt.protocol.start.start import Start, StartOrder, Step


class TailTwice(StartOrder):
    """Lists the checkpoints, and only then reads the tail behind which it claims."""

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS, Step.TAIL)


class WithoutPlans(Start):
    """Plans anew what was planned before, under the same numbers."""

    def _append_claim(self) -> list[Instruction]:
        self._plans = ()
        return super()._append_claim()


class WithoutAdopting(Start):
    """Runs what was planned before, and does not say in its claim which plans those are."""

    def _append_claim(self) -> list[Instruction]:
        self._adopted = {}
        return super()._append_claim()


class ChoosingAny(Start):
    """Goes on from any checkpoint that a person chose and that is there."""

    def _is_retained(self, checkpoint: CheckpointId) -> bool:  # noqa: ARG002
        return True


class CountingPlans(Start):
    """Takes the highest number that was planned for the highest that was used."""

    def _plans_found(self, found: Recorded) -> None:
        planned = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan)]
        super()._plans_found(replace(found, used=max(planned, default=found.first - 1)))


class VoidingNothing(Start):
    """Overlooks that plans were voided."""

    @property
    def _told(self) -> Mapping[int, Entry]:
        entries = super()._told
        return {n: replace(entry, first=None) if isinstance(entry, Claim) else entry for n, entry in entries.items()}


class VoidingTwice(Start):
    """Takes plans for void that came before a claim which only carries new numbers on."""

    @property
    def _told(self) -> Mapping[int, Entry]:
        entries = super()._told
        last = max((n for n, entry in entries.items() if isinstance(entry, Claim) and entry.first is not None), default=0)
        return {n: entry for n, entry in entries.items() if n >= last or not isinstance(entry, Plan)}


class TakingItBack(Start):
    """A query that goes back in place claims the stream, whoever has it now."""

    def _last_claim_known(self, claim: Claim) -> list[Instruction]:
        self._request = replace(self._request, again=False)
        return super()._last_claim_known(claim)


class NumbersAnew(Start):
    """A stream that begins anew begins with epoch 0."""

    def _append_claim(self) -> list[Instruction]:
        if self._end is not None:
            self._first = None
        return super()._append_claim()


class TrustingObjects(Start):
    """Goes on from a checkpoint whose `_metadata` is there."""

    def _verified(self, event: ev.ObjectsVerified) -> list[Instruction]:
        return super()._verified(replace(event, damage=None))


class OnceBad(Start):
    """What a run has noted as damaged stays so."""

    def _look_again(self, noted: list[CheckpointId]) -> list[Instruction]:  # noqa: ARG002
        raise self._none_intact
