"""What must hold of state that is read, written and rescaled, beside what is only told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.edits import FIRST, PARQUET, RESCALED, STEPS, WRITTEN, before
from benchmarks.figures import Case, Estimate, Figures
from benchmarks.judging import ROUNDS, Measure, Profile, Target, megabytes, seconds, times
from benchmarks.states import COMMAND, EXPERIMENT, OURS, SPARKS

READ_ROWS = (1_000_000, 10_000_000)
WRITTEN_ROWS = 10_000_000
_WRITE_S, _COMMAND_S = 300, 2
_READERS = "rows a second of read_state over Spark's own reader"
GIB, MILLION = 1 << 30, 1_000_000

_READING = Profile(EXPERIMENT, (OURS, SPARKS), ("read_ms", "read_cpu_ms", "elsewhere_percent"))
_ANSWERING = Profile(EXPERIMENT, (COMMAND,), ("command_ms", "imports_ms", "command_cpu_ms", "elsewhere_percent"))
_WRITING = Profile(WRITTEN, (PARQUET,), ("write_ms", "write_cpu_ms", "parquet_bytes", "state_bytes", "memory_bytes", "elsewhere_percent"))


def _readers(rows: int) -> Measure:
    """Rows a second, ours over Spark's: both have read the same rows."""

    def measure(figures: Figures) -> Estimate | str:
        for ours in figures.cases(EXPERIMENT):
            mine, theirs = (figures.values(replace(ours, system=system), "read_ms") for system in (OURS, SPARKS))
            if (ours.system, ours.size) != (OURS, rows) or not mine or not theirs:
                continue
            rounds = min(len(mine), len(theirs))
            note = f"{rounds} rounds" if rounds >= ROUNDS else ""
            return replace(Estimate.median(theirs).over(Estimate.median(mine)), note=note, rounds=rounds)
        return ""

    return measure


def _small(figures: Figures) -> Estimate | str:
    cases = [case for case in figures.cases(EXPERIMENT) if case.system == COMMAND]
    if not cases:
        return ""
    smallest = min(cases, key=lambda case: case.size)
    measured = Estimate.median(figures.values(smallest, "command_ms"))
    return replace(measured, note=f"{smallest.size:,} rows", rounds=figures.rounds(smallest))


def _written(metric: str) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        for case in figures.cases(WRITTEN):
            if case.size == WRITTEN_ROWS and (values := figures.values(case, metric)):
                return Estimate.median(values).of_rounds(figures.rounds(case))
        return ""

    return measure


def per_million(figures: Figures, case: Case) -> float | None:
    """Milliseconds of a rescale for each million keys."""
    took = figures.median(case, "rescale_ms")
    return took * MILLION / case.size if took is not None and case.size else None


def per_gib(figures: Figures, case: Case) -> float | None:
    """Milliseconds of a rescale for each GiB of state, as it was stored before."""
    took, size = figures.median(case, "rescale_ms"), figures.median(case, "state_bytes")
    return took * GIB / size if took is not None and size else None


def _rescaled(there: int, wanted: int, of: Callable[[Figures, Case], float | None]) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        for case in reversed(figures.cases(RESCALED)):
            if (case.system, case.partitions) == (before(there), wanted) and (found := of(figures, case)) is not None:
                return replace(Estimate.exact(found), note=f"{case.size:,} keys")
        return ""

    return measure


STATE_TARGETS: Sequence[Target] = (
    *(
        Target(f"{_READERS}, {rows:,} rows", 1, _readers(rows), times, at_least=True, profile=_READING)
        for rows in READ_ROWS
    ),
    Target("spark-ckpt state of a small state", _COMMAND_S * 1000, _small, seconds, profile=_ANSWERING),
    Target(f"{WRITTEN_ROWS:,} keys written from Parquet", _WRITE_S * 1000, _written("write_ms"), seconds, profile=_WRITING),
    Target("memory of the same at most", None, _written("memory_bytes"), megabytes, counted=True),
    *(
        Target(f"rescale from {there} to {wanted} partitions, for each {unit}", None, _rescaled(there, wanted, of), seconds)
        for there, wanted in zip((FIRST, *STEPS), STEPS, strict=False)
        for unit, of in (("GiB of state", per_gib), ("million keys", per_million))
    ),
)
