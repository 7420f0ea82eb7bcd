"""One seed: a stretch of faults with several drivers, then quiet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from simulation.agent import SPOOL_MAX
from simulation.claim_checks import checkpoint_at, own_path
from simulation.clock import Clock
from simulation.collector import Collector
from simulation.driver import LARGEST_EPOCH, Driver
from simulation.environment import Environment
from simulation.faults import ANEW, EVERYDAY, KEPT, QUIET, WHILE_DELETED, draw
from simulation.hook import Publication
from simulation.invariants import Invariant, StrandedError, ViolationError
from simulation.mutations import Variant
from simulation.observed import Observed
from simulation.real_time import RealTimeDriver
from simulation.source_sink import Sink, Source
from simulation.user import User
from simulation.vandal import Vandal
from simulation.world import ELSEWHERE, Saved
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import CHECKPOINT, SAVEPOINT, STOP
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.settings import Settings

TROUBLE = 1500
"""Milliseconds of faults."""
LONG_TROUBLE = 4 * KEPT
TRIM_EVERY = 3
QUIET_LIMIT = 60_000
SETTLING = 4_000
INPUT = (10, 30, 60)
"""A short one lets runs become idle."""
EVERYDAY_INPUT = 3 * LARGEST_EPOCH
"""More than what can be planned past the sink's end."""
QUIET_INPUT = 2 * LARGEST_EPOCH
QUIET_CHECKPOINTS = 5
"""Enough that what the last losing attempt uploaded is discarded, and deleted."""
MOST_ROUNDS = 50
WAITING = 3
"""Checkpoints past `retained` in the interval mode: one waits for the next append, one for tasks that loaded from it."""
LONGEST_LAG = 150
"""More than the interval, the pause and an idle look explain."""
AHEAD = (1, 2, 5)
OF_THE_INTERVAL = {"interval_ms", "min_pause_ms", "max_concurrent", "tolerable_failures", "ahead", "spool_max_bytes"}
"""Settings that say nothing where every epoch is a checkpoint."""
TIMEOUTS = (150, 600, 600)
MOST_DRIVERS = 4
MOST_STARTS = 8
"""Until damage that comes to light start after start is repaired."""
MOST_DAMAGE = 3
"""So much is damaged between two runs at most, and so much more probable is it then."""
MOST_SLEEPERS = 8
"""Drivers that live, if all of them sleep and are taken for dead."""
LONGEST_OUTAGE = 500
LONGEST_LIFE = 600
"""Of a stream that is deleted, after its last start."""
FROM_ELSEWHERE = 0.2
"""How often a stream begins from it: at first, or after it was deleted."""
NEVER = 0.2
"""How often, where checkpoints complete in the background, there is no interval."""
MOST_BEHIND = 6
"""Epochs without a checkpoint after which one is due all the same, where that is not left at its default."""
MOST_MEANWHILE = 15
"""Epochs that may end until one that is due is complete, with quiet."""
IN_REAL_TIME = 0.7
"""How often a run is, of a stream that is at all."""
FORGETFUL = 0.1
"""How often the source may not give the same data twice."""


