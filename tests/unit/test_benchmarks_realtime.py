"""What is made of the records that came out."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from benchmarks import machine
from benchmarks.__main__ import cli
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Case, Figures
from benchmarks.judging import ROUNDS
from benchmarks.realtime import RATES, Engine, Turn, applications, feeder, file_of, running
from benchmarks.realtime.running import EXPERIMENT, OTHERS, case_of, kept_up, percentile, rounds_left, standstills
from benchmarks.realtime.topics import Passed, Topics
from documents import realtime_costs
from documents.places import REAL_TIME


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 90, 99, 99.9)] == [50, 90, 99, 100]
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


def progress(second: int, newest: int | None, **durations: int) -> dict[str, Any]:
    custom = {"rocksdbGetCount": 1} if newest is None else {"checkpointId": newest}
    return {
        "timestamp": f"2026-11-28T00:00:{second:02}.000Z",
        "durationMs": durations,
        "stateOperators": [{"customMetrics": custom}],
    }


TEN = 1795824000000.0 + 10_000
"""The tenth second of what follows."""


@pytest.mark.parametrize(("newest", "completed"), [((None, None, None), 2), ((3, 5, 6), 2), ((3, 5, 5), 1)])
def test_what_spark_does_around_a_batch_and_how_many_checkpoints_complete(
    newest: tuple[int | None, ...], completed: int, tmp_path: Path
) -> None:
    told = [
        progress(1, newest[0], triggerExecution=9000, addBatch=8000, queryPlanning=700),
        progress(10, newest[1], triggerExecution=1200, addBatch=1100, queryPlanning=40, walCommit=5, commitOffsets=7),
        progress(12, newest[2], triggerExecution=1400, addBatch=1200, queryPlanning=60, walCommit=7, commitOffsets=9),
    ]
    (tmp_path / "progress.json").write_text(json.dumps(told))
    found = applications.of_spark(tmp_path / "progress.json", 1.0, TEN, TEN + 5000)
    around = {"planning_ms": [50], "log_ms": [6], "commit_ms": [8], "tasks_ms": [150], "around_ms": [300]}
    assert found == {**around, "checkpoints_count": [completed]}
    with pytest.raises(BenchmarkError, match="no batch"):
        applications.of_spark(tmp_path / "progress.json", 1.0, TEN + 5000, TEN + 9000)


def test_flinks_checkpoints_are_counted_and_a_restart_is_no_measurement(tmp_path: Path) -> None:
    log = tmp_path / "application.log"
    said = "[io-1] INFO org.apache.flink.runtime.checkpoint.CheckpointCoordinator - Completed checkpoint {} for job 0a1b (9 bytes)."
    lines = [f"2026-11-28T00:00:{second}.500Z {said.format(n)}" for n, second in enumerate(("09", "10", "12", "16"))]
    log.write_text("\n".join(lines))
    assert applications.of_flink(log, TEN, TEN + 5000) == {"checkpoints_count": [2]}
    restart = "2026-11-28T00:00:17.000Z [x] INFO y - Job totals (0a1b) switched from state FAILING to RESTARTING."
    log.write_text("\n".join([*lines, restart]))
    with pytest.raises(BenchmarkError, match="restarted"):
        applications.of_flink(log, TEN, TEN + 5000)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_each_round_begins_with_another_turn_and_goes_on_where_it_was(rounds: int) -> None:
    turns = [Turn(engine, 3, 5.0, 100) for engine in Engine]
    whole = rounds_left(turns, rounds, Figures())
    assert sorted(map(turns.index, whole)) == sorted(list(range(len(turns))) * rounds)
    assert len({whole[number * len(turns)] for number in range(rounds)}) == rounds
    figures = Figures()
    figures.add(case_of(whole[0]), "sent_count", [1.0])
    assert rounds_left(turns, rounds, figures) == whole[1:]


def test_a_feeder_that_is_held_up_does_not_shorten_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records hold when they were due."""
    sent: list[int] = []

    class Held:
        def __init__(self, _: object) -> None: ...

        def produce(self, _topic: str, value: str, key: str) -> None:
            sent.append(int(value))
            if len(sent) == 3:
                time.sleep(0.3)

        def poll(self, _: float) -> None: ...
        def flush(self, _: float) -> None: ...

    monkeypatch.setattr(feeder, "Producer", Held)
    told = feeder.feed("nobody", "in", 100, 0.5)
    assert told["sent"] == len(sent) == 50
    gaps = {b - a for a, b in itertools.pairwise(sent)}
    assert gaps <= {9_999, 10_000, 10_001}
    assert told["late_ms"] > 250
    assert abs(told["ended_ms"] - sent[-1] / 1000) < 0.01


