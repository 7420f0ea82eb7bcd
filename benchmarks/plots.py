"""Plots of a run, as SVG: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import finalise, restore
from benchmarks.figures import Case, Figures
from benchmarks.systems import System
from benchmarks.targets import AGGREGATION, ROWS

_COLOURS = {
    System.STOCK_LOCAL: "#7f7f7f",
    System.SAME_LOCAL: "#4d4d4d",
    System.STOCK_S3A: "#d62728",
    System.STOCK_TUNED: "#ff9896",
    System.SAME_TUNED: "#ff7f0e",
    System.FLOOR: "#c7c7c7",
    System.FILE: "#aec7e8",
    System.S3: "#1f77b4",
    System.S3_INTERVAL: "#17becf",
}


PLOTS = ("epochs", "requests", "rows", "restore", "finalise")


def draw(figures: Figures, folder: Path, name: str) -> list[Path]:
    """Those plots that there are figures for, each a file `<name>-<plot>.svg`."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "spark-ckpt", "font.size": 9, "figure.constrained_layout.use": True})
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for plot, paint in zip(PLOTS, (_epochs, _requests, _rows, _restore, _finalise), strict=True):
        figure = plt.figure(figsize=(8, 3.6))
        if paint(figures, figure):
            path = folder / f"{name}-{plot}.svg"
            figure.savefig(path, metadata={"Date": None})
            drawn.append(path)
        plt.close(figure)
    return drawn


def _epochs(figures: Figures, figure: Any) -> bool:
    return _bars(figures, figure, "epoch_ms", "epoch, ms (median, quartiles)", tuple(System))


def _requests(figures: Figures, figure: Any) -> bool:
    return _bars(figures, figure, "requests", "S3 requests an epoch", tuple(s for s in System if s.on_s3))


def _bars(figures: Figures, figure: Any, metric: str, label: str, systems: Sequence[System]) -> bool:
    """One panel for each number of partitions, on a logarithmic scale: systems differ by factors of ten."""
    cases = [case for case in figures.cases(AGGREGATION) if figures.values(case, metric)]
    sizes = sorted({case.partitions for case in cases})
    for number, partitions in enumerate(sizes):
        axes = figure.add_subplot(1, len(sizes), number + 1)
        found = {System(case.system): figures.summary(case, metric) for case in cases if case.partitions == partitions}
        shown = [(system, found[system]) for system in systems if found.get(system) is not None]
        for place, (system, summary) in enumerate(shown):
            assert summary is not None
            error = [[summary.median - summary.low], [summary.high - summary.median]]
            axes.barh(place, summary.median, xerr=error, color=_COLOURS[system], error_kw={"elinewidth": 1, "ecolor": "#333333"})
            axes.text(summary.high, place, f" {summary.median:,.0f}", va="center")
        axes.set_yticks(range(len(shown)), [system.value for system, _ in shown] if number == 0 else [""] * len(shown))
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.2)
        axes.set_xlabel(label)
        axes.set_title(f"{partitions} partitions")
    return bool(sizes)


def _rows(figures: Figures, figure: Any) -> bool:
    axes = figure.add_subplot()
    lines = 0
    for system in System:
        cases = [c for c in (*figures.cases(ROWS), *figures.cases(AGGREGATION)) if c.system == system.value and c.partitions == 20]
        points = sorted((case.size, median) for case in cases if (median := figures.median(case, "epoch_ms")) is not None)
        if len(points) > 2:
            lines += 1
            axes.plot(*zip(*points, strict=True), marker="o", label=system.value, color=_COLOURS[system])
    if lines:
        axes.set(xscale="log", yscale="log", xlabel="rows an epoch, 20 partitions", ylabel="epoch, ms (median)")
        axes.legend()
    return lines > 0


def _restore(figures: Figures, figure: Any) -> bool:
    axes = figure.add_subplot()
    cases = figures.cases(restore.EXPERIMENT)
    for place, case in enumerate(cases):
        seconds = (figures.median(case, "restore_ms") or 0) / 1000
        colour = "#2ca02c" if case.system == restore.PLAIN else _COLOURS[System(case.system)]
        axes.barh(place, seconds, color=colour)
        axes.text(seconds, place, f" {seconds:.1f} s", va="center")
    axes.set_yticks(range(len(cases)), [f"{case.system}, {case.size:,} MB" for case in cases])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("restore on a fresh machine, s (median)")
    return bool(cases)


def _finalise(figures: Figures, figure: Any) -> bool:
    cases = figures.cases(finalise.EXPERIMENT)
    for number, (metric, label, scale) in enumerate((("finalise_ms", "finalise, ms", 1.0), ("metadata_bytes", "_metadata, MB", 1e-6))):
        axes = figure.add_subplot(1, 2, number + 1)
        for handles in (finalise.YOUNG, finalise.GROWN):
            points = [(c.partitions, m * scale) for c in _of(cases, handles) if (m := figures.median(c, metric)) is not None]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{handles} handles a snapshot")
        axes.set(xscale="log", yscale="log", xlabel="partitions", ylabel=label)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    return bool(cases)


def _of(cases: Sequence[Case], handles: int) -> list[Case]:
    return [case for case in cases if case.size == handles]
