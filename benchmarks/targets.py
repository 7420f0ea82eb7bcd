"""What the benchmark must show, each as a ratio or a difference within one run, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from benchmarks.far_s3 import LATENCY_MS
from benchmarks.figures import Case, Estimate, Figures
from benchmarks.finalise import EXPERIMENT as FINALISE
from benchmarks.finalise import GROWN, YOUNG
from benchmarks.restore import EXPERIMENT as RESTORE
from benchmarks.restore import FILLED, PLAIN
from benchmarks.standing import IDLE, START_UP
from benchmarks.systems import EXECUTORS, System
from benchmarks.workloads import Workload

AGGREGATION, INTERVAL, ROWS, JOIN, REQUESTS = "aggregation", "interval", "rows", "join", "requests"
LONG = 100
"""Epochs over which requests must be amortised."""
CHECKPOINTS = 3
"""Fewer completed checkpoints say nothing of an interval."""
QUIET = 0.5
"""Load for each processor before a run, above which its times say nothing."""
_ROWS = Workload("aggregation").rows
_MB = 1_000_000

Measure = Callable[[Figures], "Estimate | str"]
"""The text says why there is no figure; it may be empty."""


class Met(Enum):
    """The value is how tables call it."""

    YES = "yes"
    NO = "no"
    NOISY = "too noisy"
    OPEN = "-"


@dataclass(frozen=True)
class Target:
    """Met when the measured value is at most `limit` (at least, if `at_least`; None: it is only told). `show` writes it for people.

    What is `counted` is the same on a busy machine.
    """

    what: str
    limit: float | None
    measure: Measure
    show: Callable[[float], str]
    at_least: bool = False
    counted: bool = False


@dataclass(frozen=True)
class Verdict:
    what: str
    target: str
    measured: str
    met: Met


def times(value: float) -> str:
    return f"{value:.2f} x"


def millis(value: float) -> str:
    return f"{value:,.0f} ms" if abs(value) >= 10 else f"{value:.1f} ms"


def count(value: float) -> str:
    return f"{value:,.2f}"


def megabytes(value: float) -> str:
    return f"{value / _MB:,.1f} MB"


def percent(value: float) -> str:
    return f"{value:.2f} %"


def _aggregation(system: System, partitions: int, experiment: str = AGGREGATION) -> Case:
    return Case(experiment, system.value, partitions, _ROWS)


def _median(metric: str, case: Case) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        values = figures.values(case, metric)
        return Estimate.median(values) if values else ""

    return measure


def _exact(metric: str, case: Case) -> Measure:
    """A median of what is counted."""

    def measure(figures: Figures) -> Estimate | str:
        value = figures.median(case, metric)
        return "" if value is None else Estimate.exact(value)

    return measure


def _ratio(above: Measure, below: Measure) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        one, other = above(figures), below(figures)
        return one.over(other) if isinstance(one, Estimate) and isinstance(other, Estimate) and other.value else ""

    return measure


def _more(above: Measure, below: Measure) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        one, other = above(figures), below(figures)
        return one.beyond(other) if isinstance(one, Estimate) and isinstance(other, Estimate) else ""

    return measure


def _epoch(case: Case) -> Measure:
    return _median("epoch_ms", case)


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
        return replace(estimate(epochs).over(estimate(base)), note=f"{completed} checkpoints in {len(epochs)} epochs")

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
                note = f"{case.size} MB, tries: {len(below)} and {len(above)}"
                return replace(Estimate.median(above).over(Estimate.median(below)), note=note)
        return ""

    return measure


def _agent_at_most(figures: Figures) -> Estimate | str:
    for case in reversed(figures.cases(FILLED)):
        value = figures.median(case, "peak_memory_bytes")
        if case.system == "agent" and value is not None:
            return replace(Estimate.exact(value), note=f"{case.size} MB of state")
    return ""


def _finalise(metric: str, partitions: int, handles: int = GROWN) -> Measure:
    case = Case(FINALISE, "coordinator", partitions, handles)
    return _median(metric, case) if metric.endswith("_ms") else _exact(metric, case)


def _of_finalise(handles: int) -> Sequence[Target]:
    """Of a store's first epochs, and of one that has run for long."""
    each = f"10,000 partitions, {handles} handle{'s' if handles > 1 else ''} each"
    size, memory = (_finalise(metric, 10_000, handles) for metric in ("metadata_bytes", "memory_bytes"))
    return (
        Target(f"taking in the acknowledgements, {each}", None, _finalise("acks_ms", 10_000, handles), millis),
        Target(f"finalise, {each}", 250, _finalise("finalise_ms", 10_000, handles), millis),
        Target(f"_metadata, {each}", _MB, size, megabytes, counted=True),
        Target(f"memory of the coordinator, {each}", 300 * _MB, memory, megabytes, counted=True),
    )


