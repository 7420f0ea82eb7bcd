"""State in the benchmark, with something else in the place of Spark; its targets and tables, from made-up figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import edits, plans, states
from benchmarks.__main__ import cli
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Case, Figures
from benchmarks.judging import OTHERS_PERCENT, Met
from benchmarks.page import render
from benchmarks.state_targets import GIB, STATE_TARGETS, WRITTEN_ROWS
from benchmarks.tables import tables
from benchmarks.targets import verdicts
from spark_ckpt.model import Checkpoint
from spark_ckpt.storage import Storage
from spark_ckpt.stored.reading import StreamReader
from tests.stored.earlier import HERE

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("any_load")]

SOURCE = f"file://{HERE}/states/update"
SPENT = {"took_ms": 2000.0, "cpu_ms": 1500.0, "elsewhere_ms": 100.0}
READERS, COMMAND = "rows a second of read_state over Spark's own reader, 1,000,000 rows", "spark-ckpt state of a small state"
WRITTEN = "10,000,000 keys written from Parquet"


class Spark:
    """Answers for 500 rows."""

    def __init__(self) -> None:
        self.counted: list[bool] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        self.counted.append(request.get("counted", False))
        assert Path(request["path"], "metadata").exists()
        assert list(Path(request["path"], "state", "0").glob("*/*.zip"))
        return {"spent": SPENT, "rows": 500 if self.counted[-1] else None}


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    answering = Spark()
    monkeypatch.setattr(states, "_spark", lambda _: nullcontext(answering))
    return answering


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of partitions that were asked for: what is made is a copy of what was there."""
    asked: list[int] = []

    def rescale(storage: Storage, reader: StreamReader, wanted: None, partitions: int, target: Storage) -> Checkpoint:
        asked.append(partitions)
        for stored in storage.list(""):
            target.put(stored.key, storage.get(stored.key))
        return reader.read(reader.latest())

    monkeypatch.setattr(edits, "rescale", rescale)
    return asked


def shown(figures: Figures, title: str) -> list[dict[str, str]]:
    [table] = [table for table in tables(figures) if table.title == title]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def verdict(figures: Figures, what: str) -> tuple[str, Met]:
    [found] = [v for v in verdicts(figures) if v.what == what]
    return found.measured, found.met


