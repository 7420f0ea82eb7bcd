"""What must hold of a claim when it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.retention.order import newest_first

if TYPE_CHECKING:
    from simulation.world import World


class ClaimChecks:
    """`listed_at`: when the driver that claims had listed the checkpoints."""

    def __init__(self, world: World, observed: Counter[Observed]) -> None:
        self._world = world
        self._observed = observed
        self.fallen_back: set[CheckpointId] = set()
        """Where all that was newer was damaged: what is left is worth a try, and may just be deleted."""
        self._dropped: set[CheckpointId] = set()
        """What a run had gone past, so that it may delete it at any time."""

    def check(self, claim: Claim, anew: bool, listed_at: int) -> None:
        """Before it counts as the last. `anew`: the stream had been deleted."""
        earlier = self._world.log.claims
        self.check_damaged(claim.claim, claim.bad)
        self._observed[Observed.PASSED_OVER] += len(set(claim.bad) - {c for one in earlier for c in one.bad})
        self._check_origin(claim, listed_at)
        last = self._world.log.last_claim
        source = self._source(claim, last)
        if last and not anew:
            self._dropped.update(self._world.dropped_by(last))
            if source is not None and source in self._dropped and self._passed_over(last, source, listed_at):
                self.fallen_back.add(source)
            elif source is not None and self._is_chosen(claim, listed_at):
                self.fallen_back.discard(source)
        self._world.log.adopt(claim)
        if anew:
            self._check_anew(claim)
        elif self._is_chosen(claim, listed_at):
            self._check_chosen(claim)
        else:
            self._check_newest(claim, listed_at)
        new = claim.first is not None and claim.first not in {c.first for c in earlier}
        self._observed[Observed.ANEW if anew else Observed.RENUMBERED] += new

    def _is_chosen(self, claim: Claim, listed_at: int) -> bool:
        """Whether a person's choice is applied with this claim: the first that names it, or again because the one before was cut short."""
        last = self._world.log.last_claim
        before = last.restored if last else None
        if claim.restored is None or last is None or before is None or before.path != claim.restored.path:
            return claim.restored is not None
        imported = before.imported
        own = imported is not None and imported.run == last.run
        gone = claim.restored.imported != imported  # it was when somebody looked
        found = claim.origin == imported  # its copy may have landed while the checkpoints were being listed
        return own and (gone or not (found or any(time < listed_at for time in self._world.completed.get(last.run, {}).values())))

    def _check_anew(self, claim: Claim) -> None:
        chosen = (claim.origin,) if claim.restored is not None and claim.restored.imported == claim.origin else ()
        if claim.origin not in (None, *chosen) or claim.inherits != chosen:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {claim.origin}, the stream was deleted")

    def check_damaged(self, number: int, bad: Iterable[CheckpointId]) -> None:
        """What a start went back to may be deleted meanwhile, being past `retained`: it is as good as damaged. So is what landed late, when
        its objects had been deleted."""
        whole = sorted(c for c in set(bad) - self._world.damage.ever if self._world.is_reliable(c))
        if whole:
            raise ViolationError(Invariant.LOG_WHOLE, f"entry {number} says that {whole} are damaged, which never were")

    def _check_origin(self, claim: Claim, listed_at: int) -> None:
        origin = self._world.checkpoints.get(claim.origin) if claim.origin else None
        if origin is not None and self._world.damage.seen_before(origin, listed_at):
            raise ViolationError(Invariant.ORIGIN_WHOLE, f"claim {claim.claim} begins from {origin.id}, damaged before it was looked at")

    def _passed_over(self, claim: Claim, origin: CheckpointId | None, at: int) -> bool:
        """Whether all that is newer in the lineage was damaged. Without an origin everything runs again as planned, from the beginning."""
        own = sorted((epoch for epoch, time in self._world.completed.get(claim.run, {}).items() if time < at), reverse=True)
        order = [*(CheckpointId(claim.run, epoch) for epoch in own), *([claim.origin] if claim.origin else [])]
        order += sorted(claim.inherits, reverse=True)
        newer = order[: order.index(origin)] if origin in order else order
        passed = self._world.damage.ever & set(newer)
        return bool(passed) and (origin is None or origin in order) and not (set(newer) - passed) & self._world.checkpoints.keys()

    def _source(self, claim: Claim, last: Claim | None) -> CheckpointId | None:
        """What the origin is a copy of, where the query has changed: of the last run's, the newest of that epoch. Else itself."""
        origin = claim.origin
        if last is None or origin is None or origin.run != claim.run:
            return origin
        self._observed[Observed.RENUMBERED_OPERATORS] += 1
        own = (CheckpointId(last.run, epoch) for epoch in self._world.completed.get(last.run, {}))
        return next((c for c in newest_first(last, own) if c.epoch == origin.epoch and self._world.was_completed(c)), origin)

    def _check_newest(self, claim: Claim, listed_at: int) -> None:
        last = self._world.log.last_claim
        origin = self._source(claim, last)
        due = self._world.newest_of_lineage(last, listed_at)
        if last and self._passed_over(last, origin, listed_at):
            return
        newer = last and origin and origin.run == last.run and (due is None or due.run != last.run or origin.epoch > due.epoch)
        if origin != due and not newer:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {origin}, the newest was {due}")

    def _check_chosen(self, claim: Claim) -> None:
        assert claim.restored is not None
        self._observed[Observed.CHOSEN] += 1
        path, imported = claim.restored.path, claim.restored.imported
        if imported is None:
            right = claim.origin is not None and own_path(claim.origin) == path
        elif path.startswith("stream/"):
            right = claim.origin == imported == CheckpointId(claim.run, checkpoint_at(path).epoch)
            self._observed[Observed.RENUMBERED_OPERATORS] += 1
        else:
            saved = self._world.savepoints[path].checkpoint.id
            right = claim.origin == imported == CheckpointId(claim.run, saved.epoch)
            self._observed[Observed.IMPORTED] += 1
        if not right:
            raise ViolationError(Invariant.NEWEST_RESTORED, f"claim {claim.claim} begins from {claim.origin}, a person chose {path}")


def own_path(checkpoint: CheckpointId) -> str:
    """What a person types to choose it."""
    return f"stream/run-{checkpoint.run}/chk-{checkpoint.epoch}"


def checkpoint_at(path: str) -> CheckpointId:
    """The reverse of `own_path`."""
    _, run, epoch = path.split("/")
    return CheckpointId(int(run.removeprefix("run-")), int(epoch.removeprefix("chk-")))
