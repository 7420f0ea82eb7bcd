"""What `make bench` and `make bench-full` run, in which order, and for how long."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import (
    agents,
    chains,
    edits,
    epochs,
    finalise,
    large_state,
    many_files,
    restart_pieces,
    restore,
    short_epochs,
    standing,
    states,
    streams,
)
from benchmarks.budget import Budget
from benchmarks.epochs import Rounds, Save, Tell, Turns
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.figures import Figures
from benchmarks.flink import commands
from benchmarks.state_targets import READ_ROWS, WRITTEN_ROWS
from benchmarks.systems import System
from benchmarks.targets import AGGREGATION, INTERVAL, JOIN, KAFKA, LONG, LONG_ROWS, REQUESTS, ROWS, SETTINGS
from benchmarks.workloads import Workload

_FAST = (System.SAME_LOCAL, System.SAME_TUNED, System.FLOOR, System.FILE, System.S3)
_AS_IT_COMES = (System.STOCK_LOCAL, System.STOCK_S3A, System.STOCK_TUNED)
"""Apart from the others, which leave no memory for them; they are shown, and no target is about them."""
STANDING = (System.STOCK_LOCAL, System.S3)
"""For what is not about epochs: start-up, forks, several streams."""
RESTORED = (System.S3, System.SAME_TUNED)
LASTING = (System.S3, System.SAME_LOCAL)
CHAINED = (System.S3, System.S3_CLUSTER)
PIECES = (System.S3, System.SAME_LOCAL, System.SAME_TUNED)
_SUGGESTED = (
    (System.SAME_LOCAL, System.LOCAL_VALIDATES, System.LOCAL_BYPASSES),
    (System.S3, System.S3_VALIDATES, System.S3_BYPASSES),
)
"""Each suggested setting with and without, for stock and for this."""
INTERVAL_SYSTEMS = (System.FLOOR, System.S3_INTERVAL)
MAINTENANCE_S = 60
"""Spark's maintenance of state stores comes as often (`stateStore.maintenanceInterval`) and slows several epochs down: shorter turns have
it or not, by chance."""
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
    finalise_rounds: int
    many_files: Sequence[int]
    agents: Sequence[int]
    streams: Sequence[int]
    idle_s: int
    start_ups: int
    restore_mb: int
    restore_rounds: int
    fork_epochs: int
    read_rows: Sequence[int]
    written_rows: int
    rescaled_rows: int
    state_rounds: int
    """Of what is read and written; a rescale is done once."""
    chain_rounds: int = 0
    short_epochs: int = 0
    short_epoch_rounds: int = 0
    busy_streams: int = 0
    pieces_mb: Sequence[int] = ()
    pieces_rounds: int = 0
    large_mb: int = 0

    @property
    def experiments(self) -> frozenset[str]:
        """What it measures; with a restore comes what it takes to fill the state."""
        found = {turns.experiment for group in self.groups for turns in group}
        found |= {name for name, field in _WANTED.items() if getattr(self, field)}
        return frozenset(found | ({restore.FILLED} if self.restore_mb else set()))

    @property
    def parts(self) -> Sequence[str]:
        """Names of all that is measured one after the other."""
        names = (finalise.EXPERIMENT, many_files.EXPERIMENT, agents.EXPERIMENT, restart_pieces.EXPERIMENT)
        several = {name: getattr(self, _WANTED[name]) for name in names}
        return (
            *(f"{name} {count}" for name, counts in several.items() for count in counts),
            *(turns.part for group in self.groups for turns in group),
            *(_of_large_state(system) for system in LASTING if self.large_mb),
            *(name for name, field in _WANTED.items() if name not in {*several, large_state.EXPERIMENT} and getattr(self, field)),
        )

    def only(self, experiments: Collection[str]) -> Plan:
        groups = [[turns for turns in group if turns.experiment in experiments] for group in self.groups]
        left_out = {field: type(getattr(self, field))() for name, field in _WANTED.items() if name not in experiments}
        return replace(self, groups=[group for group in groups if group], **left_out)

    def limited(self, rounds: int) -> Plan:
        """The same with at most so many rounds of each workload."""
        groups = [[replace(turns, rounds=min(turns.rounds, rounds)) for turns in group] for group in self.groups]
        several = ("finalise_rounds", "restore_rounds", "state_rounds", "chain_rounds", "short_epoch_rounds", "pieces_rounds")
        return replace(self, groups=groups, **{name: min(rounds, getattr(self, name)) for name in several})


_WANTED = {
    finalise.EXPERIMENT: "finalise",
    many_files.EXPERIMENT: "many_files",
    agents.EXPERIMENT: "agents",
    streams.EXPERIMENT: "streams",
    streams.BUSY: "busy_streams",
    standing.START_UP: "start_ups",
    standing.IDLE: "idle_s",
    restore.EXPERIMENT: "restore_mb",
    restart_pieces.EXPERIMENT: "pieces_mb",
    chains.EXPERIMENT: "chain_rounds",
    large_state.EXPERIMENT: "large_mb",
    short_epochs.EXPERIMENT: "short_epochs",
    standing.FORKS: "fork_epochs",
    states.EXPERIMENT: "read_rows",
    edits.WRITTEN: "written_rows",
    edits.RESCALED: "rescaled_rows",
}
"""Experiments beside those of groups: the field of a plan that says how much of each is wanted, if any."""

SHORT = Plan(
    "short",
    (
        (
            Turns(AGGREGATION, Workload("aggregation", 200), _FAST, rounds=1, warm=1, epochs=2, warm_s=15, seconds=10),
            Turns(AGGREGATION, Workload("aggregation", 20), _FAST, rounds=2, warm=2, epochs=5, seconds=4),
            Turns(ROWS, Workload("aggregation", 20, 1), (System.FLOOR, System.S3), rounds=2, warm=3, epochs=10),
        ),
        (Turns(KAFKA, Workload("kafka", 20), (System.FLOOR, System.S3), rounds=1, warm=3, epochs=8),),
        (Turns(INTERVAL, Workload("aggregation", 200), INTERVAL_SYSTEMS, rounds=1, warm=2, epochs=1, seconds=INTERVAL_S, alike=True),),
    ),
    minutes=9.3,
    finalise=(10_000,),
    finalise_rounds=1,
    many_files=(),
    agents=(),
    streams=(),
    idle_s=10,
    start_ups=2,
    restore_mb=0,
    restore_rounds=0,
    fork_epochs=0,
    read_rows=(),
    written_rows=0,
    rescaled_rows=0,
    state_rounds=0,
)

FULL = Plan(
    "full",
    (
        (
            Turns(AGGREGATION, Workload("aggregation", 20), _FAST, rounds=3, warm=5, epochs=10, warm_s=60, seconds=MAINTENANCE_S),
            Turns(AGGREGATION, Workload("aggregation", 200), _FAST, rounds=3, warm=2, epochs=4, warm_s=120, seconds=MAINTENANCE_S),
        ),
        (
            Turns(AGGREGATION, Workload("aggregation", 20), _AS_IT_COMES, rounds=2, warm=5, epochs=10, warm_s=60, seconds=10),
            Turns(
                AGGREGATION,
                Workload("aggregation", 200),
                _AS_IT_COMES,
                rounds=2,
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
            *(
                Turns(ROWS, Workload("aggregation", 20, rows), _FAST, rounds=rounds, warm=3, epochs=8, warm_s=30, seconds=30)
                for rows, rounds in ((1, 3), (1_000, 2), (100_000, 2), (1_000_000, 2))
            ),
            Turns(JOIN, Workload("join", 20), _FAST, rounds=2, warm=3, epochs=6, warm_s=30, seconds=30),
        ),
        (Turns(KAFKA, Workload("kafka", 20), (System.SAME_LOCAL, System.FLOOR, System.S3), rounds=3, warm=15, epochs=15),),
        *(
            tuple(
                Turns(SETTINGS, Workload("aggregation", n), systems, rounds=3, warm=3, epochs=10, warm_s=60, seconds=20) for n in (20, 200)
            )
            for systems in _SUGGESTED
        ),
        tuple(
            Turns(REQUESTS, Workload("aggregation", partitions, LONG_ROWS), (System.S3, System.S3_INTERVAL), rounds=1, warm=2, epochs=LONG)
            for partitions in (20, 200)
        ),
        (Turns(REQUESTS, Workload("aggregation", 20, LONG_ROWS), (System.S3_CLUSTER,), rounds=1, warm=2, epochs=LONG),),
    ),
    minutes=math.inf,
    finalise=(1_000, 10_000, 100_000),
    finalise_rounds=3,
    many_files=(10_000, 100_000, 1_000_000),
    agents=(agents.PARTITIONS,),
    streams=streams.COUNTS,
    idle_s=60,
    start_ups=4,
    restore_mb=restore.MEGABYTES,
    restore_rounds=3,
    fork_epochs=5,
    read_rows=READ_ROWS,
    written_rows=WRITTEN_ROWS,
    rescaled_rows=WRITTEN_ROWS,
    state_rounds=5,
    chain_rounds=3,
    short_epochs=short_epochs.EPOCHS,
    short_epoch_rounds=3,
    busy_streams=max(streams.COUNTS),
    pieces_mb=restart_pieces.SIZES,
    pieces_rounds=3,
    large_mb=large_state.MEGABYTES,
)


def _of_large_state(system: System) -> str:
    return f"{large_state.EXPERIMENT}: {system.value}"


class _Parts:
    """What is run one after the other: each is saved when it is done, none is run twice, and after `until` none is begun.

    `setting` of a part: what its cases have in common, beside the experiment, with those of no other part. Figures of an earlier try at it,
    which ended early, are forgotten.
    """

    def __init__(self, figures: Figures, save: Save, until: Budget) -> None:
        self._figures = figures
        self._save = save
        self._until = until
        self.complete = True

    def run(self, name: str, experiment: str, measure: Callable[[], None], rounds: int = 1, **setting: int | str) -> None:
        """All rounds in one go."""
        if not self._figures.parts.get(name) and self._begin(name, experiment, setting):
            measure()
            self._figures.finish(name, experiment, rounds)
            self._save()

    def run_rounds(self, name: str, experiment: str, measure: Callable[[], Rounds], rounds: int, **setting: int | str) -> None:
        """Those that are still missing. Each is saved by itself, and none is begun too late."""
        begun = self._figures.begun(name, rounds)
        if begun >= rounds or not self._begin(name, experiment, setting, begun):
            return
        with closing(measure()) as measured:
            for number in range(begun + 1, rounds + 1):
                self._figures.complete(name, experiment, next(measured))
                self._save()
                if number < rounds and self._until.left() <= 0:
                    self.complete = False
                    return

    def _begin(self, name: str, experiment: str, setting: Mapping[str, int | str], begun: int = 0) -> bool:
        if self._until.left() <= 0:
            self.complete = False
            return False
        if not begun:
            self._figures.anew(
                name, lambda case: case.experiment == experiment and all(getattr(case, key) == value for key, value in setting.items())
            )
        self._figures.begin(name)
        return True


def run(plan: Plan, figures: Figures, tell: Tell, save: Save = lambda: None, until: Budget | None = None) -> bool:
    """Every part that `figures` do not hold yet; `save` is called after each. False where some are left, since none is begun after `until`.

    Raises BenchmarkError.
    """
    began, before = time.monotonic(), figures.about.get("took_s", 0)

    def timed() -> None:
        figures.about["took_s"] = before + round(time.monotonic() - began)
        save()

    try:
        return _run(plan, figures, tell, timed, until or Budget())
    finally:
        timed()


def _run(plan: Plan, figures: Figures, tell: Tell, save: Save, until: Budget) -> bool:
    budget, parts = Budget(plan.minutes * 60), _Parts(figures, save, until)
    missing = standing.strace_missing() if plan.fork_epochs else ""
    if missing:
        tell(missing)
        figures.note(missing)
    for count in plan.finalise:
        finished = partial(finalise.run, [count], figures, rounds=plan.finalise_rounds)
        parts.run(f"{finalise.EXPERIMENT} {count}", finalise.EXPERIMENT, finished, plan.finalise_rounds, partitions=count)
    for seen in plan.many_files:
        parts.run(f"{many_files.EXPERIMENT} {seen}", many_files.EXPERIMENT, partial(many_files.run, [seen], figures), size=seen)
    _of_state(plan, figures, tell, parts)
    if not plan.experiments - _WITHOUT_S3:
        return parts.complete
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        folder = Path(work)
        for count in plan.agents:
            alone = partial(agents.run, [count], agents.AGENTS, agents.EPOCHS, s3, folder / "agents", figures)
            parts.run(f"{agents.EXPERIMENT} {count}", agents.EXPERIMENT, alone, partitions=count)
        if plan.streams:
            several = partial(streams.run, plan.streams, STANDING, s3, folder / "streams", figures, tell)
            parts.run(streams.EXPERIMENT, streams.EXPERIMENT, several)
        if plan.busy_streams:
            parts.run(streams.BUSY, streams.BUSY, partial(streams.busy, plan.busy_streams, s3, folder / "busy", figures, tell))
        if plan.start_ups:
            fifth = Budget(plan.minutes * 60 / 5)
            start_up = partial(standing.start_up, STANDING, plan.start_ups, s3, folder / "start-up", figures, tell, fifth)
            parts.run(standing.START_UP, standing.START_UP, start_up, plan.start_ups)
        if plan.idle_s:
            parts.run(standing.IDLE, standing.IDLE, partial(standing.idle, plan.idle_s, s3, folder / "idle", figures, tell))
        for number, group in enumerate(plan.groups):
            parts.complete &= epochs.run(group, s3, folder / f"epochs-{number}", figures, tell, budget, save, until)
        if plan.restore_mb:
            restored = partial(restore.rounds, plan.restore_mb, RESTORED, s3, folder / "restore", figures, tell)
            parts.run_rounds(restore.EXPERIMENT, restore.EXPERIMENT, restored, plan.restore_rounds)
        for size in plan.pieces_mb:
            restarted = partial(_pieces, size, s3, folder / f"pieces-{size}", figures, tell)
            parts.run_rounds(restart_pieces.part(size), restart_pieces.EXPERIMENT, restarted, plan.pieces_rounds, size=size)
        if plan.chain_rounds:
            chained = partial(chains.rounds, CHAINED, chains.PARTITIONS, chains.EPOCHS, s3, folder / "chains", tell)
            parts.run_rounds(chains.EXPERIMENT, chains.EXPERIMENT, chained, plan.chain_rounds)
        if plan.short_epochs:
            with_seldom = not figures.begun(short_epochs.EXPERIMENT, plan.short_epoch_rounds)
            lived = partial(short_epochs.rounds, plan.short_epochs, s3, folder / "short-epochs", tell, with_seldom)
            parts.run_rounds(short_epochs.EXPERIMENT, short_epochs.EXPERIMENT, lived, plan.short_epoch_rounds)
        lasting = [system for system in LASTING if plan.large_mb and not figures.parts.get(_of_large_state(system))]
        if lasting and (too_small := large_state.lacks(plan.large_mb, folder)):
            tell(too_small)
            figures.note(too_small)
        else:
            for system in lasting:
                how = (system, plan.large_mb, large_state.PARTITIONS, large_state.MINUTES, s3, folder / f"large-{system.name.lower()}")
                lasted = partial(large_state.run, *how, figures, tell)
                parts.run(_of_large_state(system), large_state.EXPERIMENT, lasted, system=system.value)
        if plan.fork_epochs and not missing:
            forked = partial(standing.forks, STANDING, Workload("aggregation", 200), plan.fork_epochs, s3, folder, figures, tell)
            parts.run(standing.FORKS, standing.FORKS, forked)
    return parts.complete


def _pieces(megabytes: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> Rounds:
    """Where Flink cannot be run, without it, and that is noted."""
    told = f"a restart with {megabytes:,} MB of state was measured without Flink"
    figures.notes = [note for note in figures.notes if not note.startswith(told)]
    if why := commands.missing():
        why = f"{told}: {why}"
        tell(why)
        figures.note(why)
    return restart_pieces.rounds(megabytes, PIECES, s3, folder, tell, not why)


_WITHOUT_S3 = {finalise.EXPERIMENT, many_files.EXPERIMENT, states.EXPERIMENT, edits.WRITTEN, edits.RESCALED}


def _of_state(plan: Plan, figures: Figures, tell: Tell, parts: _Parts) -> None:
    """On the local disk: no epoch is run."""

    def read(folder: Path) -> None:
        for rows in plan.read_rows:
            (folder / str(rows)).mkdir()
            states.run(states.SOURCE, rows, plan.state_rounds, folder / str(rows), figures, tell)

    def write(folder: Path) -> None:
        edits.written(states.SOURCE, plan.written_rows, plan.state_rounds, folder, figures, tell)

    def rescale(folder: Path) -> None:
        edits.rescaled(edits.prepared(states.SOURCE, plan.rescaled_rows, folder, tell), edits.STEPS, folder, figures, tell)

    for name, rows, measure, rounds in (
        (states.EXPERIMENT, plan.read_rows, read, plan.state_rounds),
        (edits.WRITTEN, plan.written_rows, write, plan.state_rounds),
        (edits.RESCALED, plan.rescaled_rows, rescale, 1),
    ):
        if rows:
            parts.run(name, name, partial(_in_folder, measure), rounds)


def _in_folder(measure: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work:
        measure(Path(work))
