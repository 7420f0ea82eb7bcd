"""What is made of the records that came out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import machine
from benchmarks.__main__ import cli
from benchmarks.figures import Case, Figures
from benchmarks.realtime import Engine, between, file_of
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


def test_a_standstill_counts_whole_where_it_begins() -> None:
    """Batches of 1 s with 500 ms between them: of three stretches one is within a batch."""
    passed = [Passed(0, 1500 * batch + t) for batch in range(6) for t in range(0, 1001, 100)]
    assert standstills(passed, 0, 9000, 1.0) == [100, 500, 500, 100, 500, 500, 100, 500, 100]


def progress(second: int, **durations: int) -> dict[str, Any]:
    return {"timestamp": f"2026-11-28T00:00:{second:02}.000Z", "durationMs": durations}


def test_what_spark_does_between_two_batches_is_what_takes_longer_than_the_batch(tmp_path: Path) -> None:
    told = [
        progress(1, triggerExecution=9000, addBatch=8000, queryPlanning=700),
        progress(10, triggerExecution=1200, addBatch=1100, queryPlanning=40, walCommit=5, commitOffsets=7),
        progress(12, triggerExecution=1400, addBatch=1200, queryPlanning=60, walCommit=7, commitOffsets=9),
    ]
    (tmp_path / "progress.json").write_text(json.dumps(told))
    ten = 1795824000000.0 + 10_000
    found = between.medians(tmp_path / "progress.json", 1.0, ten, ten + 5000)
    assert found == {"planning_ms": [50], "log_ms": [6], "commit_ms": [8], "tasks_ms": [150], "between_ms": [300]}
    assert between.medians(tmp_path / "progress.json", 1.0, ten + 5000, ten + 9000) == {}
    assert between.medians(tmp_path / "none.json", 1.0, ten, ten + 5000) == {}


def test_figures_of_another_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    path = file_of(tmp_path, 5.0)
    Figures({**machine.describe(), "processors": "4096 x Z80", "commit": "c0ffee"}).write(path)
    before = path.read_text()
    done = CliRunner().invoke(cli, ["realtime", "--batch", "5", "--results", str(tmp_path)])
    assert isinstance(done.exception, SystemExit | click.ClickException)
    assert "real-time-5s.json was measured on 4096 x Z80, c0ffee, and this is" in done.output
    assert "--anew" in done.output
    assert path.read_text() == before


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
    rows = [line.split(" | ") for line in told.splitlines() if line.startswith("| 3")]
    assert [row[2] for row in rows] == [engine.value for engine in Engine]
    assert {(row[7], row[8]) for row in rows} == {("1.00", "1.00")}


def test_a_table_tells_what_spark_did_between_two_batches() -> None:
    figures = Figures(about=dict.fromkeys(("time", "processors", "pyspark", "commit"), "x"))
    case = Case(f"{EXPERIMENT}, batches of 5 s", Engine.S3.value, 20, 100)
    for metric in ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "standstill_ms", "out_count", "sent_count", "behind_ms"):
        figures.add(case, metric, [1])
    assert "Between two" not in realtime_costs.table(figures)
    for number, metric in enumerate((*between.METRICS.values(), between.TASKS, between.ALL)):
        figures.add(case, metric, [number])
    assert realtime_costs.table(figures).splitlines()[-1] == f"| 20 | 100 | {Engine.S3.value} | 0 | 3 | 1 | 2 | 4 |"


def test_the_page_has_the_tables_of_the_results() -> None:
    text = REAL_TIME.read_text(encoding="utf-8")
    assert text == realtime_costs.renewed(text), "docs/real-time.md is stale: run `python -m documents`"
