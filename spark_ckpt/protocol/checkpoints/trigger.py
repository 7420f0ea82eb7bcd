"""Which epochs become checkpoints: at their barrier, or late, once they have ended (Flink: `CheckpointCoordinator.triggerCheckpoint`)."""

from __future__ import annotations

from typing import Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.pending import FinishedEpoch, PendingCheckpoint
from spark_ckpt.protocol.checkpoints.pending_checkpoints import PendingCheckpoints
from spark_ckpt.protocol.checkpoints.policy import CheckpointPolicy
from spark_ckpt.protocol.checkpoints.savepoint_queue import SavepointQueue
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.epoch import EpochInHand
from spark_ckpt.protocol.instructions import Instruction, Level
from spark_ckpt.protocol.reasons import AbortReason
from spark_ckpt.protocol.retention.subsumption import Subsumption
from spark_ckpt.protocol.timers import Timers

UNASKED_MS = 3_600_000
"""After so many milliseconds without a checkpoint, where only people ask for one, a warning; and again."""


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
        timers: Timers,
    ) -> None:
        self._owner = owner
        self._context = context
        self._epoch = epoch
        self._executors = executors
        self._subsumption = subsumption
        self.policy = policy
        self._savepoints = savepoints
        self._checkpoints = checkpoints
        self._timers = timers
        self._base_before: CheckpointId | None = None
        """The newest completed one at the last look whether anybody still asks."""

    def take_over(self, sealed: int) -> None:
        """From a coordinator that has died: what was in the making is forgotten, hence the next one is due. After a start under new numbers
        the newest checkpoint holds all up to `sealed`, which is no number of its own."""
        if sealed > self._subsumption.completed_epoch:
            self._checkpoints.ended = max(sealed, self._checkpoints.ended)
        self.policy.due_again()

    def watch(self) -> list[Instruction]:
        """Rule: where only people ask for checkpoints, they are told while they do not."""
        if self._context.waits_for_checkpoints or self.policy.interval_ms is not None:
            return []
        self._base_before = self._subsumption.base
        return self._timers.set(ev.Timer.UNASKED, UNASKED_MS, self._look_for_requests)

    def _look_for_requests(self, _event: ev.TimerFired) -> list[Instruction]:
        lag, forgotten = self._checkpoints.lag, self._base_before == self._subsumption.base
        if not lag.epochs or not forgotten:
            return self.watch()
        message = (
            f"the newest checkpoint is {lag.ms // 60_000} minutes old: after a crash {lag.epochs} epochs would run again, and their plans "
            "stay in the log. With spark.ckpt.interval=never a request completes one: `spark-ckpt checkpoint` with the URL of "
            "this stream, or spark_ckpt.checkpoint(query)"
        )
        return [do.Log(Level.WARN, message), *self.watch()]

    def begin(self, epoch: int, triggered_ms: int, pressure: bool) -> list[Instruction]:
        """The epoch's checkpoint, if one is due or asked for. One for a savepoint counts neither as pending nor when it fails; one that a
        person has asked for waits for neither interval nor pause, and does not count when it fails. `pressure`: what only a checkpoint
        frees is a reason too."""
        self._savepoints.join([p.epoch for p in self._checkpoints.pending])
        uploading, background = self._checkpoints.uploading, not self._context.waits_for_checkpoints
        copied = background and self._savepoints.needs_copy
        asked = background and self._savepoints.needs_checkpoint(epoch) and self.policy.has_room(uploading)
        due = self.policy.is_due(uploading, pressure and self._presses)
        if not (copied or asked or due or self._savepoints.finishing):
            return []
        p = self._checkpoints.begin(epoch, self._epoch.log(epoch), triggered_ms, self._epoch.plan_ms)
        p.on_demand, p.bridges = asked and not due, self._epoch.is_long
        begun = self._checkpoints.tell_triggered(p)
        if copied or asked:
            self._assign(p)
        return [*(self.policy.triggered() if due or asked else []), *begun]

    @property
    def _presses(self) -> bool:
        """A spool is half full, or the epochs that a start would have to run again are too many."""
        settings = self._context.settings
        return self._executors.fullest > settings.spool_max_bytes // 2 or self._checkpoints.lag.epochs >= settings.most_behind

    def _assign(self, p: PendingCheckpoint) -> None:
        if self._savepoints.needs_copy:
            p.savepoint, p.bridges = True, False
        self._savepoints.assign(p.epoch)

    def proceed(self, pressure: bool = False) -> list[Instruction]:
        """While no epoch runs there is no barrier: the newest finished epoch becomes the checkpoint, one at a time.

        While a long one runs that is true as well, and its predecessor's state lies in the spools alone. Whether they still have all of it
        nobody knows: a spool that fills up gives up what its newest epoch has replaced. So that checkpoint is given up when the long epoch
        ends, unless a savepoint needs it, and another one is due at once. Rule: in real time, where epochs are as long as each other, none
        is begun that would be given up a moment later.
        """
        finished, newest = self._checkpoints.finished, self._subsumption.store.newest
        if not self._owner.is_quiet:
            return []
        if finished is None or self._subsumption.completed_epoch >= finished.epoch:
            copies = self._savepoints.copy(newest) if newest else self._savepoints.nothing_to_save()
            return [*copies, *self._savepoints.finished()]
        p = self._checkpoints.of(finished.epoch)
        if p is not None:
            if self._savepoints.needs_copy or self._savepoints.needs_checkpoint(p.epoch):
                self._assign(p)
            return []
        if finished.unfit:
            return self._savepoints.unfit(finished.epoch, finished.unfit)
        given_up_soon = self._context.settings.real_time and self._epoch.is_about_to_end and not self._savepoints.needs_copy
        if self._checkpoints.late is not None or given_up_soon:
            return []
        begun = self.begin(finished.epoch, finished.time_ms, pressure and not self._epoch.is_long)
        p = self._checkpoints.of(finished.epoch)
        if p is None or p.put is not None:
            return begun
        return [*begun, self._late(p), *self._checkpoints.seal(p, finished)]

    def seal(self, p: PendingCheckpoint, finished: FinishedEpoch, before: FinishedEpoch | None) -> list[Instruction]:
        """Its epoch has ended. `before`: the epoch that had ended last."""
        if finished.required is None:
            return self._checkpoints.abort(p, AbortReason.BAD_COMMIT, ErrorKind.DAMAGED, finished.problem)
        if finished.declined:
            return self._checkpoints.abort(p, AbortReason.DECLINED, ErrorKind.DECLINED, finished.declined)
        instructions = self._checkpoints.seal(p, finished)
        unchanged = not p.acks.missing.isdisjoint(before.required or ()) if before else False
        if unchanged and p in self._checkpoints.pending and self._checkpoints.late is None:
            # A store that took no part in the epoch commits nothing at its barrier, and may not be stored yet.
            instructions.append(self._late(p))
        return instructions

    def _late(self, p: PendingCheckpoint) -> Instruction:
        p.late = True
        return do.Late(self._context.claim.run, p.epoch)
