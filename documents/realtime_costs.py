"""The tables of docs/real-time.md: what `python -m benchmarks realtime` has measured, from benchmarks/results/realtime.json."""

from __future__ import annotations

from benchmarks.figures import Case, Figures
from benchmarks.realtime.running import EXPERIMENT, kept_up
from benchmarks.realtime.systems import Engine
from documents.parts import replaced
from documents.places import REALTIME

_SOURCE = "benchmarks/results/realtime.json"
_COLUMNS = ("p50", "p90", "p99", "p99.9")
_SYSTEMS = [engine.value for engine in Engine]


def renewed(page: str) -> str:
    """The page with the tables of today. Raises ValueError where it has no place for them."""
    return replaced(page, _SOURCE, table(Figures.read(REALTIME)) if REALTIME.exists() else "Nothing is measured yet.")


def table(figures: Figures) -> str:
    """Latencies of each batch length, number of partitions and rate; then the most records a second that kept up."""
    cases = sorted({case for case, _, _ in figures if case.experiment.startswith(EXPERIMENT)}, key=_order)
    if not cases:
        return "Nothing is measured yet."
    lines: list[str] = []
    for experiment in dict.fromkeys(case.experiment for case in cases):
        head = ["partitions", "records a second", "system", *(f"{name} ms" for name in _COLUMNS), "standstill ms", "kept up"]
        lines += [f"**{experiment.removeprefix(f'{EXPERIMENT}, ').capitalize()}**", ""]
        lines += [f"| {' | '.join(head)} |", "|---:|---:|---|" + "---:|" * 5 + "---|"]
        lines += [_row(figures, case) for case in cases if case.experiment == experiment]
        lines.append("")
    about = figures.about
    taken = f"{about['time']}, {about['processors']}, PySpark {about['pyspark']}, commit {about['commit']}."
    return "\n".join([*lines, taken, *(f"Not measured: {note}" for note in figures.notes)])


def _order(case: Case) -> tuple[float, int, int, int]:
    return float(case.experiment.split()[-2]), case.partitions, case.size, _SYSTEMS.index(case.system)


def _row(figures: Figures, case: Case) -> str:
    def of(metric: str) -> str:
        return f"{figures.values(case, metric)[0]:,.0f}"

    cells = [str(case.partitions), f"{case.size:,}", case.system, *(of(f"{name}_ms") for name in _COLUMNS), of("standstill_ms")]
    return f"| {' | '.join([*cells, 'yes' if kept_up(figures, case) else 'no'])} |"
