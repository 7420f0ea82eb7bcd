"""One seed: a stretch of faults with several drivers, then quiet; and many seeds, counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from spark_ckpt.protocol.run import Settings
from spark_ckpt.testing.simulation.clock import Clock
from spark_ckpt.testing.simulation.collector import Collector
from spark_ckpt.testing.simulation.driver import LARGEST_EPOCH, Driver
from spark_ckpt.testing.simulation.faults import EVERYDAY, QUIET, draw
from spark_ckpt.testing.simulation.happened import Happened
from spark_ckpt.testing.simulation.left_out import Rules
from spark_ckpt.testing.simulation.port import Surroundings
from spark_ckpt.testing.simulation.rules import Rule, ViolationError
from spark_ckpt.testing.simulation.stage import Sink, Source

TROUBLE = 1500
"""Milliseconds of faults."""
QUIET_LIMIT = 60_000
SETTLING = 4_000
INPUT = (10, 30, 60)
"""A short one lets runs become idle."""
EVERYDAY_INPUT = 3 * LARGEST_EPOCH
"""More than what can be planned past the sink's end."""
QUIET_INPUT = 5 * LARGEST_EPOCH
"""Enough epochs that what the last losing attempt uploaded is released, and deleted."""
MOST_DRIVERS = 4
LONGEST_OUTAGE = 500


@dataclass(frozen=True)
class Result:
    """What a seed did: the rule it broke, if any, and counts."""

    seed: int
    violation: ViolationError | None
    happened: Counter[Happened]


class Simulation:
    """Everything is decided by `seed`; `tell` gets the story, a line at a time."""

    def __init__(self, seed: int, rules: Rules | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._rules = rules or Rules()
        rng = random.Random(seed)
        self.happened: Counter[Happened] = Counter()
        self._clock = Clock()
        self._retained = rng.choice((1, 1, 2))
        self._world = self._rules.world(self._retained, self.happened)
        self._a = Surroundings(rng, self._clock, self._world, draw(rng), self.happened, self._telling(tell))
        self._source = Source(rng.choice(INPUT))
        self._sink = Sink(self.happened)
        self._drivers: list[Driver] = []
        self._trouble = True

    def _telling(self, tell: Callable[[str], None] | None) -> Callable[[str], None]:
        if tell is None:
            return lambda _: None
        return lambda line: tell(f"{self._clock.now:6d} {line}")

    def run(self) -> None:
        """Raises `ViolationError`."""
        self._supervise()
        while self._clock.step(TROUBLE):
            pass
        self._quiet()
        self._go_on()
        self._clean()

    # --- trouble

    def _supervise(self) -> None:
        """A supervisor restarts what died, and now and then starts a second driver because it takes a living one for dead."""
        if not self._trouble:
            return
        living = [d for d in self._drivers if d.alive]
        if not living or (len(living) < MOST_DRIVERS and self._a.chance(self._a.faults.rival)):
            if living:
                self.happened[Happened.OVERLAPPED] += 1
            self._start()
        if not self._a.down and self._a.chance(self._a.faults.outage, Happened.OUTAGE):
            self._a.down_until = self._clock.now + self._a.rng.randrange(50, LONGEST_OUTAGE)
            self._a.tell(f"the storage is away until {self._a.down_until}")
        if self._a.chance(self._a.faults.gc):
            Collector(self._a, self._rules.collect).start()
        self._clock.after(self._a.rng.randrange(20, 200), self._supervise)

    def _start(self) -> Driver:
        settings = Settings(self._retained, timeout_ms=600, grace_ms=40, idle_ms=50, deletions=self._rules.deletions)
        driver = Driver(f"d{len(self._drivers) + 1}", self._a, self._rules, settings, self._source, self._sink)
        self._drivers.append(driver)
        driver.start()
        return driver

    # --- quiet

    def _quiet(self) -> None:
        """No faults any more; the drivers are gone, and what they had sent lands."""
        self._a.tell("quiet")
        self._trouble = False
        self._a.faults = EVERYDAY
        self._a.down_until = 0
        for driver in self._drivers:
            driver.die("quiet")
        self._let_pass(SETTLING)

    def _go_on(self) -> None:
        """A last run meets what Spark does every day, then nothing but its input."""
        self._source.available = self._sink.end + EVERYDAY_INPUT
        driver = self._start()
        self._process(driver)
        self._a.faults = QUIET
        self._source.available += QUIET_INPUT
        self._process(driver)
        self._sink.check(self._source.available)
        self._let_pass(SETTLING // 10)
        driver.die("end")
        self._let_pass(SETTLING)

    def _let_pass(self, time: int) -> None:
        until = self._clock.now + time
        while self._clock.step(until):
            pass

    def _process(self, driver: Driver) -> None:
        until = self._clock.now + QUIET_LIMIT
        while driver.alive and not (driver.idle and self._sink.end == self._source.available):
            if not self._clock.step(until):
                break
        if self._sink.end != self._source.available:
            raise ViolationError(
                Rule.PROGRESS, f"the sink holds {self._sink.end} of {self._source.available}, {driver.name} lives: {driver.alive}"
            )

    def _clean(self) -> None:
        finished: list[bool] = []
        Collector(self._a, self._rules.collect, lambda: finished.append(True)).start()
        while not finished and self._clock.step(self._clock.now + SETTLING):
            pass
        claim = self._world.last_claim
        assert claim is not None
        self._world.check_clean(claim)


def simulate(seed: int, rules: Rules | None = None, tell: Callable[[str], None] | None = None) -> Result:
    """Run one seed. A violation is returned, not raised."""
    simulation = Simulation(seed, rules, tell)
    try:
        simulation.run()
    except ViolationError as violation:
        return Result(seed, violation, simulation.happened)
    return Result(seed, None, simulation.happened)
