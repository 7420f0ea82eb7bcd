"""A table, and how its cells are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Case, Figures, Summary


@dataclass(frozen=True)
class Table:
    """`text` columns are set to the left, the others hold numbers."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 1


def spread(summary: Summary | None, scale: float = 1.0, digits: int = 0) -> str:
    """`1,234 (1,200 - 1,300)`."""
    if summary is None:
        return ""
    low, high = (f"{value * scale:,.{digits}f}" for value in (summary.low, summary.high))
    middle = median(summary, scale, digits)
    return middle if summary.count == 1 or low == high else f"{middle} ({low} - {high})"


def median(summary: Summary | None, scale: float = 1.0, digits: int = 0) -> str:
    return "" if summary is None else f"{summary.median * scale:,.{digits}f}"


def times_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def spreads(figures: Figures, case: Case, *metrics: tuple[str, float, int]) -> tuple[str, ...]:
    return tuple(spread(figures.summary(case, metric), scale, digits) for metric, scale, digits in metrics)
