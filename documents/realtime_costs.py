"""What docs/real-time.md says of `python -m benchmarks realtime`, which has a file for each length of a batch with each number of
partitions: the targets, what is not measured, and the tables. Of one setting there may be several files, of runs that are not compared
with each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.figures import Case, Figures
from benchmarks.realtime import BATCHES_S, RATES, STATE_PARTITIONS, applications
from benchmarks.realtime.running import BATCHES, EXPERIMENT, OTHERS, case_of, file_of, kept_up
from benchmarks.realtime.systems import Engine, Turn
from benchmarks.realtime.targets import BATCH_S, PARTITIONS, verdicts
from documents.parts import replaced
from documents.places import MEASURED

_SOURCE = "benchmarks/results/real-time-*.json"
_OF_TARGETS = file_of(Path("benchmarks/results"), BATCH_S, PARTITIONS).as_posix()
_NOTHING = "Nothing is measured yet."
_SETTING = ("records a second", "system")
_COLUMNS = ("p50", "p90", "p99")
_SYSTEMS = [engine.value for engine in Engine]
_BASES = (Engine.STOCK_LOCAL, Engine.FLINK)
_AROUND = {
    "planning": applications.METRICS["queryPlanning"],
    "tasks end": applications.TASKS,
    "offset log": applications.METRICS["walCommit"],
    "commit log": applications.METRICS["commitOffsets"],
    "all around the batch": applications.AROUND,
}


def renewed(page: str) -> str:
    """The page with the targets and tables of today. Raises ValueError where it has no place for them."""
    found = sorted((Figures.read(path) for path in MEASURED.glob("real-time-*.json")), key=_time, reverse=True)
    measured = sorted((figures for figures in found if _cases(figures)), key=lambda figures: _order(_cases(figures)[0]))
    page = replaced(page, _OF_TARGETS, f"{targets(measured)}\n\n{not_measured(measured)}")
    return replaced(page, _SOURCE, "\n\n".join(map(table, measured)) or _NOTHING)


def targets(measured: Sequence[Figures]) -> str:
    """For each rate that was measured at the setting that the targets are of, by the run with the most rounds, and of those the newest."""
    runs = _runs(measured, BATCH_S, PARTITIONS)
    of = max(runs, key=lambda run: (_rounds(run), _time(run)), default=Figures())
    rates = sorted({case.size for case in _cases(of)}) or [RATES[0]]
    rows = [[verdict.what, verdict.target, verdict.measured, verdict.met.value] for verdict in verdicts(of, rates)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (["target", "wanted", "measured", "met"], ["---", "---:", "---", "---"], *rows))


def not_measured(measured: Sequence[Figures]) -> str:
    """What the benchmark would measure if it had the time, and has not. Beyond a rate at which a system has not kept up it asks no more."""
    left: list[str] = []
    for batch_s in BATCHES_S:
        those = {partitions: _runs(measured, batch_s, partitions) for partitions in STATE_PARTITIONS}
        if not any(those.values()):
            left.append(f"batches of {batch_s:g} s")
            continue
        for partitions, runs in those.items():
            turns = {rate: [Turn(engine, partitions, batch_s, rate) for engine in Engine] for rate in RATES}
            rates = [rate for rate in RATES if any(all(_is_left(run, turn) for run in runs) for turn in turns[rate])]
            if rates:
                which = "all rates" if len(rates) == len(RATES) else f"{_list(f'{rate:,}' for rate in rates)} records a second"
                left.append(f"batches of {batch_s:g} s with {partitions} partitions at {which}")
    return f"**Not measured**, or not with every system: {'; '.join(left)}." if left else "All is measured that the benchmark has."


def _runs(measured: Sequence[Figures], batch_s: float, partitions: int) -> list[Figures]:
    return [figures for figures in measured if _setting_of(figures) == (_experiment(batch_s), partitions)]


def _setting_of(figures: Figures) -> tuple[str, int]:
    """What all of a file have in common."""
    case = _cases(figures)[0]
    return case.experiment, case.partitions


def _is_left(figures: Figures, turn: Turn) -> bool:
    slower = (case_of(Turn(turn.engine, turn.partitions, turn.batch_s, rate)) for rate in RATES if rate < turn.rate)
    behind = any(figures.values(case, "sent_count") and not kept_up(figures, case) for case in slower)
    return not behind and not figures.values(case_of(turn), "sent_count")


def _experiment(batch_s: float) -> str:
    return case_of(Turn(Engine.S3, STATE_PARTITIONS[0], batch_s, RATES[0])).experiment


def _list(items: Iterable[str]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def table(figures: Figures) -> str:
    """Latencies of one batch length and number of partitions, at each rate; and what Spark says of the time between two batches."""
    cases = _cases(figures)
    if not cases:
        return _NOTHING
    about = figures.about
    taken = f"{about['time']}, {about['processors']}, PySpark {about['pyspark']}, commit {about['commit']}; rounds: {_rounds(figures)}"
    taken += f"; load before: {about['load_before']}" if "load_before" in about else ""
    head = [*_SETTING, *(f"{name} ms" for name in _COLUMNS), "p99 x stock's", "p99 x Flink's", "standstill ms", "checkpoints", "kept up"]
    if others := [share for case in cases for share in figures.values(case, OTHERS)]:
        taken += f"; others had at most {max(others):.0f} % of the processors"
    experiment, partitions = _setting_of(figures)
    lines = [f"**{experiment.removeprefix(f'{EXPERIMENT}, ').capitalize()}, {partitions} partitions** ({taken})", ""]
    lines += _rows(head, [_latencies(figures, case) for case in cases])
    if told := [case for case in cases if figures.values(case, applications.AROUND)]:
        lines += ["", "Between two batches, in ms:", ""]
        lines += _rows([*_SETTING, *_AROUND, "the rest of the standstill"], [_around(figures, case) for case in told])
    return "\n".join([*lines, *(f"\nNot measured: {note}" for note in figures.notes)])


def _time(figures: Figures) -> str:
    return str(figures.about.get("time", ""))


def _rounds(figures: Figures) -> int:
    return max(len(figures.values(case, "sent_count")) for case in _cases(figures))


def _cases(figures: Figures) -> list[Case]:
    return sorted({case for case, _, _ in figures if case.experiment.startswith(EXPERIMENT)}, key=_order)


def _order(case: Case) -> tuple[float, int, int, int]:
    return float(case.experiment.split()[-2]), case.partitions, case.size, _SYSTEMS.index(case.system)


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    """Columns of figures but for the system's."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---" if name == "system" else "---:" for name in head], *rows)]


