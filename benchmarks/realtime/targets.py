"""What real time must show in one run: batches of 5 s, 20 partitions of the state, checkpoints on S3; at each rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.figures import Case, Estimate, Figures
from benchmarks.judging import Measure, Profile, Target, Verdict, judged, median_of, ratio_of, times
from benchmarks.realtime.running import OTHERS, case_of
from benchmarks.realtime.systems import Engine, Turn

BATCH_S, PARTITIONS = 5.0, 20
P99, STANDSTILL = "p99_ms", "standstill_ms"


def verdicts(figures: Figures, rates: Sequence[int]) -> list[Verdict]:
    return judged([target for rate in rates for target in targets(rate)], figures, by_load=False)


def targets(rate: int) -> Sequence[Target]:
    """`rate`: records a second."""

    def p99_over(base: Engine) -> Measure:
        return ratio_of(median_of(P99, _case(Engine.S3, rate)), median_of(P99, _case(base, rate)))

    def standstill(figures: Figures) -> Estimate | str:
        """Storing takes so little that a run's chances may make the floor the slower one: then who was faster is the bound."""
        ours, floor, file = (median_of(STANDSTILL, _case(engine, rate))(figures) for engine in (Engine.S3, Engine.FLOOR, Engine.FILE))
        if isinstance(ours, str) or isinstance(floor, str) or isinstance(file, str) or not floor.value or not file.value:
            return ""
        over = ours.over(min(floor, file, key=lambda one: one.value)).of_rounds(min(ours.rounds, floor.rounds, file.rounds))
        return replace(over, value=max(1.0, over.value))

    at, case = f"{rate:,} records a second", _case(Engine.S3, rate)
    profile = Profile(case.experiment, [engine.value for engine in Engine], (P99, STANDSTILL, OTHERS), PARTITIONS, rate)
    return (
        Target(f"p99 over that of stock Spark on a local disk, {at}", 1 / 3, p99_over(Engine.STOCK_LOCAL), times, profile=profile),
        Target(f"p99 over Flink's, {at}", 2, p99_over(Engine.FLINK), times, profile=profile),
        Target(f"standstill over that of the floor, or of who was faster, {at}", 1.2, standstill, times, profile=profile),
    )


def _case(engine: Engine, rate: int) -> Case:
    return case_of(Turn(engine, PARTITIONS, BATCH_S, rate))