class Mode(Enum):
    EVERY = "EVERY"
    """Every epoch is a checkpoint."""
    INTERVAL = "INTERVAL"
    """Checkpoints complete in the background."""
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
    """Epochs do not wait for their plans either; now and then a run is in one of the other modes. People discard plans."""
    REAL_TIME = "REAL_TIME"
    """The query has a real-time trigger; now and then a run has micro-batches, in one of the other modes. People discard plans."""
    BOTH = "BOTH"
    """Both gates: every epoch for even seeds; the interval for odd ones, half of them in at-least-once or in real time."""

    def of(self, seed: int) -> Mode:
        every, interval, later = Mode.EVERY, Mode.INTERVAL, (Mode.AT_LEAST_ONCE, Mode.REAL_TIME)[seed // 4 % 2]
        return (every, interval, every, later)[seed % 4] if self is Mode.BOTH else self


@dataclass(frozen=True)
class Result:
    """What a seed did: the invariant it broke, if any, and counts."""

    seed: int
    violation: ViolationError | None
    observed: Counter[Observed]


class Simulation:
    """Everything is decided by `seed`; `tell` gets the story, a line at a time."""

    def __init__(self, seed: int, mode: Mode, variant: Variant | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._variant = variant or Variant()
        rng = random.Random(seed)
        self.observed: Counter[Observed] = Counter()
        self._clock = Clock()
        self._retained = self._variant.settings.get("retained", rng.choice((1, 1, 2, 3)))
        self._world = self._variant.world(self._retained, self.observed, self._clock)
        faults = replace(draw(rng, seed), **self._variant.faults)
        real_time = mode.of(seed) is Mode.REAL_TIME
        self._again = real_time or mode.of(seed) is Mode.AT_LEAST_ONCE
        publication = Publication(self.observed, self._again)
        self._env = Environment(rng, self._clock, self._world, faults, self.observed, self._telling(tell), publication)
        self._settings = self._drawn(rng, mode.of(seed), random.Random(-4_000_000_007 - seed))
        self._world.log.kept_ms = self._settings.log_kept_ms
        forgetful = ("simulated",) if self._settings.interval_ms != 0 and rng.random() < FORGETFUL else ()
        self._source = Source(rng.choice(INPUT), forgetful, lists=not real_time)
        self._sink = Sink(self.observed, self._again, tells=seed // 4 % 2 == 1)
        self._choice: ev.Restore | None = None
        self._beginning: ev.Restore | None = None
        """Where the stream begins, if not with nothing."""
        # By a source of its own: without it a seed is the schedule that it would be if there were none.
        self._elsewhere = random.Random(-2 - seed)
        self._demands = random.Random(-3_000_000_019 - seed)
        self._drivers: list[Driver] = []
        self._user = User(self._env, random.Random(-5_000_000_039 - seed), drains=not real_time)
        self._vandal = Vandal(self._env)
        self._trouble = True
        self.longest = 0
        self._seed = seed

    def saved_elsewhere(self, more: int) -> Saved:
        """What this stream has saved after so much input, without any trouble: to be another stream's beginning."""
        self._env.faults = QUIET
        self._trouble = False
        self._feed(self._start(), more)
        self._ask(SAVEPOINT)
        (saved,) = self._world.savepoints.values()
        return replace(saved, checkpoint=replace(saved.checkpoint, stream=ELSEWHERE, query_id=ELSEWHERE))

    def _begin_from_elsewhere(self, begins: int) -> None:
        """With a state that another stream has made of the input from `begins` on, and with more input."""
        before = self._elsewhere.choice(INPUT)
        other = Simulation(-1 - self._seed, Mode.EVERY)
        other.begin(begins)
        self._world.savepoints[ELSEWHERE] = other.saved_elsewhere(before)
        self._beginning = ev.Restore(ELSEWHERE, owned=self._elsewhere.random() < 0.3)
        self._source.available = begins + before + self._elsewhere.choice(INPUT)
        self._env.begins = begins
        self._sink.anew(begins, begins + before)
        self._env.publication.anew(begins, begins + before)
        self.observed[Observed.ELSEWHERE] += 1

    def begin(self, begins: int) -> None:
        """A stream whose input begins there."""
        self._env.begins = begins
        self._sink.anew(begins, begins)
        self._env.publication.anew(begins, begins)

    def _drawn(self, rng: random.Random, mode: Mode, apart: random.Random) -> Settings:
        """`apart`: as `_elsewhere`."""
        settings = Settings(
            self._retained,
            timeout_ms=600,
            grace_ms=40,
            idle_ms=50,
            log_kept_ms=self._variant.settings.get("log_kept_ms", rng.choice((DAY_MS, KEPT))),
            trim_every=TRIM_EVERY,
        )
        if mode is Mode.EVERY:
            return replace(settings, **{name: value for name, value in self._variant.settings.items() if name not in OF_THE_INTERVAL})
        drawn = replace(
            settings,
            timeout_ms=rng.choice(TIMEOUTS),
            interval_ms=rng.choice((30, 80, 200)),
            min_pause_ms=rng.choice((0, 0, 40)),
            max_concurrent=rng.choice((1, 2, 2, 3)),
            tolerable_failures=rng.choice((0, 1, 3)),
            ahead=rng.choice(AHEAD) if mode is Mode.AT_LEAST_ONCE else 0,
            spool_max_bytes=SPOOL_MAX,
        )
        if apart.random() < NEVER:
            drawn = replace(drawn, interval_ms=None, min_pause_ms=0, most_behind=apart.choice((MOST_BEHIND, drawn.most_behind)))
        return replace(drawn, **self._variant.settings)

    def _telling(self, tell: Callable[[str], None] | None) -> Callable[[str], None]:
        if tell is None:
            return lambda _: None
        return lambda line: tell(f"{self._clock.now:6d} {line}")

    def run(self) -> None:
        """Raises `ViolationError`."""
        if self._elsewhere.random() < FROM_ELSEWHERE:
            self._begin_from_elsewhere(0)
        self._supervise()
        while self._clock.step(TROUBLE if self._settings.log_kept_ms == DAY_MS else LONG_TROUBLE):
            pass
        self._quiet()
        self._go_on()
        self._clean()
        self._delete_stream()

    # --- trouble

    def _supervise(self) -> None:
        """A supervisor restarts what died, and now and then starts a second driver because it takes a living one for dead."""
        if not self._trouble:
            return
        living = [d for d in self._drivers if d.alive]
        awake = any(d.sleeps_until <= self._clock.now for d in living)
        if not (awake or len(living) >= MOST_SLEEPERS) or (len(living) < MOST_DRIVERS and self._env.chance(self._env.faults.rival)):
            if living:
                self.observed[Observed.OVERLAPPED] += 1
            self._start()
        if not self._env.down and self._env.chance(self._env.faults.outage, Observed.OUTAGE):
            self._env.down_until = self._clock.now + self._env.rng.randrange(50, LONGEST_OUTAGE)
            self._env.tell(f"the storage is away until {self._env.down_until}")
        if self._env.chance(self._env.faults.damage):
            self._vandal.strike(between_runs=False)
        if any(d.damaged and not d.alive for d in self._drivers) and self._env.rng.random() < 0.3:
            self._vandal.repair()
        if self._env.chance(self._env.faults.ask):
            self._user.ask(STOP if self._env.rng.random() < 0.3 else SAVEPOINT)
        if self._demands.random() < self._env.faults.demand:
            self._user.ask(CHECKPOINT)
        if self._env.chance(self._env.faults.gc):
            Collector(self._env, self._variant.collect).start()
        self._clock.after(self._env.rng.randrange(20, 200), self._supervise)

    def _start(self) -> Driver:
        name, settings = f"d{len(self._drivers) + 1}", self._settings_of_one()
        kind = Driver
        if not self._source.lists and self._env.rng.random() < IN_REAL_TIME:
            kind, settings = RealTimeDriver, replace(settings, max_concurrent=settings.in_real_time().max_concurrent)
        driver = kind(name, self._env, self._variant, settings, self._source, self._sink, self._chosen(), self._user.changed())
        self._drivers.append(driver)
        driver.start()
        return driver

    def _settings_of_one(self) -> Settings:
        """People change their minds between two starts: about how many checkpoints to retain, and about the mode."""
        if not self._trouble:
            return self._settings
        more = 0 if "retained" in self._variant.settings else self._env.rng.choice((0, 0, 1, 2))
        settings = replace(self._settings, retained=self._retained + more)
        if not self._again or self._env.rng.random() < 0.7:
            return settings
        return replace(settings, ahead=0) if self._env.rng.random() < 0.7 else replace(settings, ahead=0, interval_ms=0)

    def _chosen(self) -> ev.Restore | None:
        """What a person chose stays in the configuration for a while. A choice that was cut short has to be made again."""
        cut_short = self._world.cut_short
        if self._beginning is not None and (self._world.log.last_claim is None or self._world.log.ended):
            return self._beginning
        if not self._trouble and self._choice is not None:
            choice, self._choice = self._choice, None
            return choice
        if cut_short and cut_short.restored and (not self._trouble or self._env.rng.random() < 0.7):
            path = cut_short.restored.path
            own = checkpoint_at(path) if path.startswith("stream/") else None
            return ev.Restore(path, own, cut_short.restored.owned, cut_short.first is not None)
        if self._env.chance(self._env.faults.restore):
            self._choice = self._user.choose(self._again)
            if self._choice and self._choice.discard:
                self.observed[Observed.DISCARDED] += 1
        elif not self._trouble or self._env.rng.random() < 0.5:
            self._choice = None
        return self._choice if self._user.stands_by(self._choice) else None

    # --- quiet

    def _quiet(self) -> None:
        """No faults any more; the drivers are gone, and what they had sent lands."""
        self._env.tell("quiet")
        self._trouble = False
        self._choice = None
        damage = self._env.faults.damage
        self._env.faults = EVERYDAY
        self._env.down_until = 0
        for driver in self._drivers:
            driver.process.die("quiet")
        self._let_pass(SETTLING)
        for _ in range(MOST_DAMAGE):
            if self._env.chance(damage * MOST_DAMAGE):
                self._vandal.strike(between_runs=True)

    def _go_on(self) -> None:
        """A last run meets what Spark does every day, then nothing but its input."""
        driver = self._feed(self._last_start(), EVERYDAY_INPUT)
        self._env.faults = QUIET
        before = self.observed[Observed.COMPLETED]
        for _ in range(MOST_ROUNDS):
            driver = self._feed(driver, QUIET_INPUT)
            if self.observed[Observed.COMPLETED] - before >= QUIET_CHECKPOINTS:
                break
            if self._settings.interval_ms is None and self._settings.most_behind > MOST_BEHIND:
                self._ask(CHECKPOINT)
        self._let_pass(SETTLING // 10)
        self._ask(CHECKPOINT)
        self._ask(SAVEPOINT)
        driver = self._feed(driver, 1)  # with its append goes what waited for one
        stop = self._env.rng.random() < 0.5
        if stop:
            self._ask(STOP)
        else:
            driver.finish()
        self._let_pass(SETTLING)
        self._user.check()
        if driver.alive:
            raise ViolationError(Invariant.PROGRESS, f"{driver.name} does not end")
        self._sink.check(self._source.available)
        self._env.publication.check(self._source.available)

    def _last_start(self) -> Driver:
        """A choice may be refused; then the stream goes on from its newest checkpoint. What damage refuses, starts once it is repaired."""
        for _ in range(MOST_STARTS):
            refused = self.observed[Observed.CHOICE_REFUSED], self.observed[Observed.DAMAGE_REFUSED]
            driver = self._start()
            self._let_pass(SETTLING // 10)
            if driver.alive or refused == (self.observed[Observed.CHOICE_REFUSED], self.observed[Observed.DAMAGE_REFUSED]):
                break
            if self.observed[Observed.DAMAGE_REFUSED] > refused[1]:
                self._vandal.repair()
            if self.observed[Observed.CHOICE_REFUSED] > refused[0] and self._world.cut_short and self._world.checkpoints:
                # What was cut short cannot be chosen again, so a person takes the other way out that the refusal names.
                newest = max(self._world.checkpoints)
                self._choice = ev.Restore(own_path(newest), newest, False, True)
            self._env.faults = replace(self._env.faults, restore=0)
        return driver

    def _ask(self, action: str) -> None:
        """While the stream is idle."""
        before = set(self._user.asked)
        self._user.ask(action)
        self._let_pass(SETTLING // 10)
        for number in self._user.asked.keys() - before:
            self._user.check_met(number)

    def _let_pass(self, time: int) -> None:
        until = self._clock.now + time
        while self._clock.step(until):
            pass

    def _feed(self, driver: Driver, more: int) -> Driver:
        """More input, and all of it through the query; what is durable follows. A query that meets damage ends, and is started again."""
        self._source.available = self._sink.end + more
        for _ in range(MOST_STARTS):
            self._run_to_the_end(driver)
            if driver.alive or not driver.damaged:
                break
            if not self._world.whole_left:
                self._vandal.repair()
            driver = self._last_start()
        if not driver.idle or driver.end != self._source.available:
            raise ViolationError(
                Invariant.PROGRESS, f"{driver.name} has run {driver.end} of {self._source.available}, and lives: {driver.alive}"
            )
        return driver

    def _run_to_the_end(self, driver: Driver) -> None:
        until = self._clock.now + QUIET_LIMIT
        while driver.alive and not (driver.idle and driver.end == self._source.available):
            if not self._clock.step(until):
                break
            self._check_lag(driver)

    def _check_lag(self, driver: Driver) -> None:
        """A query that has met damage ends."""
        lag, of = 0 if driver.damaged else driver.lag, self._settings
        if of.interval_ms is None:
            started = driver.process.started
            behind = self._env.ended.get(started.run, -1) - driver.process.announcements.completed_epoch if started else 0
            if behind > of.most_behind + MOST_MEANWHILE and not driver.damaged:
                raise ViolationError(Invariant.LAG, f"{driver.name} is {behind} epochs past its newest checkpoint")
            return
        due = 2 * max(of.interval_ms, of.min_pause_ms) + of.min_pause_ms + of.idle_ms
        if driver.REAL_TIME:  # an epoch that seems to be about to end is waited for, for two looks (`EpochInHand.is_about_to_end`)
            due += 2 * of.idle_ms
        self.longest = max(self.longest, lag - due)
        if lag > due + LONGEST_LAG:
            raise ViolationError(Invariant.LAG, f"what {driver.name} sealed {lag} ms ago is not durable")

    def _collect(self) -> None:
        finished: list[bool] = []
        Collector(self._env, self._variant.collect, lambda: finished.append(True)).start()
        while not finished and self._clock.step(self._clock.now + SETTLING):
            pass

    def _clean(self) -> None:
        self._vandal.repair()
        self._collect()
        claim = self._world.log.last_claim
        assert claim is not None
        self._world.check_clean(claim, WAITING if self._settings.interval_ms != 0 else 1)

    def _delete_stream(self) -> None:
        """The stream goes on once more, and is deleted while it runs."""
        driver = self._start()
        self._let_pass(SETTLING // 10)
        self._env.faults = WHILE_DELETED
        self._source.available = self._sink.end + max(INPUT)
        self._let_pass(self._env.rng.randrange(LONGEST_LIFE))
        if driver.alive:  # else a snapshot was declined, or too many checkpoints expired
            driver.stop_and_delete()
        self._let_pass(SETTLING)
        if driver.alive:
            raise ViolationError(Invariant.PROGRESS, f"{driver.name} does not stop")
        if driver.process.deletes_stream:
            self._world.check_deleted(driver.process.objects)
            self._collect()
            self._world.check_empty()
            self._begin_anew()

    def _begin_anew(self) -> None:
        """The stream is started again, with new input and the sink that it had: its numbers go on, or the sink skips what it has seen."""
        self._beginning = None
        if not self._sink.tells and self._elsewhere.random() < FROM_ELSEWHERE:
            self._begin_from_elsewhere(self._source.available)
        else:
            self.begin(self._source.available)
            self._source.available += max(INPUT)
        self._env.faults = ANEW
        until = self._clock.now + self._env.rng.randrange(LONGEST_LIFE)
        while self._clock.now < until:
            if not any(d.alive for d in self._drivers) or self._env.chance(self._env.faults.rival):
                self._start()
            self._let_pass(self._env.rng.randrange(20, 200))
        for driver in self._drivers:
            driver.process.die("quiet")
        self._let_pass(SETTLING)
        self._env.faults = QUIET
        driver = self._start()
        self._feed(driver, QUIET_INPUT)
        driver.finish()
        self._let_pass(SETTLING)
        if driver.alive:
            raise ViolationError(Invariant.PROGRESS, f"{driver.name} does not end")
        self._sink.check(self._source.available)
        self._env.publication.check(self._source.available)


def simulate(seed: int, mode: Mode = Mode.BOTH, variant: Variant | None = None, tell: Callable[[str], None] | None = None) -> Result:
    """Run one seed. A violation is returned, not raised."""
    simulation = Simulation(seed, mode, variant, tell)
    try:
        simulation.run()
    except StrandedError as end:
        simulation._env.tell(f"nothing is left: {end}")
    except ViolationError as violation:
        return Result(seed, violation, simulation.observed)
    return Result(seed, None, simulation.observed)
