"""The tables of docs/real-time.md: what `python -m benchmarks realtime` has measured, of each batch length from a file of its own."""

from __future__ import annotations

from benchmarks.figures import Case, Figures
from benchmarks.realtime import between
from benchmarks.realtime.running import EXPERIMENT, kept_up
from benchmarks.realtime.systems import Engine
from documents.parts import replaced
from documents.places import MEASURED

_SOURCE = "benchmarks/results/real-time-*.json"
_NOTHING = "Nothing is measured yet."
_COLUMNS = ("p50", "p90", "p99", "p99.9")
_SYSTEMS = [engine.value for engine in Engine]
_BASES = (Engine.STOCK_LOCAL, Engine.FLINK)
_BETWEEN = {
    "planning": between.METRICS["queryPlanning"],
    "tasks start and end": between.TASKS,
    "offset log": between.METRICS["walCommit"],
    "commit log": between.METRICS["commitOffsets"],
    "all of it": between.ALL,
}


def renewed(page: str) -> str:
    """The page with the tables of today. Raises ValueError where it has no place for them."""
    found = [Figures.read(path) for path in MEASURED.glob("real-time-*.json")]
    measured = sorted((figures for figures in found if _cases(figures)), key=lambda figures: _order(_cases(figures)[0]))
    return replaced(page, _SOURCE, "\n\n".join(map(table, measured)) or _NOTHING)


def table(figures: Figures) -> str:
    """Latencies of one batch length, for each number of partitions and rate; and where Spark says what it did between two batches."""
    cases = _cases(figures)
    if not cases:
        return _NOTHING
    about = figures.about
    taken = f"{about['time']}, {about['processors']}, PySpark {about['pyspark']}, commit {about['commit']}."
    head = ["partitions", "records a second", "system", *(f"{name} ms" for name in _COLUMNS), "p99 x stock's", "p99 x Flink's"]
    lines = [f"**{cases[0].experiment.removeprefix(f'{EXPERIMENT}, ').capitalize()}** ({taken})", ""]
    lines += _rows([*head, "standstill ms", "kept up"], 3, [_latencies(figures, case) for case in cases])
    if told := [case for case in cases if figures.values(case, between.ALL)]:
        lines += ["", "Between two of them, by Spark's own progress, in ms (medians):", ""]
        lines += _rows(["partitions", "records a second", "system", *_BETWEEN], 3, [_between(figures, case) for case in told])
    return "\n".join([*lines, *(f"\nNot measured: {note}" for note in figures.notes)])


def _cases(figures: Figures) -> list[Case]:
    return sorted({case for case, _, _ in figures if case.experiment.startswith(EXPERIMENT)}, key=_order)


def _order(case: Case) -> tuple[float, int, int, int]:
    return float(case.experiment.split()[-2]), case.partitions, case.size, _SYSTEMS.index(case.system)


def _rows(head: list[str], texts: int, rows: list[list[str]]) -> list[str]:
    """`texts`: how many columns come before the figures; the first two of them are figures as well."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---:", "---:", "---", *["---:"] * (len(head) - texts)], *rows)]


def _latencies(figures: Figures, case: Case) -> list[str]:
    def of(metric: str) -> str:
        return f"{figures.values(case, metric)[0]:,.0f}"

    bases = (Case(case.experiment, engine.value, case.partitions, case.size) for engine in _BASES)
    ratios = (figures.ratio("p99_ms", case, base) for base in bases)
    return [
        *_setting(case),
        *(of(f"{name}_ms") for name in _COLUMNS),
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        of("standstill_ms"),
        "yes" if kept_up(figures, case) else "no",
    ]


def _between(figures: Figures, case: Case) -> list[str]:
    return [*_setting(case), *(f"{figures.values(case, metric)[0]:,.0f}" for metric in _BETWEEN.values())]


def _setting(case: Case) -> list[str]:
    return [str(case.partitions), f"{case.size:,}", case.system]