def test_figures_of_another_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    path = file_of(tmp_path, 5.0, 20)
    Figures({**machine.describe(), "processors": "4096 x Z80", "commit": "c0ffee"}).write(path)
    before = path.read_text()
    done = CliRunner().invoke(cli, ["realtime", "--batch", "5", "--partitions", "20", "--results", str(tmp_path)])
    assert isinstance(done.exception, SystemExit | click.ClickException)
    assert "real-time-5s-20.json was measured on 4096 x Z80, c0ffee, and this is" in done.output
    assert "--anew" in done.output
    assert path.read_text() == before


@pytest.mark.parametrize(("out", "behind", "kept"), [(1000, 100, True), (970, 100, False), (1000, 2500, False)])
def test_who_lags_behind_has_not_kept_up(out: int, behind: int, kept: bool) -> None:
    case, figures = Case(f"{EXPERIMENT}, batches of 5 s", "Flink", 3, 100), Figures()
    for metric, value in (("out_count", out), ("sent_count", 1000), ("behind_ms", behind)):
        figures.add(case, metric, [value])
    assert kept_up(figures, case) is kept


TOLD = (
    *("p50_ms", "p90_ms", "p99_ms", "standstill_ms", "out_count", "sent_count", "behind_ms"),
    *("checkpoints_count", "batches_count"),
)


@pytest.mark.parametrize("seed", range(5))
def test_a_table_has_its_systems_in_one_order(seed: int) -> None:
    """Also where a run that ended early has measured them in another."""
    figures = Figures(about=dict.fromkeys(("time", "processors", "pyspark", "commit"), "x"))
    engines = list(Engine)
    random.Random(seed).shuffle(engines)
    for engine in engines:
        case = Case(f"{EXPERIMENT}, batches of 5 s", engine.value, 3, 100)
        for metric in TOLD:
            figures.add(case, metric, [1])
    told = realtime_costs.table(figures)
    rows = [line.split(" | ") for line in told.splitlines() if line.startswith("| 100")]
    assert [row[1] for row in rows] == [engine.value for engine in Engine]
    assert {(row[5], row[6], row[8]) for row in rows} == {("1.0", "1.0", "1 of 1")}


def test_a_table_tells_what_spark_did_between_two_batches() -> None:
    figures = Figures(about=dict.fromkeys(("time", "processors", "pyspark", "commit"), "x"))
    case = Case(f"{EXPERIMENT}, batches of 5 s", Engine.S3.value, 20, 100)
    for metric in TOLD:
        figures.add(case, metric, [10])
    assert "Between two" not in realtime_costs.table(figures)
    for number, metric in enumerate((*applications.METRICS.values(), applications.TASKS, applications.AROUND)):
        figures.add(case, metric, [number])
    assert realtime_costs.table(figures).splitlines()[-1] == f"| 100 | {Engine.S3.value} | 0 | 3 | 1 | 2 | 4 | 6 |"


def test_several_rounds_have_a_median_and_what_it_lies_between() -> None:
    figures = Figures(about=dict.fromkeys(("time", "processors", "pyspark", "commit"), "x"))
    case = Case(f"{EXPERIMENT}, batches of 5 s", Engine.S3.value, 20, 100)
    for metric in TOLD:
        figures.add(case, metric, [30, 10, 20])
    told = realtime_costs.table(figures)
    assert "rounds: 3" in told
    assert told.splitlines()[-1].split(" | ")[4] == "20 (10 to 30)"
    assert told.startswith("**Batches of 5 s, 20 partitions** (")
    assert "others" not in told
    figures.add(case, OTHERS, [1, 7.4, 3])
    assert "; others had at most 7 % of the processors)" in realtime_costs.table(figures)


