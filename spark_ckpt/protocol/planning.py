"""What the log says of the epoch in hand: its plan before it runs; in real time, where what an epoch reads is known when it has ended, a
record of it then. Nobody waits for a record but the epoch after the next one. It fences like a plan, and never runs again."""

from __future__ import annotations

from typing import Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.driver_folder import DriverFolder
from spark_ckpt.protocol.entries import Claim, Plan
from spark_ckpt.protocol.epoch import EpochInHand
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.log import RunLog
from spark_ckpt.protocol.start.beginning import Replaced


def begun(claim: Claim, epoch: int) -> Plan:
    """Of an epoch that runs in real time."""
    return Plan(claim.claim, claim.run, epoch, b"", real_time=True)


class PlanningOwner(Protocol):
    """The run, as the plans of its epochs see it."""

    def plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The run cannot go on."""


class Planning:
    def __init__(self, owner: PlanningOwner, context: Context, epoch: EpochInHand, folder: DriverFolder, log: RunLog) -> None:
        self._owner = owner
        self._context = context
        self._epoch = epoch
        self._folder = folder
        self._log = log

    @property
    def real_time(self) -> bool:
        return self._context.settings.real_time

    @property
    def may_go(self) -> bool:
        """Whether the epoch in hand may run."""
        number = self._epoch.number
        return self._log.may_go(number, logged=self._epoch.log(number) > 0)

    def begin(self, event: ev.TriggerRequested) -> list[Instruction]:
        if self.real_time:
            return self._begin_in_real_time(event)
        again = self._epoch.planned_before is not None
        puts = self._folder.take_in_planned(event.epoch, event.offsets, event.files, self._epoch.listed())
        plan = self._entry(event.epoch, event.offsets, again)
        if not self._epoch.planned(plan):
            message = "was planned before with other data, and a sink may have seen that; start the query again to run it as it was planned"
            return self._owner.plan_failed(ErrorKind.CONFLICT, f"epoch {event.epoch} {message}")
        return [*puts, *self._log.append(plan)]

    def _begin_in_real_time(self, event: ev.TriggerRequested) -> list[Instruction]:
        """Rule: until a successor is sure to find a checkpoint, the log says of each epoch that it begins, before it does. So it is known
        which numbers were used, and where the sources began."""
        puts = self._folder.take_in(event.files, event.epoch)
        self._epoch.plan = begun(self._context.claim, event.epoch)
        return puts if self._log.may_run_ahead else [*puts, *self.record(event.epoch, b"")]

    def again(self, event: ev.TriggerRequested) -> list[Instruction]:
        """The driver asks once more, since the coordinator that had answered, or not, has died."""
        if self.real_time:
            return self._folder.take_in(event.files, event.epoch)
        return self._folder.take_in_planned(event.epoch, event.offsets, event.files)

    def end(self, event: ev.SealRequested) -> list[Instruction]:
        """It has ended."""
        if not self.real_time:
            return self._folder.take_in(event.files, event.epoch)
        puts = self._folder.take_in_planned(event.epoch, event.offsets, event.files)
        return [*puts, *self.record(event.epoch, event.offsets)]

    def take_over(self, replaced: Replaced | None) -> list[Instruction]:
        """Records of the last epochs that had ended may have been lost with the coordinator."""
        lost = sorted(replaced.unrecorded.items()) if replaced is not None else []
        return [i for epoch, offsets in lost for i in self.record(epoch, offsets)]

    def record(self, epoch: int, offsets: bytes) -> list[Instruction]:
        """What a real-time epoch has read; nothing: that it begins."""
        return self._log.append(self._entry(epoch, offsets, False))

    def _entry(self, epoch: int, offsets: bytes, rerun: bool) -> Plan:
        claim = self._context.claim
        return Plan(claim.claim, claim.run, epoch, offsets, self._folder.files.take_changes(), rerun, real_time=self.real_time)