LONG_ROWS = 1_000
_S3_200, _S3_20 = _aggregation(System.S3, 200), _aggregation(System.S3, 20)
_FLOOR_200, _FLOOR_20 = _aggregation(System.FLOOR, 200), _aggregation(System.FLOOR, 20)
_FILE_200, _FILE_20 = _aggregation(System.FILE, 200), _aggregation(System.FILE, 20)
_OURS = System.S3.value
_TUNED, _TUNED_200 = System.STOCK_TUNED.value, _aggregation(System.STOCK_TUNED, 200)
_LOCAL_200, _LOCAL_20 = _aggregation(System.STOCK_LOCAL, 200), _aggregation(System.STOCK_LOCAL, 20)
_SMALL = (Case(ROWS, System.S3.value, 20, 1), Case(ROWS, System.FLOOR.value, 20, 1))
_START = (Case(START_UP, System.S3.value, 20, 1), Case(START_UP, System.STOCK_LOCAL.value, 20, 1))

TARGETS: Sequence[Target] = (
    Target("epoch on s3://, 200 partitions, over the floor", 1.15, _ratio(_epoch(_S3_200), _epoch(_FLOOR_200)), times),
    Target("stock on tuned S3A over s3://, 200 partitions", 5, _ratio(_epoch(_TUNED_200), _epoch(_S3_200)), times, at_least=True),
    Target("epoch on s3:// over stock on local disk, 200 partitions", 1, _ratio(_epoch(_S3_200), _epoch(_LOCAL_200)), times),
    Target("epoch of one row on s3:// beyond the floor, 20 partitions: 3 round trips", 3 * LATENCY_MS, _more(*map(_epoch, _SMALL)), millis),
    Target(
        "checkpoint end to end on s3:// beyond the floor's, 20 partitions",
        100,
        _more(_median("end_to_end_ms", _S3_20), _median("end_to_end_ms", _FLOOR_20)),
        millis,
    ),
    Target("epoch on file:// over the floor, 200 partitions", 1.1, _ratio(_epoch(_FILE_200), _epoch(_FLOOR_200)), times),
    Target("epoch on file:// over the floor, 20 partitions", 1.1, _ratio(_epoch(_FILE_20), _epoch(_FLOOR_20)), times),
    Target("epoch on s3:// every 10 s over the floor, 200 partitions", 1.05, _interval(Estimate.median, 200), times),
    Target("the same, means instead of medians", 1.05, _interval(Estimate.mean, 200), times),
    Target("the floor over stock on local disk, 200 partitions", 0.16, _ratio(_epoch(_FLOOR_200), _epoch(_LOCAL_200)), times),
    Target("the floor over stock on local disk, 20 partitions", 0.4, _ratio(_epoch(_FLOOR_20), _epoch(_LOCAL_20)), times),
    Target("snapshot in the task thread beyond the engine's work, 200 partitions", 1, _median("commit_beyond_engine_ms", _S3_200), millis),
    Target("snapshot in the task thread beyond the engine's work, 20 partitions", 1, _median("commit_beyond_engine_ms", _S3_20), millis),
    Target("S3 requests an epoch, 200 partitions: 4 + executors", 4 + 1, _requests("requests", 200), count, counted=True),
    Target("S3 requests an epoch, 20 partitions: 4 + executors", 4 + 1, _requests("requests", 20), count, counted=True),
    Target("the same with two executors", 4 + EXECUTORS, _requests("requests", 20, System.S3_CLUSTER), count, counted=True),
    Target("LIST requests an epoch, 200 partitions", 0, _requests("list_requests", 200), count, counted=True),
    Target("LIST requests an epoch, 20 partitions", 0, _requests("list_requests", 20), count, counted=True),
    Target("part of all packs that is dead, 200 partitions", 0.5, _requests("dead_share", 200), count, counted=True),
    Target("part of all packs that is dead, 20 partitions", 0.5, _requests("dead_share", 20), count, counted=True),
    Target("bytes to S3 over changelogs and new SSTs, 200 partitions", 1.2, _overhead(200), times, counted=True),
    Target("bytes to S3 over changelogs and new SSTs, 20 partitions", 1.2, _overhead(20), times, counted=True),
    Target("plain boto3's time over ours, restoring on a fresh machine", 0.8, _restore(PLAIN, _OURS), times, True),
    Target("stock's time over ours, restoring on a fresh machine", 3, _restore(_TUNED, _OURS), times, True),
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
    ),
    *(target for handles in (YOUNG, GROWN) for target in _of_finalise(handles)),
    Target(
        "finalise, 100,000 partitions over 10,000: linear",
        11,
        _ratio(_finalise("finalise_ms", 100_000), _finalise("finalise_ms", 10_000)),
        times,
    ),
    Target("idle agent, memory", 120 * _MB, _exact("memory_bytes", Case(IDLE, "agent")), megabytes, counted=True),
    Target("idle coordinator, memory", 120 * _MB, _exact("memory_bytes", Case(IDLE, "coordinator")), megabytes, counted=True),
    Target("idle agent, processor", 0.5, _exact("cpu_percent", Case(IDLE, "agent")), percent, counted=True),
    Target("idle coordinator, processor", 0.5, _exact("cpu_percent", Case(IDLE, "coordinator")), percent, counted=True),
    Target("memory of an agent at most, large state", None, _agent_at_most, megabytes, counted=True),
    Target("start-up added to a query on an empty storage", 1000, _more(*(_median("start_up_ms", case) for case in _START)), millis),
)


