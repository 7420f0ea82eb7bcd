"""What runs and starts do about old entries of the log, with one rule each left out."""

from __future__ import annotations

from typing import ClassVar

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import leads
from spark_ckpt.protocol.retention.log_trim import LogTrim
from spark_ckpt.protocol.start.start import Start
from spark_ckpt.protocol.start.state import StartPhase


class TakingYoung(LogTrim):
    """However young an entry is."""

    def old(self, found: tuple[tuple[int, int], ...]) -> list[int]:
        return [number for number, _ in found]


class KnowingFromTheFloor(LogTrim):
    """Takes what stays below the floor for what nobody asks for."""

    def staying(self, number: int) -> tuple[int, ...]:
        return super().staying(max(number, self._floor - 1))


class TakingTheClaim(LogTrim):
    """The claim under which the entry at the floor was written is an entry like others."""

    def superfluous(self, old: list[int], in_force: int) -> tuple[int, ...]:  # noqa: ARG002
        return super().superfluous(old, 0)


class SureOfItsClaim(Start):
    """A claim that is stored holds."""

    TABLE: ClassVar = {
        **Start.TABLE,
        (StartPhase.CLAIMING, ev.EntryPut): leads("_to_put", StartPhase.IMPORTING, StartPhase.DONE),
        (StartPhase.CLAIMING, ev.EntryRead): leads("_to_put", StartPhase.LOCATING, StartPhase.IMPORTING, StartPhase.DONE),
    }

    def _look_past(self, number: int) -> list[Instruction]:  # noqa: ARG002
        return self._import() if self._imported else self._done()
