"""What the benchmark must show, each as a ratio or a difference within one run, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.access_log import Kind
from benchmarks.agent_bound import FILES, over_bound
from benchmarks.epochs import PHASE, SPAN, STORED
from benchmarks.far_s3 import LATENCY_MS
from benchmarks.figures import Case, Estimate, Figures
from benchmarks.judging import (
    MB,
    Measure,
    Profile,
    Target,
    Verdict,
    count,
    difference,
    exactly,
    judged,
    median_of,
    megabytes,
    millis,
    percent,
    ratio_of,
    times,
)
from benchmarks.restore import EXPERIMENT as RESTORE
from benchmarks.restore import FILLED, MEGABYTES, PLAIN
from benchmarks.restore import PARTITIONS as RESTORED_PARTITIONS
from benchmarks.size_targets import SIZE_TARGETS
from benchmarks.standing import IDLE, START_UP
from benchmarks.start_targets import START_TARGETS
from benchmarks.state_targets import STATE_TARGETS
from benchmarks.systems import EXECUTORS, System
from benchmarks.workloads import Workload

AGGREGATION, INTERVAL, ROWS, JOIN, REQUESTS, KAFKA, SETTINGS = "aggregation", "interval", "rows", "join", "requests", "kafka", "settings"
LONG = 100
"""Epochs over which requests must be amortised."""
CHECKPOINTS = 3
"""Fewer completed checkpoints say nothing of an interval."""
NO_FLOOR = "the floor was slower than what it is under, so in this run it is none"
_ROWS = Workload("aggregation").rows

TIMES = (
    "epoch_ms",
    "tasks_ms",
    "logs_ms",
    PHASE,
    "commit_per_store_ms",
    "load_per_store_ms",
    "end_to_end_ms",
    SPAN,
    "all_cpu_ms",
    "agent_cpu_ms",
    "coordinator_cpu_ms",
    "elsewhere_cpu_ms",
    "elsewhere_percent",
)
"""Metrics of a profile, or how their names begin."""
BYTES, REQUESTED = ("put_bytes", "checkpointed_bytes", STORED), tuple(f"{kind.value.lower()}_requests" for kind in Kind)
RESTORING = ("first_epoch_ms", "empty_ms", "restore_ms", PHASE, "load_per_store_ms", "first_epoch_", "empty_")


def _aggregation(system: System, partitions: int, experiment: str = AGGREGATION) -> Case:
    return Case(experiment, system.value, partitions, _ROWS)


def over_floor(measured: Estimate | str, show: Callable[[float], str], nothing: float) -> Estimate | str:
    """What lies below the floor by more than chance says that in this run the floor was none; `nothing`: as much as the floor."""
    if isinstance(measured, Estimate) and measured.high < nothing:
        return f"{show(measured.value)}: {NO_FLOOR}"
    return measured


def _over_floor(case: Case, floor: Case) -> Measure:
    return lambda figures: over_floor(ratio_of(_epoch(case), _epoch(floor))(figures), times, 1)


def _beyond_floor(metric: str, case: Case, floor: Case) -> Measure:
    return lambda figures: over_floor(difference(median_of(metric, case), median_of(metric, floor))(figures), millis, 0)


def _epoch(case: Case) -> Measure:
    return median_of("epoch_ms", case)


def _interval(estimate: Callable[[Sequence[float]], Estimate], partitions: int) -> Measure:
    """Epochs with a checkpoint every 10 s over those of the floor: as many of both, and enough checkpoints among them."""

    def measure(figures: Figures) -> Estimate | str:
        ours, floor = (_aggregation(system, partitions, INTERVAL) for system in (System.S3_INTERVAL, System.FLOOR))
        epochs, base = figures.values(ours, "epoch_ms"), figures.values(floor, "epoch_ms")
        if not epochs or not base:
            return ""
        completed = len(figures.values(ours, "end_to_end_ms"))
        if completed < CHECKPOINTS:
            return f"{completed} completed checkpoints of at least {CHECKPOINTS}"
        if len(epochs) != len(base):
            return f"{len(epochs)} epochs against {len(base)}"
        ratio = over_floor(estimate(epochs).over(estimate(base)), times, 1)
        rounds, note = min(figures.rounds(ours), figures.rounds(floor)), f"{completed} checkpoints in {len(epochs)} epochs"
        return ratio if isinstance(ratio, str) else replace(ratio, note=note, rounds=rounds)

    return measure


def _requests(metric: str, partitions: int, system: System = System.S3) -> Measure:
    """Of the long run: few epochs hold no snapshot and no deletion, so what they need is told and no more."""

    def measure(figures: Figures) -> Estimate | str:
        for case in (Case(REQUESTS, system.value, partitions, LONG_ROWS), _aggregation(system, partitions)):
            value, epochs = figures.median(case, metric), len(figures.values(case, "epoch_ms"))
            if value is not None and epochs >= LONG:
                return replace(Estimate.exact(value), note=f"over {epochs} epochs")
            if value is not None:
                return f"{count(value)} over {epochs} epochs of at least {LONG}"
        return ""

    return measure


def _overhead(partitions: int) -> Measure:
    """Bytes put over bytes of changelogs, full snapshots and new SSTs, both as means over the epochs of the same turns."""

    def measure(figures: Figures) -> Estimate | str:
        case = _aggregation(System.S3, partitions)
        put, new = figures.values(case, "put_bytes"), figures.values(case, "checkpointed_bytes")
        return Estimate.exact((sum(put) / len(put)) / (sum(new) / len(new))) if put and sum(new) else ""

    return measure


def _restore(slow: str, fast: str, of_slow: str = "restore_ms", of_fast: str = "restore_ms") -> Measure:
    """One system's time over another's, for the largest state that both were measured with; `of_…` are the metrics."""

    def measure(figures: Figures) -> Estimate | str:
        for case in reversed(figures.cases(RESTORE)):
            above = figures.values(Case(RESTORE, slow, case.partitions, case.size), of_slow)
            below = figures.values(case, of_fast)
            if case.system == fast and above and below:
                note, rounds = f"{case.size} MB, tries: {len(below)} and {len(above)}", min(len(below), len(above))
                return replace(Estimate.median(above).over(Estimate.median(below)), note=note, rounds=rounds)
        return ""

    return measure


def _agent_at_most(figures: Figures) -> Estimate | str:
    for case in reversed(figures.cases(FILLED)):
        value = figures.median(case, "peak_memory_bytes")
        if case.system == "agent" and value is not None:
            return replace(Estimate.exact(value), note=f"{case.size} MB of state")
    return ""


LONG_ROWS = 1_000
_S3_200, _S3_20 = _aggregation(System.S3, 200), _aggregation(System.S3, 20)
_FLOOR_200, _FLOOR_20 = _aggregation(System.FLOOR, 200), _aggregation(System.FLOOR, 20)
_FILE_200, _FILE_20 = _aggregation(System.FILE, 200), _aggregation(System.FILE, 20)
_OURS = System.S3.value
_TUNED, _TUNED_200 = System.SAME_TUNED.value, _aggregation(System.SAME_TUNED, 200)
_LOCAL_200, _LOCAL_20 = _aggregation(System.SAME_LOCAL, 200), _aggregation(System.SAME_LOCAL, 20)
_SMALL = (Case(ROWS, System.S3.value, 20, 1), Case(ROWS, System.FLOOR.value, 20, 1))
_START = (Case(START_UP, System.S3.value, 20, 1), Case(START_UP, System.STOCK_LOCAL.value, 20, 1))


def _epochs_of(*systems: System, partitions: int, experiment: str = AGGREGATION, size: int = _ROWS) -> Profile:
    return Profile(experiment, tuple(system.value for system in systems), TIMES, partitions, size)


def _counted_of(metrics: Sequence[str], partitions: int, system: System = System.S3, experiment: str = REQUESTS) -> Profile:
    rows, kind = LONG_ROWS if experiment == REQUESTS else _ROWS, "requests" if metrics == REQUESTED else "bytes"
    return Profile(experiment, (system.value,), metrics, partitions, rows, kind=kind)


_RESTORED = Profile(RESTORE, (_OURS, _TUNED, PLAIN), RESTORING)
_FLOORED = {n: _epochs_of(System.FLOOR, System.FILE, System.S3, partitions=n) for n in (20, 200)}
_AGAINST_STOCK = {n: _epochs_of(System.SAME_LOCAL, System.SAME_TUNED, System.FLOOR, System.S3, partitions=n) for n in (20, 200)}
_EVERY_10_S = _epochs_of(System.FLOOR, System.S3_INTERVAL, partitions=200, experiment=INTERVAL)
_ONE_ROW = _epochs_of(System.FLOOR, System.S3, partitions=20, experiment=ROWS, size=1)
_ASKED = {n: _counted_of(REQUESTED, n) for n in (20, 200)}
_IDLE = Profile(IDLE, ("agent", "coordinator"), ("memory_bytes", "cpu_percent"), kind="processes")

TARGETS: Sequence[Target] = (
    Target("epoch on s3://, 200 partitions, over the floor", 1.15, _over_floor(_S3_200, _FLOOR_200), times, profile=_FLOORED[200]),
    Target(
        "stock on tuned S3A, same settings, over s3://, 200 partitions",
        5,
        ratio_of(_epoch(_TUNED_200), _epoch(_S3_200)),
        times,
        at_least=True,
        profile=_AGAINST_STOCK[200],
    ),
    Target(
        "epoch on s3:// over stock on local disk, same settings, 200 partitions",
        1,
        ratio_of(_epoch(_S3_200), _epoch(_LOCAL_200)),
        times,
        profile=_AGAINST_STOCK[200],
    ),
    Target("epoch on s3://, 20 partitions, over the floor: numbers made by Spark", None, _over_floor(_S3_20, _FLOOR_20), times),
    Target(
        "the same numbers read from Kafka, whose group follows",
        None,
        _over_floor(*(_aggregation(system, 20, KAFKA) for system in (System.S3, System.FLOOR))),
        times,
    ),
    Target(
        "epoch of one row on s3:// beyond the floor, 20 partitions: 2.5 round trips",
        2.5 * LATENCY_MS,
        _beyond_floor("epoch_ms", *_SMALL),
        millis,
        profile=_ONE_ROW,
    ),
    Target(
        "checkpoint end to end on s3:// beyond the floor's, 20 partitions",
        100,
        _beyond_floor("end_to_end_ms", _S3_20, _FLOOR_20),
        millis,
        profile=_FLOORED[20],
    ),
    Target("epoch on file:// over the floor, 200 partitions", 1.1, _over_floor(_FILE_200, _FLOOR_200), times, profile=_FLOORED[200]),
    Target("epoch on file:// over the floor, 20 partitions", 1.1, _over_floor(_FILE_20, _FLOOR_20), times, profile=_FLOORED[20]),
    Target("epoch on s3:// every 10 s over the floor, 200 partitions", 1.05, _interval(Estimate.median, 200), times, profile=_EVERY_10_S),
    Target("the same, means instead of medians", 1.05, _interval(Estimate.mean, 200), times, profile=_EVERY_10_S),
    *(
        Target(
            f"the floor over stock on local disk, same settings, {n} partitions",
            limit,
            ratio_of(_epoch(floor), _epoch(local)),
            times,
            profile=_AGAINST_STOCK[n],
        )
        for n, limit, floor, local in ((200, 0.16, _FLOOR_200, _LOCAL_200), (20, 0.4, _FLOOR_20, _LOCAL_20))
    ),
    *(
        Target(
            f"snapshot in the task thread beyond the engine's work, {n} partitions",
            1,
            median_of("commit_beyond_engine_ms", case),
            millis,
            profile=_FLOORED[n],
        )
        for n, case in ((200, _S3_200), (20, _S3_20))
    ),
    *(
        Target(
            f"S3 requests an epoch, {n} partitions: 4 + executors",
            4 + 1,
            _requests("requests", n),
            count,
            counted=True,
            profile=_ASKED[n],
        )
        for n in (200, 20)
    ),
    Target(
        "the same with two executors",
        4 + EXECUTORS,
        _requests("requests", 20, System.S3_CLUSTER),
        count,
        counted=True,
        profile=_counted_of(REQUESTED, 20, System.S3_CLUSTER),
    ),
    *(
        Target(f"LIST requests an epoch, {n} partitions", 0, _requests("list_requests", n), count, counted=True, profile=_ASKED[n])
        for n in (200, 20)
    ),
    *(
        Target(
            f"part of all packs that is dead, {n} partitions",
            0.5,
            _requests("dead_share", n),
            count,
            counted=True,
            profile=_counted_of((*BYTES, "dead_share"), n),
        )
        for n in (200, 20)
    ),
    *(
        Target(
            f"bytes to S3 over changelogs and new SSTs, {n} partitions",
            1.2,
            _overhead(n),
            times,
            counted=True,
            profile=_counted_of(BYTES, n, experiment=AGGREGATION),
        )
        for n in (200, 20)
    ),
    Target("plain boto3's time over ours, restoring on a fresh machine", 0.8, _restore(PLAIN, _OURS), times, True, profile=_RESTORED),
    Target("stock's time over ours, restoring on a fresh machine", 3, _restore(_TUNED, _OURS), times, True, profile=_RESTORED),
    Target("stock's time over plain boto3's: what is possible there", None, _restore(_TUNED, PLAIN), times),
    Target(
        "plain boto3's time over ours to the first epoch, query's start included",
        None,
        _restore(PLAIN, _OURS, of_fast="first_epoch_ms"),
        times,
    ),
    Target(
        "stock's time over ours to the first epoch, query's start included",
        3,
        _restore(_TUNED, _OURS, "first_epoch_ms", "first_epoch_ms"),
        times,
        at_least=True,
        profile=_RESTORED,
    ),
    *(
        Target(
            f"epoch on s3:// with {name} as Spark has it, over one as the plugin sets it, {n} partitions",
            1.1 if n == 200 else None,
            ratio_of(_epoch(_aggregation(system, n, SETTINGS)), _epoch(_aggregation(System.S3, n, SETTINGS))),
            times,
            at_least=True,
            profile=_epochs_of(System.S3, System.S3_VALIDATES, System.S3_BYPASSES, partitions=n, experiment=SETTINGS),
        )
        for n in (200, 20)
        for name, system in (("commitValidation", System.S3_VALIDATES), ("bypassMergeThreshold", System.S3_BYPASSES))
    ),
    *SIZE_TARGETS,
    *(
        Target(f"idle {name}, {what}", limit, exactly(metric, Case(IDLE, name)), show, counted=True, profile=_IDLE)
        for what, metric, limit, show in (("memory", "memory_bytes", 120 * MB, megabytes), ("processor", "cpu_percent", 0.5, percent))
        for name in ("agent", "coordinator")
    ),
    Target("memory of an agent at most, large state", None, _agent_at_most, megabytes, counted=True),
    Target(
        f"the same over its bound, {MEGABYTES:,} MB of state",
        1,
        over_bound("peak_memory_bytes", Case(FILLED, "agent", RESTORED_PARTITIONS, MEGABYTES)),
        times,
        counted=True,
        profile=Profile(FILLED, ("agent",), ("peak_memory_bytes", FILES), kind="memory", unit="MB"),
    ),
    Target(
        "start-up added to a query on an empty storage",
        1000,
        difference(*(median_of("start_up_ms", case) for case in _START)),
        millis,
        profile=Profile(START_UP, tuple(case.system for case in _START), ("session_ms", "first_epoch_ms", PHASE)),
    ),
    *START_TARGETS,
    *STATE_TARGETS,
)


def verdicts(figures: Figures) -> list[Verdict]:
    return judged(TARGETS, figures)
