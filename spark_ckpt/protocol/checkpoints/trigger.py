"""Which epochs become checkpoints: at their barrier, or late, once they have ended (Flink: `CheckpointCoordinator.triggerCheckpoint`)."""

from __future__ import annotations

from typing import Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.pending import FinishedEpoch, PendingCheckpoint
from spark_ckpt.protocol.checkpoints.pending_checkpoints import PendingCheckpoints
from spark_ckpt.protocol.checkpoints.policy import CheckpointPolicy
from spark_ckpt.protocol.checkpoints.savepoint_queue import SavepointQueue
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.epoch import EpochInHand
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import AbortReason
from spark_ckpt.protocol.retention.subsumption import Subsumption


class TriggerOwner(Protocol):
    """The run, as the trigger of its checkpoints sees it."""

    @property
    def is_quiet(self) -> bool:
        """No barrier is to be expected soon: no epoch runs, or a long one does."""


class CheckpointTrigger:
    """`policy` says when a checkpoint is due, `savepoints` whether one is asked for."""

    def __init__(
        self,
        owner: TriggerOwner,
        context: Context,
        epoch: EpochInHand,
        executors: Executors,
        subsumption: Subsumption,
        policy: CheckpointPolicy,
        savepoints: SavepointQueue,
        checkpoints: PendingCheckpoints,
    ) -> None:
        self._owner = owner
        self._context = context
        self._epoch = epoch
        self._executors = executors
        self._subsumption = subsumption
        self._policy = policy
        self._savepoints = savepoints
        self._checkpoints = checkpoints

    def begin(self, epoch: int, triggered_ms: int, pressure: bool) -> list[Instruction]:
        """The epoch's checkpoint, if one is due or asked for. One that is asked for is a savepoint, and counts neither as pending nor
        when it fails. `pressure`: a spool that fills up is a reason too."""
        asked = not self._context.every_epoch and self._savepoints.needs_checkpoint
        # A spool that is half full of what only a checkpoint frees.
        presses = pressure and self._executors.fullest > self._context.settings.spool_max_bytes // 2
        due = self._policy.is_due(self._checkpoints.uploading, presses)
        if not (asked or due or self._savepoints.finishing):
            return []
        p = self._checkpoints.begin(epoch, self._epoch.log(epoch), triggered_ms, self._epoch.plan_ms)
        begun = self._checkpoints.tell_triggered(p)
        if asked:
            self._assign(p)
        return [*(self._policy.triggered() if due else []), *begun]

    def _assign(self, p: PendingCheckpoint) -> None:
        p.savepoint, p.bridges = True, False
        self._savepoints.assign(p.epoch)

    def proceed(self, pressure: bool = False) -> list[Instruction]:
        """While no epoch runs there is no barrier: the newest finished epoch becomes the checkpoint, one at a time.

        While a long one runs that is true as well, and its predecessor's state lies in the spools alone. Whether they still have all of it
        nobody knows: a spool that fills up gives up what its newest epoch has replaced. So that checkpoint is given up when the long epoch
        ends, unless a savepoint needs it, and another one is due at once.
        """
        finished, newest = self._checkpoints.finished, self._subsumption.store.newest
        if not self._owner.is_quiet:
            return []
        if finished is None or self._subsumption.completed_epoch >= finished.epoch:
            copies = self._savepoints.copy(newest) if newest else self._savepoints.nothing_to_save()
            return [*copies, *self._savepoints.finished()]
        p = self._checkpoints.of(finished.epoch)
        if p is not None:
            if self._savepoints.needs_checkpoint:
                self._assign(p)
            return []
        if finished.required is None or self._checkpoints.late is not None:
            return []
        begun = self.begin(finished.epoch, finished.time_ms, pressure and not self._epoch.is_long)
        p = self._checkpoints.of(finished.epoch)
        if p is None:
            return begun
        p.bridges = self._epoch.is_long and not p.savepoint
        if p.put is not None:
            return begun
        return [*begun, self._late(p), *self._checkpoints.seal(p, finished)]

    def seal(self, p: PendingCheckpoint, finished: FinishedEpoch, before: FinishedEpoch | None) -> list[Instruction]:
        """Its epoch has ended. `before`: the epoch that had ended last."""
        if finished.required is None:
            return self._checkpoints.abort(p, AbortReason.BAD_COMMIT, ErrorKind.DAMAGED, finished.problem)
        instructions = self._checkpoints.seal(p, finished)
        unchanged = not p.acks.missing.isdisjoint(before.required or ()) if before else False
        if unchanged and p in self._checkpoints.pending and self._checkpoints.late is None:
            # A store that took no part in the epoch commits nothing at its barrier, and may not be stored yet.
            instructions.append(self._late(p))
        return instructions

    def _late(self, p: PendingCheckpoint) -> Instruction:
        p.late = True
        return do.Late(self._context.claim.run, p.epoch)