def test_both_readers_of_state_read_the_same_rows(spark: Spark, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    ran = CliRunner().invoke(cli, ["state", str(HERE / "states" / "update"), "--rows", "500", "--rounds", "1", "--json", str(file)])
    assert ran.exit_code == 0, ran.output
    assert spark.counted == [True, False]
    figures = Figures.read(file)
    ours, theirs = (Case("read state", system, 2, 500) for system in (states.OURS, states.SPARKS))
    assert figures.values(theirs, "read_ms") == [2000]
    assert figures.values(theirs, "read_cpu_ms") == [1500]
    assert len(figures.values(ours, "read_ms")) == len(figures.values(ours, "elsewhere_percent")) == 1
    rows = shown(figures, "State: read")
    assert [row["reader"] for row in rows] == [states.OURS, states.SPARKS]
    assert (rows[1]["rows a second"], rows[1]["reads"], rows[1]["x Spark's"]) == ("250", "1", "1.00")
    small, large = shown(figures, "State: what the command answers")
    assert (large["rows"], small["tries"]) == ("500", "1")
    assert int(small["rows"]) < 500
    assert all(imports > 0 for imports in figures.values(Case("read state", states.COMMAND, 2, 500), "imports_ms"))


def test_readers_that_find_other_rows_end_the_benchmark(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="Spark's reader finds 500 rows instead of 400"):
        states.run(SOURCE, 400, 1, tmp_path, Figures(), print)
    with pytest.raises(BenchmarkError, match=r"read_state finds \d+ rows instead of 7777"):
        states.read(SOURCE, 7777)


def test_rows_of_a_parquet_file_become_state(tmp_path: Path) -> None:
    figures, kept = Figures(), tmp_path / "kept"
    url = edits.written(SOURCE, 2000, 2, tmp_path, figures, print, kept)
    assert [folder.name for folder in kept.iterdir()] == ["rows-2000"]
    assert not list(tmp_path.glob("*.parquet"))
    states.read(url, 2000)
    case = Case("write state", edits.PARQUET, 2, 2000)
    assert figures.cases("write state") == [case]
    found = {metric: values for _, metric, values in figures}
    assert {len(found[metric]) for metric in ("write_ms", "write_cpu_ms", "read_ms", "memory_bytes", "state_bytes")} == {2}
    assert min(found["memory_bytes"]) > 10_000_000 > min(found["parquet_bytes"]) > 2000
    [row] = shown(figures, "State: written from Parquet")
    assert (row["keys"], row["partitions"], row["tries"]) == ("2,000", "2", "2")


def test_rows_that_cannot_be_written_end_the_benchmark(tmp_path: Path) -> None:
    edits.written(SOURCE, 10, 1, tmp_path, Figures(), print)
    with pytest.raises(BenchmarkError, match=r"^10 rows could not be written"):
        edits.written(SOURCE, 10, 1, tmp_path, Figures(), print)  # under the same name


def test_a_rescale_is_told_for_each_million_keys_and_each_gib() -> None:
    figures = Figures()
    for there, wanted, ms in ((3, 20, 80_000), (20, 200, 240_000)):
        case = Case("rescale", edits.before(there), wanted, 10_000_000)
        figures.add(case, "rescale_ms", [ms])
        figures.add(case, "state_bytes", [GIB / 4])
    first, second = shown(figures, "State: another number of partitions")
    assert (first[""], first["partitions"], first["s for each million keys"]) == ("from 3 partitions", "to 20", "8.0")
    assert (second["s"], second["s for each GiB"]) == ("240", "960.0")
    assert verdict(figures, "rescale from 3 to 20 partitions, for each GiB of state") == ("320 s (10,000,000 keys)", Met.OPEN)
    assert verdict(figures, "rescale from 20 to 200 partitions, for each million keys") == ("24.0 s (10,000,000 keys)", Met.OPEN)


def test_state_has_parts_of_the_plan_like_all_else(spark: Spark, steps: list[int], tmp_path: Path) -> None:
    state = {states.EXPERIMENT, edits.WRITTEN, edits.RESCALED}
    plan = replace(plans.FULL.only(state), read_rows=(500,), written_rows=500, rescaled_rows=500).limited(1)
    assert set(plan.parts) == plan.experiments == state
    figures = Figures()
    assert plans.run(plan, figures, print)
    assert figures.parts == dict.fromkeys(state, 1)
    assert steps == [edits.FIRST, *edits.STEPS] == [3, 20, 200]
    assert [(case.system, case.partitions, case.size) for case in figures.cases(edits.RESCALED)] == [
        (edits.before(2), wanted, 500) for wanted in edits.STEPS
    ]
    assert {table.title for table in tables(figures) if table.title.startswith("State: ")} == {
        *("State: read", "State: what the command answers", "State: written from Parquet", "State: another number of partitions")
    }


def readings(ours: Sequence[float], theirs: Sequence[float]) -> Figures:
    figures = Figures()
    for system, values in ((states.OURS, ours), (states.SPARKS, theirs)):
        figures.add(Case(states.EXPERIMENT, system, 3, 1_000_000), "read_ms", values)
    return figures


def test_each_size_is_judged_by_itself() -> None:
    figures = readings([1000] * 3, [500] * 3)
    for system, ms in ((states.OURS, 1000), (states.SPARKS, 2000)):
        figures.add(Case(states.EXPERIMENT, system, 3, 10_000_000), "read_ms", [ms] * 3)
    assert verdict(figures, READERS) == ("0.50 x (3 rounds)", Met.NO)
    assert verdict(figures, READERS.replace("1,000,000", "10,000,000")) == ("2.00 x (3 rounds)", Met.YES)


@pytest.mark.parametrize(
    ("ours", "theirs", "told", "met"),
    [
        ([1000, 1100, 1000], [2000, 2200, 2200], "2.20 x (3 rounds)", Met.YES),
        ([2000, 2000, 2000], [1000, 1000, 1000], "0.50 x (3 rounds)", Met.NO),
        ([1000, 1200, 1100], [1100, 1150, 1200], "1.05 x (3 rounds), 0.92 x to 1.20 x", Met.NOISY),
        ([1000, 1000], [2000, 2000], "2.00 x, 2 rounds of at least 3", Met.FEW),
        ([1000], [], "not measured", Met.OPEN),
    ],
)
def test_two_readers_are_judged_by_three_rounds(ours: Sequence[float], theirs: Sequence[float], told: str, met: Met) -> None:
    assert verdict(readings(ours, theirs), READERS) == (told, met)


def test_what_others_used_makes_times_of_state_noisy() -> None:
    figures = readings([1000] * 3, [2000] * 3)
    figures.add(Case(states.EXPERIMENT, states.SPARKS, 3, 1_000_000), "elsewhere_percent", [OTHERS_PERCENT + 1])
    assert verdict(figures, READERS)[1] is Met.NOISY


def test_the_command_is_judged_by_the_smallest_state_and_writing_by_the_number_of_keys() -> None:
    figures = Figures()
    for rows, ms in ((1_000_000, 9000), (12, 1500)):
        figures.add(Case(states.EXPERIMENT, states.COMMAND, 3, rows), "command_ms", [ms] * 3)
    figures.add(Case(edits.WRITTEN, edits.PARQUET, 3, 100), "write_ms", [100])
    assert verdict(figures, COMMAND) == ("1.5 s (12 rows)", Met.YES)
    assert verdict(figures, WRITTEN) == ("not measured", Met.OPEN)
    case = Case(edits.WRITTEN, edits.PARQUET, 3, WRITTEN_ROWS)
    figures.add(case, "write_ms", [310_000] * 3)
    figures.add(case, "memory_bytes", [400_000_000])
    assert verdict(figures, WRITTEN) == ("310 s", Met.NO)
    assert verdict(figures, "memory of the same at most") == ("400.0 MB", Met.OPEN)


def test_state_is_measured_alone_and_goes_into_the_figures_that_there_are(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plans, "FULL", replace(plans.FULL, read_rows=(500,)))
    before = Figures({"time": "2026-11-21 10:00 UTC", "processors": "64 x another", "memory_gib": 8, "kernel": "6", "python": "3.11"})
    before.about |= {"java": "17", "pyspark": "4.3.0", "load_before": 0.1}
    rows = Case("rows", "a", 20, 10)
    before.add(rows, "epoch_ms", [1])
    before.write(tmp_path / "full.json")
    words = ["run", "--full", "--again", "read state", "--rounds", "1", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    figures = Figures.read(tmp_path / "full.json")
    assert figures.values(rows, "epoch_ms") == [1]
    assert {case.experiment for case, _, _ in figures} == {"rows", states.EXPERIMENT}
    assert (figures.about["load_before"], list(figures.sittings)) == (0.1, [states.EXPERIMENT])
    [sitting] = figures.sittings[states.EXPERIMENT]
    assert (sitting.experiment, sitting.rounds, sitting.time > "2026-11-21 10:00 UTC") == (states.EXPERIMENT, 1, True)
    assert " x " in sitting.machine
    assert "64 x another" not in sitting.machine
    assert "### State: read" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_target_of_state(tmp_path: Path) -> None:
    about = dict.fromkeys(("time", "processors", "memory_gib", "kernel", "java", "pyspark", "python", "load_before"), "0")
    page = render([("full", Figures({**about, "processor_count": 2}), [])], tmp_path / "page.md")
    for target in STATE_TARGETS:
        assert f"| {target.what} |" in page
