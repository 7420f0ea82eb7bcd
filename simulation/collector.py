"""A person's `gc` while runs are alive: the real `garbage`, between reads that take their time."""

from __future__ import annotations

from collections.abc import Callable

from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.mutations import CollectOrder
from simulation.observed import Observed
from spark_ckpt.errors import FormatError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol.entries import Claim, Entry, decode
from spark_ckpt.protocol.retention.garbage import (
    Settled,
    entry_before_barrier,
    garbage,
    garbage_of_living,
    is_bare,
    kept_checkpoints,
    settled,
    vanished,
)

LONGEST_PAUSE = 300
MIN_AGE = 0
"""What is safe does not rest on it."""


class Collector:
    """Claim, kept checkpoints, the run's own checkpoints, claim again, keys, plans, and the checkpoints and the claim once more: in this
    order. `done` is called at the end."""

    def __init__(self, env: Environment, order: CollectOrder, done: Callable[[], None] = lambda: None) -> None:
        self._env = env
        self._order = order
        self._done = done
        self._read: dict[CheckpointId, Checkpoint] = {}

    def start(self) -> None:
        if not self._env.world.log.entries:
            self._done()
            return
        claim = self._last_claim()
        self._env.observed[Observed.GC] += 1
        if claim is None:
            self._done()
            return
        self._read = {}
        if self._env.world.log.ended:
            self._later(lambda: self._keys(claim, ended=True))
        elif self._order is CollectOrder.OWN_FIRST:
            self._later(lambda: self._list(claim, lambda: self._kept(claim, lambda: self._confirm(claim))))
        else:
            self._later(lambda: self._kept(claim, lambda: self._own(claim, lambda: self._confirm(claim))))

    def _confirm(self, claim: Claim) -> None:
        """A successor of the claim's run may have deleted all that was looked for, and go on from what was not."""
        if self._is_superseded(claim):
            self._later(self.start)
        elif self._has_vanished(claim):
            self._env.tell("gc deletes nothing: a checkpoint has vanished")
            self._done()
        else:
            self._later(lambda: self._keys(claim))

    def _is_superseded(self, claim: Claim) -> bool:
        return self._order is not CollectOrder.CLAIM_ONCE and self._last_claim() != claim

    def _has_vanished(self, claim: Claim) -> bool:
        return self._order is CollectOrder.RIGHT and bool(
            vanished(claim, self._read) or is_bare(claim, self._env.world.log.floor, self._read)
        )

    def _last_claim(self) -> Claim | None:
        """None: the log is damaged."""
        world = self._env.world
        last = self._entry(world.log.tail)
        claim = last if isinstance(last, Claim) or last is None else self._entry(last.claim)
        if claim is None:
            return None
        assert last is not None
        if not isinstance(claim, Claim):
            raise ViolationError(
                Invariant.LOG_WHOLE, f"entry {world.log.tail} names claim {last.claim}, which is a {type(claim).__name__.lower()}"
            )
        return claim

    def _entry(self, number: int) -> Entry | None:
        data = self._env.world.log.read(number)
        try:
            return None if data is None else decode(number, data)
        except FormatError:
            return None

    def _later(self, step: Callable[[], None]) -> None:
        """It may be far away, or be stopped for a while."""
        pause = self._env.rng.randrange(LONGEST_PAUSE) if self._env.chance(self._env.faults.gc) else 0
        self._env.clock.after(pause + self._env.delay(), step)

    def _look(self, wanted: list[CheckpointId], then: Callable[[], None]) -> None:
        """Read `_metadata` of these, one after the other."""
        if not wanted:
            then()
            return

        def read() -> None:
            found = self._env.world.read_metadata(wanted[0])
            if isinstance(found, str) and self._order is not CollectOrder.UNREADABLE:
                self._env.tell(f"gc deletes nothing: {found}")
                self._done()
                return
            if isinstance(found, Checkpoint):
                self._read[wanted[0]] = found
            self._look(wanted[1:], then)

        self._later(read)

    def _kept(self, claim: Claim, then: Callable[[], None]) -> None:
        self._look(sorted(kept_checkpoints(claim)), then)

    def _list(self, claim: Claim, then: Callable[[], None]) -> None:
        self._look(list(self._env.world.of_run(claim.run)), then)

    def _own(self, claim: Claim, then: Callable[[], None]) -> None:
        listed = self._env.world.of_run(claim.run)

        def again() -> None:
            if all(c in self._read for c in listed):
                self._later(then)
            else:
                self._own(claim, then)

        self._look(list(listed), again)

    def _left_by_the_living(self, claim: Claim) -> tuple[str, ...]:
        world = self._env.world
        newest = settled(found for c, found in self._read.items() if c.run == claim.run)
        if newest is None:
            return ()
        before = world.log.times[entry_before_barrier(claim, newest, world.log.floor, self._entry)]
        if self._order is CollectOrder.UNSETTLED:
            before = self._env.clock.now
        return garbage_of_living(Settled(newest, before), self._read.values(), world.stored(), MIN_AGE)

    def _keys(self, claim: Claim, ended: bool = False) -> None:
        keys = self._env.world.keys()
        if ended:
            self._collect(claim, keys, frozenset(), ended=True)
        else:
            self._later(lambda: self._plans(claim, keys))

    def _plans(self, claim: Claim, keys: list[str]) -> None:
        planned = self._env.world.log.planned_objects()
        before, self._read = self._read, {}

        def confirm() -> None:
            if self._is_superseded(claim):
                self._later(self.start)
            elif self._has_vanished(claim):
                self._env.tell("gc deletes nothing: a checkpoint has vanished since the plans were read")
                self._done()
            else:
                self._read = {**before, **self._read}
                self._collect(claim, keys, planned)

        if self._order is CollectOrder.PLANS_LAST:
            self._read = before
            self._collect(claim, keys, planned)
        elif self._order is CollectOrder.OWN_FIRST:
            self._later(lambda: self._list(claim, lambda: self._kept(claim, confirm)))
        else:
            self._later(lambda: self._kept(claim, lambda: self._own(claim, confirm)))

    def _collect(self, claim: Claim, keys: list[str], planned: frozenset[str], ended: bool = False) -> None:
        batch = garbage(claim, self._read.values(), keys, ended, planned)
        left = () if ended else self._left_by_the_living(claim)
        self._env.observed[Observed.COLLECTED_ALIVE] += len(left)
        found = f"{len(batch.checkpoints)} checkpoints, {len(batch.objects)} objects, {len(left)} of the living run"
        self._env.tell(f"gc under claim {claim.claim}: {found}")

        def objects() -> None:
            self._env.world.collect(claim.run, (), [*batch.objects, *left])
            self._done()

        def metadata() -> None:
            self._env.world.collect(claim.run, batch.checkpoints, ())
            self._later(objects)

        self._later(metadata)