def _latencies(figures: Figures, case: Case) -> list[str]:
    bases = (Case(case.experiment, engine.value, case.partitions, case.size) for engine in _BASES)
    ratios = (figures.ratio("p99_ms", case, base) for base in bases)
    completed, batches = (figures.median(case, metric) for metric in (applications.CHECKPOINTS, BATCHES))
    return [
        *_setting(case),
        *(_spread(figures.values(case, f"{name}_ms")) for name in _COLUMNS),
        *("" if ratio is None else f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" for ratio in ratios),
        _spread(figures.values(case, "standstill_ms")),
        f"{completed:.0f} of {batches:.0f}",
        "yes" if kept_up(figures, case) else "no",
    ]


def _spread(values: Sequence[float]) -> str:
    """The median, and between what it lies if there are several."""
    median = f"{statistics.median(values):,.0f}"
    return median if len(values) == 1 else f"{median} ({min(values):,.0f} to {max(values):,.0f})"


def _around(figures: Figures, case: Case) -> list[str]:
    around, standstill = (figures.median(case, metric) or 0.0 for metric in (applications.AROUND, "standstill_ms"))
    parts = (figures.median(case, metric) or 0.0 for metric in _AROUND.values())
    return [*_setting(case), *(f"{part:,.0f}" for part in parts), f"{max(0.0, standstill - around):,.0f}"]


def _setting(case: Case) -> list[str]:
    return [f"{case.size:,}", case.system]
