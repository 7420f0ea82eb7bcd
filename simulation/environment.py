"""What everything in one simulation shares."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.clock import Clock
from simulation.faults import Faults
from simulation.hook import Publication
from simulation.observed import Observed
from simulation.world import World

SLOW = 300


@dataclass
class Environment:
    """One for each simulated stream; times in milliseconds."""

    rng: random.Random
    clock: Clock
    world: World
    faults: Faults
    observed: Counter[Observed]
    tell: Callable[[str], None]
    publication: Publication
    down_until: int = 0
    pressed_at: int = -1
    """When a spool last filled up."""
    begins: int = 0
    """Where the input of the stream begins: later when it was deleted, and what it had read archived."""

    answering: set[int] = field(default_factory=set)
    """Requests whose answers were ever on their way."""

    ended_as_asked: dict[int, str] = field(default_factory=dict)
    """Run -> the savepoint with which whoever had asked for its end was answered."""

    ended: dict[int, int] = field(default_factory=dict)
    """Run -> the newest epoch that its driver knows to have ended."""

    @property
    def down(self) -> bool:
        """The storage is away."""
        return self.clock.now < self.down_until

    def chance(self, probability: float, what: Observed | None = None) -> bool:
        if probability <= 0 or self.rng.random() >= probability:
            return False
        if what is not None:
            self.observed[what] += 1
        return True

    def delay(self) -> int:
        """Of one way to the storage."""
        if self.chance(self.faults.slow, Observed.SLOW):
            return self.rng.randrange(10, SLOW)
        return self.rng.randrange(1, 6)