@pytest.mark.parametrize(
    ("ours", "floor", "file", "expected"),
    [
        (300, 300, 310, ["| 0.30 x | yes |", "| 1.50 x | yes |", "| 1.00 x | yes |"]),
        (450, 300, 400, ["| 0.45 x | no |", "| 2.25 x | no |", "| 1.50 x | no |"]),
        (300, 600, 240, ["| 0.30 x | yes |", "| 1.50 x | yes |", "| 1.25 x | no |"]),
        (300, 600, 600, ["| 0.30 x | yes |", "| 1.50 x | yes |", "| 1.00 x | yes |"]),
    ],
)
def test_the_targets_are_judged_at_each_rate(ours: int, floor: int, file: int, expected: list[str]) -> None:
    """The third is over the floor or, where that was slower, over the fastest of them."""
    figures = Figures({"load_before": 9, "processor_count": 2})  # each turn has run for minutes before it is measured
    times = {Engine.STOCK_LOCAL: 1000, Engine.FLOOR: floor, Engine.FILE: file, Engine.S3: ours, Engine.FLINK: 200}
    for rate in (100, 10_000):
        for engine, value in times.items():
            for metric in TOLD:
                figures.add(case_of(Turn(engine, 20, 5.0, rate)), metric, [value] * ROUNDS)
    rows = realtime_costs.targets([figures]).splitlines()[2:]
    assert [row.endswith(end) for row, end in zip(rows, [*expected, *expected], strict=True)] == [True] * 6
    assert ["10,000 records a second" in row for row in rows] == [False] * 3 + [True] * 3
    figures.add(case_of(Turn(Engine.STOCK_LOCAL, 20, 5.0, 100)), OTHERS, [60.0])
    told = "others had 60 % of the machine beside stock, local disk, same settings | too noisy |"
    assert [told in row for row in realtime_costs.targets([figures]).splitlines()[2:]] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("ours", "floor", "told"),
    [([200, 200, 900], [300], "too few rounds"), ([200, 200, 900], [300] * 3, "too noisy"), ([200, 200, 210], [300] * 3, "yes")],
)
def test_a_standstill_below_the_floor_is_judged_by_rounds_and_spread_too(ours: list[float], floor: list[float], told: str) -> None:
    figures = Figures()
    for engine, values in ((Engine.S3, ours), (Engine.FLOOR, floor), (Engine.FILE, [310.0] * 3)):
        for metric, found in (("standstill_ms", values), ("sent_count", [1.0] * len(values))):
            figures.add(case_of(Turn(engine, 20, 5.0, 100)), metric, found)
    row = realtime_costs.targets([figures]).splitlines()[4]
    assert "| 1.00 x" in row
    assert row.endswith(f"| {told} |")


def test_a_feeder_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose broker was killed."""
    monkeypatch.setattr(running, "ending_with_starter", lambda _: ["sleep", "60"])
    monkeypatch.setattr(running, "DRAIN_S", 0.2)
    began = time.monotonic()
    with pytest.raises(BenchmarkError, match="the feeder did not end within 0 s: is the broker alive"):
        running._feed(cast(Topics, SimpleNamespace(servers="127.0.0.1:9", source="in")), 100, 0.1)
    assert time.monotonic() - began < 30


def test_what_was_not_measured_is_named() -> None:
    """What was measured with some systems only counts as not measured; beyond a rate that is too much for a system it is not asked."""
    assert realtime_costs.not_measured([]).endswith(": batches of 1 s; batches of 5 s; batches of 30 s.")
    assert realtime_costs.targets([]).count("not measured") == 3
    figures = Figures()
    for engine in Engine:
        for rate in RATES:
            case = case_of(Turn(engine, 3, 5.0, rate))
            if not (engine is Engine.FLINK and rate > 20_000) and not (engine is Engine.S3 and rate == 10_000):
                for metric, value in (("out_count", 1000), ("sent_count", 1000), ("behind_ms", 9999 if rate == 20_000 else 0)):
                    figures.add(case, metric, [value])
    told = realtime_costs.not_measured([figures])
    assert realtime_costs.targets([figures]).count("not measured") == 3, "they are of 20 partitions"
    assert "batches of 5 s with 3 partitions at 10,000 records a second; batches of 5 s with 20 partitions at all rates;" in told


def test_runs_of_one_setting_make_up_what_is_measured_and_of_those_with_most_rounds_the_newest_is_judged() -> None:
    """As three rounds of some rates, the same of an earlier day, and one round, of another machine, that shows how much keeps up."""
    often, earlier, once = (Figures({"time": f"2026-11-{day}"}) for day in (29, 28, 30))
    both = (100, 10_000)
    for figures, rates, rounds, ours in ((often, both, 3, 300), (earlier, both, 3, 800), (once, (10_000, 20_000), 1, 900)):
        for engine in Engine:
            for rate in rates:
                values = {"out_count": 1000, "sent_count": 1000, "behind_ms": 9999 if rate == 20_000 else 0, "standstill_ms": 1}
                for metric, value in (values | {"p99_ms": ours if engine is Engine.S3 else 1000}).items():
                    figures.add(case_of(Turn(engine, 20, 5.0, rate)), metric, [value] * rounds)
    for measured in itertools.permutations([often, earlier, once]):
        assert "20 partitions" not in realtime_costs.not_measured(measured)
        assert realtime_costs.targets(measured).count("| 0.30 x | yes |") == 4
    assert "with 20 partitions at 20,000, 40,000 and 80,000" in realtime_costs.not_measured([often])
    assert "with 20 partitions at 100 records" in realtime_costs.not_measured([once])


def test_the_page_has_the_tables_of_the_results() -> None:
    text = REAL_TIME.read_text(encoding="utf-8")
    assert text == realtime_costs.renewed(text), "docs/real-time.md is stale: run `python -m documents`"
