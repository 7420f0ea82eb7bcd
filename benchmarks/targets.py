"""What the benchmark must show, each as a ratio or a difference within one run, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.far_s3 import LATENCY_MS
from benchmarks.figures import Case, Figures
from benchmarks.finalise import EXPERIMENT as FINALISE
from benchmarks.finalise import GROWN
from benchmarks.restore import EXPERIMENT as RESTORE
from benchmarks.restore import PLAIN
from benchmarks.standing import IDLE, START_UP
from benchmarks.systems import System
from benchmarks.workloads import Workload

AGGREGATION, ROWS, JOIN, REQUESTS = "aggregation", "rows", "join", "requests"
EXECUTORS = 1
_ROWS = Workload("aggregation").rows
_MB = 1_000_000


@dataclass(frozen=True)
class Target:
    """Met when the measured value is at most `limit` (at least, if `at_least`). `show` writes such a value for people."""

    what: str
    limit: float
    measure: Callable[[Figures], float | None]
    show: Callable[[float], str]
    at_least: bool = False


@dataclass(frozen=True)
class Verdict:
    """`met` is None where it was not measured."""

    what: str
    target: str
    measured: str
    met: bool | None


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


def _aggregation(system: System, partitions: int) -> Case:
    return Case(AGGREGATION, system.value, partitions, _ROWS)


def _ratio(metric: str, case: Case, base: Case) -> Callable[[Figures], float | None]:
    return lambda figures: figures.ratio(metric, case, base)


def _more(metric: str, case: Case, base: Case) -> Callable[[Figures], float | None]:
    def measure(figures: Figures) -> float | None:
        above, below = figures.median(case, metric), figures.median(base, metric)
        return None if above is None or below is None else above - below

    return measure


def _median(metric: str, case: Case) -> Callable[[Figures], float | None]:
    return lambda figures: figures.median(case, metric)


def _last(experiment: str, metric: str, pick: Callable[[Case], bool]) -> Callable[[Figures], float | None]:
    """Of the cases that fit, the last one's median: the largest, as they are measured in that order."""

    def measure(figures: Figures) -> float | None:
        found = [figures.median(case, metric) for case in figures.cases(experiment) if pick(case)]
        known = [value for value in found if value is not None]
        return known[-1] if known else None

    return measure


def _requests(metric: str, partitions: int) -> Callable[[Figures], float | None]:
    """Of the long run, or of the short turns where there was none."""

    def measure(figures: Figures) -> float | None:
        long = _last(REQUESTS, metric, lambda case: (case.system, case.partitions) == (System.S3.value, partitions))(figures)
        return long if long is not None else figures.median(_aggregation(System.S3, partitions), metric)

    return measure


def _overhead(partitions: int) -> Callable[[Figures], float | None]:
    """Bytes put over bytes of changelogs, full snapshots and new SSTs, both as means over the epochs of the same turns."""

    def measure(figures: Figures) -> float | None:
        case = _aggregation(System.S3, partitions)
        put, new = figures.values(case, "put_bytes"), figures.values(case, "checkpointed_bytes")
        return None if not put or not sum(new) else (sum(put) / len(put)) / (sum(new) / len(new))

    return measure


def _restore(base: str) -> Callable[[Figures], float | None]:
    """The other's time over ours, for the largest state that both were measured with."""

    def measure(figures: Figures) -> float | None:
        for case in reversed(figures.cases(RESTORE)):
            other = Case(RESTORE, base, case.partitions, case.size)
            if case.system == System.S3.value and figures.values(other, "restore_ms"):
                return figures.ratio("restore_ms", other, case)
        return None

    return measure


def _finalise(metric: str, partitions: int) -> Callable[[Figures], float | None]:
    return _median(metric, Case(FINALISE, "coordinator", partitions, GROWN))


_S3_200, _S3_20 = _aggregation(System.S3, 200), _aggregation(System.S3, 20)
_INTERVAL_200 = _aggregation(System.S3_INTERVAL, 200)
_FLOOR_200, _FLOOR_20 = _aggregation(System.FLOOR, 200), _aggregation(System.FLOOR, 20)
_LOCAL_200, _LOCAL_20 = _aggregation(System.STOCK_LOCAL, 200), _aggregation(System.STOCK_LOCAL, 20)
_SMALL = (Case(ROWS, System.S3.value, 20, 1), Case(ROWS, System.FLOOR.value, 20, 1))
_START = (Case(START_UP, System.S3.value, 20, 1), Case(START_UP, System.STOCK_LOCAL.value, 20, 1))

