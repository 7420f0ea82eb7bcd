"""Parts of a start, each of which leaves out one rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_ckpt.model import CheckpointId, Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Claim, Entry, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.admission import Admission
from spark_ckpt.protocol.start.candidates import Candidates
from spark_ckpt.protocol.start.phases import StartOrder, Step
from spark_ckpt.protocol.start.planned_before import PlannedBefore
from spark_ckpt.protocol.start.plans import PlansPast


class TailTwice(StartOrder):
    """Lists the checkpoints, and only then reads the tail behind which it claims."""

    def steps(self) -> tuple[Step, ...]:
        return (Step.TAIL, Step.CHECKPOINTS, Step.TAIL)


class WithoutPlans(PlansPast):
    """Plans anew what was planned before, under the same numbers."""

    @property
    def again(self) -> tuple[Plan, ...]:
        return ()


class WithoutAdopting(PlansPast):
    """Runs what was planned before, and does not say in its claim which plans those are."""

    @property
    def adopted(self) -> Mapping[int, int]:
        return {}


class WithOldOperators(PlansPast):
    """Takes the files of operators that went with a plan, whatever numbers they had then."""

    def files_again(self, plan: Plan) -> Mapping[str, Content | None]:
        return plan.files


class ChoosingAny(Candidates):
    """Goes on from any checkpoint that a person chose and that is there."""

    def choosable(self) -> frozenset[CheckpointId]:
        return frozenset(self.read)


class CountingPlans(PlansPast):
    """Takes the highest number that was planned for the highest that was used."""

    def highest_used(self, found: PlannedBefore) -> int:
        planned = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan)]
        return max(planned, default=found.first - 1)


class VoidingNothing(PlansPast):
    """Overlooks that plans were voided."""

    def planned_before(self, entries: Mapping[int, Entry]) -> PlannedBefore:
        read = {n: replace(entry, first=None) if isinstance(entry, Claim) else entry for n, entry in entries.items()}
        return super().planned_before(read)


class VoidingTwice(PlansPast):
    """Takes plans for void that came before a claim which only carries new numbers on."""

    def planned_before(self, entries: Mapping[int, Entry]) -> PlannedBefore:
        last = max((n for n, entry in entries.items() if isinstance(entry, Claim) and entry.first is not None), default=0)
        return super().planned_before({n: entry for n, entry in entries.items() if n >= last or not isinstance(entry, Plan)})


class TakingRecordsForPlans(PlansPast):
    """Runs again what real-time epochs have read."""

    def planned_before(self, entries: Mapping[int, Entry]) -> PlannedBefore:
        plans = {n: replace(e, real_time=False) if isinstance(e, Plan) else e for n, e in entries.items()}
        return super().planned_before({n: e for n, e in plans.items() if not isinstance(e, Plan) or e.offsets})


class CountingRecords(PlansPast):
    """Takes the highest number that was recorded for the highest that was used."""

    def highest_used(self, found: PlannedBefore) -> int:
        recorded = [entry.epoch for entry in self._entries.values() if isinstance(entry, Plan) and entry.real_time]
        return max(recorded, default=found.first - 1)


class AdoptingPlansOnly(PlansPast):
    """Does not say in its claim where sources began."""

    @property
    def adopted(self) -> Mapping[int, int]:
        return {number: epoch for number, epoch in super().adopted.items() if number not in self._listing}


class InRealTimeAtOnce(PlansPast):
    """A run in real time begins with what was planned as micro-batches."""

    @property
    def settings(self) -> Settings:
        return self._round.settings.in_real_time() if self._round.request.real_time else self._round.settings


class TakingItBack(Admission):
    """A query that goes back in place claims the stream, whoever has it now."""

    def is_its_own(self, claim: Claim) -> bool:  # noqa: ARG002
        return True


class NumbersAnew(PlansPast):
    """A stream that begins anew begins with epoch 0."""

    @property
    def first(self) -> int | None:
        return super().first if self._last.end is None else None


class TrustingObjects(Candidates):
    """Goes on from a checkpoint whose `_metadata` is there."""

    def found_damaged(self, event: ev.ObjectsVerified) -> str | None:  # noqa: ARG002
        return None


class OnceBad(Candidates):
    """What a run has noted as damaged stays so."""

    def look_again(self, noted: Iterable[CheckpointId]) -> list[Instruction]:  # noqa: ARG002
        raise self.none_intact
