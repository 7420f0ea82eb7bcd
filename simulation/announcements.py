"""What a simulated driver's listeners are told, checked when it is said."""

from __future__ import annotations

from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Announcement
from spark_ckpt.protocol.reasons import TOLERATED, AbortReason
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.run_phases import RunPhase


class Announcements:
    """Of one driver. `completed_epoch`: the newest that it was told of."""

    def __init__(self, name: str, env: Environment, max_concurrent: int) -> None:
        self.completed_epoch = -1
        self._name = name
        self._env = env
        self._max_concurrent = max_concurrent
        self._pending: set[int] = set()

    def forget_pending(self) -> None:
        """Another run, or another coordinator, begins."""
        self._pending.clear()

    def hear(self, i: do.Announce, run: Run | None, finishing: bool) -> None:
        """`finishing`: the query is about to end, and its last epoch becomes a checkpoint in any case."""
        named = CheckpointId(i.summary["run"], i.summary["epoch"])
        self._env.tell(f"{self._name} announces {i.event.name} of {named} {i.summary.get('reason', '')}")
        if i.event is Announcement.TRIGGERED:
            self._pending.add(named.epoch)
            making = run.making if run is not None and not run.context.waits_for_checkpoints else self._pending
            if len(making) > self._max_concurrent + finishing:
                raise ViolationError(Invariant.CONCURRENT, f"{self._name} has the checkpoints {sorted(making)} in the making")
        else:
            self._pending.discard(named.epoch)
        if i.event is Announcement.ABORTED:
            self._count_aborted(AbortReason(i.summary["reason"]), run)
            if "was deleted" in i.summary["message"]:
                raise ViolationError(Invariant.DELETED_UNUSED, f"{self._name}: {i.summary['message']}")
            self._env.world.aborted.add(named)
        if i.event is Announcement.COMPLETED:
            self._env.observed[Observed.COMPLETED] += 1
        if i.event in (Announcement.COMPLETED, Announcement.STANDS):
            self._completed(named, run)
        if i.event is Announcement.RESTORED:
            self._env.observed[Observed.RESTORED] += 1
            self.completed_epoch = self._env.world.reached(run.claim, self._env.clock.now + 1) if run else named.epoch

    def _completed(self, named: CheckpointId, run: Run | None) -> None:
        self._env.observed[Observed.BRIDGED] += run is not None and run.phase is RunPhase.RUNNING and run.epoch.is_long
        self.completed_epoch = max(self.completed_epoch, named.epoch)
        if not self._env.world.was_completed(named):
            raise ViolationError(Invariant.COMPLETED_STORED, f"{self._name} announces {named}, whose _metadata was never stored")
        self._env.world.aborted.discard(named)
        self._env.world.check_whole(named)

    def _count_aborted(self, reason: AbortReason, run: Run | None) -> None:
        self._env.observed[Observed.SUBSUMED if reason is AbortReason.SUBSUMED else Observed.ABORTED] += 1
        if reason in TOLERATED and run and run.phase is not RunPhase.FAILED:
            self._env.observed[Observed.TOLERATED] += 1