TARGETS: Sequence[Target] = (
    Target("epoch on s3://, 200 partitions, over the floor", 1.15, _ratio("epoch_ms", _S3_200, _FLOOR_200), times),
    Target(
        "stock on tuned S3A over s3://, 200 partitions", 5, _ratio("epoch_ms", _aggregation(System.STOCK_TUNED, 200), _S3_200), times, True
    ),
    Target("epoch on s3:// over stock on local disk, 200 partitions", 1, _ratio("epoch_ms", _S3_200, _LOCAL_200), times),
    Target("epoch of one row on s3:// beyond the floor, 20 partitions: 3 round trips", 3 * LATENCY_MS, _more("epoch_ms", *_SMALL), millis),
    Target("checkpoint end to end on s3:// beyond the floor's, 20 partitions", 100, _more("end_to_end_ms", _S3_20, _FLOOR_20), millis),
    Target("epoch on file:// over the floor, 200 partitions", 1.1, _ratio("epoch_ms", _aggregation(System.FILE, 200), _FLOOR_200), times),
    Target("epoch on file:// over the floor, 20 partitions", 1.1, _ratio("epoch_ms", _aggregation(System.FILE, 20), _FLOOR_20), times),
    Target("epoch on s3:// every 10 s over the floor, 200 partitions", 1.05, _ratio("epoch_ms", _INTERVAL_200, _FLOOR_200), times),
    Target("the floor over stock on local disk, 200 partitions", 0.16, _ratio("epoch_ms", _FLOOR_200, _LOCAL_200), times),
    Target("the floor over stock on local disk, 20 partitions", 0.4, _ratio("epoch_ms", _FLOOR_20, _LOCAL_20), times),
    Target("snapshot in the task thread beyond the engine's work, 200 partitions", 1, _median("commit_beyond_engine_ms", _S3_200), millis),
    Target("snapshot in the task thread beyond the engine's work, 20 partitions", 1, _median("commit_beyond_engine_ms", _S3_20), millis),
    Target("S3 requests an epoch, 200 partitions: 4 + executors", 4 + EXECUTORS, _requests("requests", 200), count),
    Target("S3 requests an epoch, 20 partitions: 4 + executors", 4 + EXECUTORS, _requests("requests", 20), count),
    Target("LIST requests an epoch, 200 partitions", 0, _requests("list_requests", 200), count),
    Target("LIST requests an epoch, 20 partitions", 0, _requests("list_requests", 20), count),
    Target("bytes to S3 over changelogs and new SSTs, 200 partitions", 1.2, _overhead(200), times),
    Target("bytes to S3 over changelogs and new SSTs, 20 partitions", 1.2, _overhead(20), times),
    Target("plain boto3's time over ours, restoring on a fresh machine", 0.8, _restore(PLAIN), times, True),
    Target("stock's time over ours, restoring on a fresh machine", 3, _restore(System.STOCK_TUNED.value), times, True),
    Target(f"finalise, 10,000 partitions, {GROWN} handles each", 250, _finalise("finalise_ms", 10_000), millis),
    Target(f"_metadata, 10,000 partitions, {GROWN} handles each", _MB, _finalise("metadata_bytes", 10_000), megabytes),
    Target(f"memory of the coordinator, 10,000 partitions, {GROWN} handles each", 300 * _MB, _finalise("memory_bytes", 10_000), megabytes),
    Target(
        "finalise, 100,000 partitions over 10,000: linear",
        11,
        _ratio("finalise_ms", Case(FINALISE, "coordinator", 100_000, GROWN), Case(FINALISE, "coordinator", 10_000, GROWN)),
        times,
    ),
    Target("idle agent, memory", 120 * _MB, _median("memory_bytes", Case(IDLE, "agent")), megabytes),
    Target("idle coordinator, memory", 120 * _MB, _median("memory_bytes", Case(IDLE, "coordinator")), megabytes),
    Target("idle agent, processor", 0.5, _median("cpu_percent", Case(IDLE, "agent")), percent),
    Target("idle coordinator, processor", 0.5, _median("cpu_percent", Case(IDLE, "coordinator")), percent),
    Target("start-up added to a query on an empty storage", 1000, _more("start_up_ms", *_START), millis),
)


def verdicts(figures: Figures) -> list[Verdict]:
    found: list[Verdict] = []
    for target in TARGETS:
        value = target.measure(figures)
        bound = f"{'at least' if target.at_least else 'at most'} {target.show(target.limit)}"
        if value is None:
            found.append(Verdict(target.what, bound, "not measured", None))
        else:
            met = value >= target.limit if target.at_least else value <= target.limit
            found.append(Verdict(target.what, bound, target.show(value), met))
    return found
