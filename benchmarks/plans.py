"""What `make bench` and `make bench-full` run, in which order, and for how long."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import epochs, finalise, many_files, restore, standing
from benchmarks.budget import Budget
from benchmarks.epochs import Tell, Turns
from benchmarks.far_s3 import far_s3
from benchmarks.figures import Figures
from benchmarks.processes import OWN
from benchmarks.systems import System
from benchmarks.targets import AGGREGATION, INTERVAL, JOIN, LONG, LONG_ROWS, REQUESTS, ROWS
from benchmarks.workloads import Workload

_FAST = (System.STOCK_LOCAL, System.STOCK_TUNED, System.FLOOR, System.FILE, System.S3)
_ALL = (System.STOCK_S3A, *_FAST)
STANDING = (System.STOCK_LOCAL, System.S3)
"""For what is not about epochs: start-up, forks."""
RESTORED = (System.S3, System.STOCK_TUNED)
INTERVAL_SYSTEMS = (System.FLOOR, System.S3_INTERVAL)
INTERVAL_S = 40
"""Three intervals of 10 s, and one of which a part is not compared."""


@dataclass(frozen=True)
class Plan:
    """After `minutes` everything ends: what does not fit is left out and noted. infinity: no limit.

    Each of `groups` has applications of its own, which end before the next one's start: all at once would need more memory than there is,
    and those that have run longer are warmer. Numbers of 0: left out.
    """

    name: str
    groups: Sequence[Sequence[Turns]]
    minutes: float
    finalise: Sequence[int]
    many_files: Sequence[int]
    idle_s: int
    start_ups: int
    restore_mb: int
    restore_rounds: int
    fork_epochs: int

    @property
    def experiments(self) -> frozenset[str]:
        """What it measures; with a restore comes what it takes to fill the state."""
        found = {turns.experiment for group in self.groups for turns in group}
        others: dict[str, object] = {
            finalise.EXPERIMENT: self.finalise,
            many_files.EXPERIMENT: self.many_files,
            standing.IDLE: self.idle_s,
            standing.START_UP: self.start_ups,
            restore.EXPERIMENT: self.restore_mb,
            restore.FILLED: self.restore_mb,
            standing.FORKS: self.fork_epochs,
        }
        return frozenset(found | {name for name, wanted in others.items() if wanted})

    def only(self, experiments: Collection[str]) -> Plan:
        groups = [[turns for turns in group if turns.experiment in experiments] for group in self.groups]
        return replace(
            self,
            groups=[group for group in groups if group],
            finalise=self.finalise if finalise.EXPERIMENT in experiments else (),
            many_files=self.many_files if many_files.EXPERIMENT in experiments else (),
            idle_s=self.idle_s if standing.IDLE in experiments else 0,
            start_ups=self.start_ups if standing.START_UP in experiments else 0,
            restore_mb=self.restore_mb if restore.EXPERIMENT in experiments else 0,
            fork_epochs=self.fork_epochs if standing.FORKS in experiments else 0,
        )

    def limited(self, rounds: int) -> Plan:
        """The same with at most so many rounds of each workload."""
        groups = [[replace(turns, rounds=min(turns.rounds, rounds)) for turns in group] for group in self.groups]
        return replace(self, groups=groups, restore_rounds=min(self.restore_rounds, rounds))


SHORT = Plan(
    "short",
    (
        (
            Turns(AGGREGATION, Workload("aggregation", 200), _FAST, rounds=1, warm=1, epochs=2, warm_s=15, seconds=10),
            Turns(AGGREGATION, Workload("aggregation", 20), _FAST, rounds=2, warm=2, epochs=5, seconds=4),
            Turns(ROWS, Workload("aggregation", 20, 1), (System.FLOOR, System.S3), rounds=2, warm=3, epochs=10),
        ),
        (Turns(INTERVAL, Workload("aggregation", 200), INTERVAL_SYSTEMS, rounds=1, warm=2, epochs=1, seconds=INTERVAL_S, alike=True),),
    ),
    minutes=8.5,
    finalise=(10_000,),
    many_files=(),
    idle_s=10,
    start_ups=2,
    restore_mb=0,
    restore_rounds=0,
    fork_epochs=0,
)

FULL = Plan(
    "full",
    (
        (
            Turns(AGGREGATION, Workload("aggregation", 20), _ALL, rounds=3, warm=5, epochs=10, warm_s=60, seconds=10),
            Turns(
                AGGREGATION,
                Workload("aggregation", 200),
                _ALL,
                rounds=3,
                warm=2,
                epochs=4,
                warm_s=120,
                seconds=20,
                once=(System.STOCK_S3A,),
            ),
        ),
        (
            Turns(
                INTERVAL,
                Workload("aggregation", 200),
                INTERVAL_SYSTEMS,
                rounds=3,
                warm=3,
                epochs=1,
                warm_s=INTERVAL_S,
                seconds=2 * INTERVAL_S,
                alike=True,
            ),
        ),
        (
            *(Turns(ROWS, Workload("aggregation", 20, rows), _FAST, rounds=2, warm=3, epochs=8) for rows in (1, 1_000, 100_000, 1_000_000)),
            Turns(JOIN, Workload("join", 20), _FAST, rounds=2, warm=3, epochs=6),
        ),
        tuple(
            Turns(REQUESTS, Workload("aggregation", partitions, LONG_ROWS), (System.S3, System.S3_INTERVAL), rounds=1, warm=2, epochs=LONG)
            for partitions in (20, 200)
        ),
        (Turns(REQUESTS, Workload("aggregation", 20, LONG_ROWS), (System.S3_CLUSTER,), rounds=1, warm=2, epochs=LONG),),
    ),
    minutes=math.inf,
    finalise=(1_000, 10_000, 100_000),
    many_files=(10_000, 100_000, 1_000_000),
    idle_s=60,
    start_ups=4,
    restore_mb=1_000,
    restore_rounds=3,
    fork_epochs=5,
)


def _values(systems: Sequence[System]) -> list[str]:
    return [system.value for system in systems]


def run(plan: Plan, figures: Figures, tell: Tell) -> None:
    """Of what `figures` hold already nothing is measured again. Raises BenchmarkError."""
    began = time.monotonic()
    try:
        _run(plan, figures, tell)
    finally:
        figures.about["took_s"] = figures.about.get("took_s", 0) + round(time.monotonic() - began)


def _run(plan: Plan, figures: Figures, tell: Tell) -> None:
    budget = Budget(plan.minutes * 60)
    missing = standing.strace_missing() if plan.fork_epochs else ""
    if missing:
        tell(missing)
        figures.note(missing)
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work:
        folder = Path(work)
        if counts := [count for count in plan.finalise if not finalise.measured(count, figures)]:
            tell("finalise in the coordinator")
            figures.forget(lambda case: case.experiment == finalise.EXPERIMENT and case.partitions in counts)
            finalise.run(counts, figures)
        if seen := [count for count in plan.many_files if not many_files.measured(count, figures)]:
            tell("a file source of many files, in the coordinator")
            figures.forget(lambda case: case.experiment == many_files.EXPERIMENT and case.size in seen)
            many_files.run(seen, figures)
        with far_s3(folder / "far") as s3:
            if plan.start_ups and not figures.measured(standing.START_UP, "start_up_ms", _values(STANDING)):
                a_fifth = Budget(plan.minutes * 60 / 5)
                standing.start_up(STANDING, plan.start_ups, s3, folder / "start-up", figures, tell, a_fifth)
            if plan.idle_s and not figures.measured(standing.IDLE, "memory_bytes", OWN):
                standing.idle(plan.idle_s, s3, folder / "idle", figures, tell)
            for number, group in enumerate(plan.groups):
                if turns := [turns for turns in group if not turns.measured(figures)]:
                    begun = {one.case(system) for one in turns for system in one.systems}
                    figures.forget(begun.__contains__)
                    epochs.run(turns, s3, folder / f"epochs-{number}", figures, tell, budget)
            if plan.restore_mb and not figures.measured(restore.EXPERIMENT, "restore_ms", _values(RESTORED)):
                figures.forget(lambda case: case.experiment in (restore.EXPERIMENT, restore.FILLED))
                restore.run(plan.restore_mb, RESTORED, plan.restore_rounds, s3, folder / "restore", figures, tell)
            if plan.fork_epochs and not missing and not figures.measured(standing.FORKS, "forks", _values(STANDING)):
                work_200 = Workload("aggregation", 200)
                standing.forks(STANDING, work_200, plan.fork_epochs, s3, folder, figures, tell)
