"""Snapshots that may have died with their executor: those who may have them are asked, before a checkpoint is given up."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.pending import PendingCheckpoint
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import AbortReason
from spark_ckpt.protocol.timers import Timers


class LossOwner(Protocol):
    """The checkpoints in the making, as the look for their snapshots sees them."""

    pending: list[PendingCheckpoint]

    def take_left(self, event: ev.LeftAcksRead) -> list[Instruction]:
        """Acks that a dead executor's agent has left."""

    def abort(self, p: PendingCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]: ...


class LostSnapshots:
    """First the live executors say what they hold, then it is looked for acks that were left in the storage."""

    def __init__(self, owner: LossOwner, context: Context, timers: Timers, executors: Executors) -> None:
        self._owner = owner
        self._context = context
        self._timers = timers
        self._executors = executors

    def executors_lost(self) -> list[Instruction]:
        """Rule: what the live ones hold they say again, and each loss gives them the whole grace for that."""
        return [*self._timers.cancel(ev.Timer.GRACE), *self.wait()]

    def _at_risk(self) -> list[PendingCheckpoint]:
        """Those that wait for acks and may wait in vain: for an id that was committed before the last loss, or may have been."""
        losses = self._executors.losses
        waiting = [p for p in self._owner.pending if p.waits_for_acks and p.left is None]
        return [p for p in waiting if any(losses > p.losses[uid] for uid in p.acks.missing)]

    def wait(self) -> list[Instruction]:
        if not self._at_risk() or self._timers.runs(ev.Timer.GRACE):
            return []
        return self._timers.set(ev.Timer.GRACE, self._context.settings.grace_ms, self._look_for_left)

    def _look_for_left(self, _event: ev.TimerFired) -> list[Instruction]:
        """An agent outlives its executor and leaves its acks in the storage; look there before giving up."""
        looks: list[Instruction] = []
        for p in self._at_risk():
            asked = self._context.questions.ask(
                partial(do.ReadLeftAcks, run=p.id.run, epoch=p.epoch),
                partial(self._left_found, p, self._executors.losses),
                partial(self._left_not_read, p),
            )
            p.left = asked.ticket
            looks.append(asked)
        return looks

    def _left_found(self, p: PendingCheckpoint, losses: int, event: ev.LeftAcksRead) -> list[Instruction]:
        """`losses`: how many there had been when it was looked for. After another one the live executors have their grace once more."""
        p.left = None
        instructions = self._owner.take_left(event)
        if p not in self._owner.pending or not p.waits_for_acks:
            return instructions
        lost = p.acks.missing - self._executors.held
        if not lost or losses < self._executors.losses:
            return instructions + self.wait()
        again = "; it has to run again" if self._context.waits_for_checkpoints else ""
        message = f"{len(lost)} of {len(p.acks.required)} snapshots of epoch {p.epoch} died with their executor{again}"
        return instructions + self._owner.abort(p, AbortReason.LOST, ErrorKind.LOST, message)

    def _left_not_read(self, p: PendingCheckpoint, _event: ev.ReadFailed) -> list[Instruction]:
        p.left = None
        return self.wait()