def verdicts(figures: Figures) -> list[Verdict]:
    busy = _busy(figures)
    return [_verdict(target, target.measure(figures), busy) for target in TARGETS]


def _verdict(target: Target, measured: Estimate | str, busy: bool) -> Verdict:
    bound = "-" if target.limit is None else f"{'at least' if target.at_least else 'at most'} {target.show(target.limit)}"
    if isinstance(measured, str):
        return Verdict(target.what, bound, f"not measured{f': {measured}' if measured else ''}", Met.OPEN)
    shown = f"{target.show(measured.value)}{f' ({measured.note})' if measured.note else ''}"
    if target.limit is None:
        return Verdict(target.what, bound, shown, Met.OPEN)
    if not target.counted and (busy or measured.low <= target.limit <= measured.high != measured.low):
        return Verdict(target.what, bound, f"{shown}, {target.show(measured.low)} to {target.show(measured.high)}", Met.NOISY)
    met = measured.value >= target.limit if target.at_least else measured.value <= target.limit
    return Verdict(target.what, bound, shown, Met.YES if met else Met.NO)


def _busy(figures: Figures) -> bool:
    """Files of earlier runs tell the number of processors in words only."""
    about = figures.about
    processors = about.get("processor_count") or int(str(about.get("processors", "1")).split()[0])
    return float(about.get("load_before", 0)) > QUIET * processors
