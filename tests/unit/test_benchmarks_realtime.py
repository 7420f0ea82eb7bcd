"""What is made of the records that came out."""

from __future__ import annotations

import random

import pytest

from benchmarks.figures import Case, Figures
from benchmarks.realtime import Engine
from benchmarks.realtime.running import EXPERIMENT, kept_up, percentile, standstills
from benchmarks.realtime.topics import Passed
from documents import realtime_costs
from documents.places import REAL_TIME


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 90, 99, 99.9)] == [51, 91, 100, 100]
    assert percentile([7.0], 99.9) == 7


def test_a_standstill_is_the_longest_gap_of_each_stretch() -> None:
    at = [0, 100, 200, 900, 1000, 1100, 1200, 1950]
    passed = [Passed(0, t) for t in at]
    assert standstills(passed, 0, 2000, 1.0) == [700, 750]
    assert standstills(passed, 0, 1999, 1.0) == [700]
    assert standstills([], 0, 2000, 1.0) == []


@pytest.mark.parametrize(("out", "behind", "kept"), [(1000, 100, True), (970, 100, False), (1000, 2500, False)])
def test_who_lags_behind_has_not_kept_up(out: int, behind: int, kept: bool) -> None:
    case, figures = Case(f"{EXPERIMENT}, batches of 5 s", "Flink", 3, 100), Figures()
    for metric, value in (("out_count", out), ("sent_count", 1000), ("behind_ms", behind)):
        figures.add(case, metric, [value])
    assert kept_up(figures, case) is kept


@pytest.mark.parametrize("seed", range(5))
def test_a_table_has_its_systems_in_one_order(seed: int) -> None:
    """Also where a run that ended early has measured them in another."""
    figures = Figures(about=dict.fromkeys(("time", "processors", "pyspark", "commit"), "x"))
    engines = list(Engine)
    random.Random(seed).shuffle(engines)
    for engine in engines:
        case = Case(f"{EXPERIMENT}, batches of 5 s", engine.value, 3, 100)
        for metric in ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "standstill_ms", "out_count", "sent_count", "behind_ms"):
            figures.add(case, metric, [1])
    told = realtime_costs.table(figures)
    assert [line.split(" | ")[2] for line in told.splitlines() if line.startswith("| 3")] == [engine.value for engine in Engine]


def test_the_page_has_the_tables_of_the_results() -> None:
    text = REAL_TIME.read_text(encoding="utf-8")
    assert text == realtime_costs.renewed(text), "docs/real-time.md is stale: run `python -m documents`"
