"""What runs and starts do about old entries of the log, with one rule each left out."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.log_trim import LogTrim
from spark_ckpt.protocol.start.claiming import Claiming


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


class SureOfItsClaim(Claiming):
    """A claim that is stored holds."""

    def past_seen(self, event: ev.PastSeen) -> list[Instruction]:
        return super().past_seen(replace(event, found=None, data=None))
