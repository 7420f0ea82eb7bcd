"""When each part of a run was measured, and of which commit: recorded, kept, and shown on the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import plans
from benchmarks.__main__ import PAGE, PLANS, RESULTS, cli
from benchmarks.figures import Case, Figures
from benchmarks.judging import ROUNDS
from benchmarks.machine import QUIET
from benchmarks.page import render
from benchmarks.plans import FULL, SHORT, Plan
from benchmarks.plots import PLOTS
from benchmarks.sittings import Sitting
from benchmarks.tables import tables
from benchmarks.targets import TARGETS, verdicts

pytestmark = pytest.mark.usefixtures("any_load")

PART, EXPERIMENT = "many files 5", "many files"


def machine(day: int, commit: str, load: float = 0.1) -> dict[str, Any]:
    return {
        "time": f"2026-11-{day} 10:00 UTC",
        "processors": "2 x a processor",
        "processor_count": 2,
        "memory_gib": 8,
        "kernel": "6",
        "python": "3.11",
        "java": "17",
        "pyspark": "4.3.0",
        "commit": commit,
        "load_before": load,
    }


def recorded(figures: Figures) -> list[dict[str, str]]:
    found = [table for table in tables(figures) if table.title == "When each part was measured"]
    return [dict(zip(table.columns, row, strict=True)) for table in found for row in table.rows]


def test_a_part_keeps_the_commit_it_was_measured_with(tmp_path: Path) -> None:
    file = tmp_path / "full.json"
    figures = Figures(machine(20, "aaa"))
    for part in (PART, "finalise 1000"):
        figures.finish(part, part.rpartition(" ")[0])
    figures.write(file)

    figures = Figures.read(file, machine(21, "bbb+", load=0.5))
    assert figures.parts == {PART: 1, "finalise 1000": 1}
    for _ in range(2):
        figures.finish(PART, EXPERIMENT)
    figures.finish("restore", "restore", rounds=3)
    figures.write(file)

    figures = Figures.read(file)
    assert figures.parts == {PART: 3, "finalise 1000": 1, "restore": 3}
    assert [(row["part"], row["commit"], row["rounds"], row["load before all"]) for row in recorded(figures)] == [
        (PART, "aaa", "1", "0.10"),
        (PART, "bbb+", "2", "0.50"),
        ("finalise 1000", "aaa", "1", "0.10"),
        ("restore", "bbb+", "3", "0.50"),
    ]
    assert recorded(figures)[1]["when it was begun"] == "2026-11-21 10:00 UTC"
    assert recorded(figures)[0]["machine"] == "2 x a processor, 8 GiB, PySpark 4.3.0"
    page = render([("full", figures, [])], tmp_path / "page.md")
    assert f"| {PART} | 2026-11-21 10:00 UTC | bbb+ | 2 x a processor, 8 GiB, PySpark 4.3.0 | 0.50 | 2 |" in page


def test_what_is_measured_again_has_its_own_commit_and_what_is_kept_has_the_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plans, "FULL", replace(plans.FULL, many_files=(5,)))
    before = Figures(machine(20, "aaa"))
    before.finish("many files 7", EXPERIMENT)  # as an earlier version had it in its plan
    before.finish("idle", "idle")
    before.write(tmp_path / "full.json")
    monkeypatch.setattr("benchmarks.machine.describe", lambda: machine(21, "bbb"))
    words = ["run", "--full", "--again", EXPERIMENT, "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    ran = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    figures = Figures.read(tmp_path / "full.json")
    assert {part: found[0].commit for part, found in figures.sittings.items()} == {"idle": "aaa", PART: "bbb"}


def test_a_run_that_goes_on_is_of_the_commit_of_today(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plans, "FULL", replace(plans.FULL.only([EXPERIMENT]), many_files=(5, 6)))
    before = Figures({**machine(20, "aaa"), "again": [], "rounds": 0})
    before.finish(PART, EXPERIMENT)
    before.write(tmp_path / "full.unfinished.json")
    monkeypatch.setattr("benchmarks.machine.describe", lambda: machine(21, "bbb"))
    words = ["run", "--full", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    ran = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    figures = Figures.read(tmp_path / "full.json")
    assert {part: found[0].commit for part, found in figures.sittings.items()} == {PART: "aaa", "many files 6": "bbb"}
    assert figures.about["commit"] == "aaa"


def old(tmp_path: Path, about: dict[str, Any], notes: list[str] | None = None) -> Figures:
    """A file as it was before each part had a commit of its own."""
    file = tmp_path / "old.json"
    parts = {"read state": 1, "restore": 2, "rows, 20 partitions, 1 rows: floor": 2}
    row = {"system": "a", "partitions": 2, "size": 1, "metric": "epoch_ms", "values": [1]}
    rows = [{"experiment": name, **row} for name in ("idle", "large")]
    file.write_text(json.dumps({"about": about, "notes": notes or [], "parts": parts, "figures": rows}))
    return Figures.read(file)


def test_parts_of_an_older_file_are_of_its_commit_where_that_is_known(tmp_path: Path) -> None:
    figures = old(tmp_path, {**machine(20, "aaa"), "again": ["restore"]})
    assert [(row["part"], row["commit"], row["rounds"]) for row in recorded(figures)] == [
        ("read state", "aaa", ""),
        ("restore", "not recorded", "2"),
        ("rows, 20 partitions, 1 rows: floor", "aaa", "2"),
        ("idle", "not recorded", ""),
    ]
    figures.write(tmp_path / "new.json")
    assert recorded(Figures.read(tmp_path / "new.json")) == recorded(figures)


@pytest.mark.parametrize("case", ["without a commit", "gone on with", "again, twice"])
def test_an_older_file_that_may_be_of_several_commits_tells_none(case: str, tmp_path: Path) -> None:
    about, notes = machine(20, "" if case == "without a commit" else "aaa"), []
    if case == "gone on with":
        notes.append("2026-11-21 10:00 UTC: went on, load before: 0.1, commit bbb")
    if case == "again, twice":
        about |= {"again": ["rows"], "loads": {"restore": 0.1, "read state": 0.2, "rows": 0.3}}
    found = recorded(old(tmp_path, about, notes))
    assert {(row["when it was begun"], row["commit"], row["machine"]) for row in found} == {("not recorded",) * 3}


def test_the_results_of_this_repository_can_be_read() -> None:
    for name in ("short", "full"):
        figures = Figures.read(RESULTS / f"{name}.json")
        assert figures.parts
        assert {row["part"] for row in recorded(figures)} >= set(figures.parts)


def test_the_page_is_what_the_results_say() -> None:
    plots = {name: [RESULTS / f"{name}-{plot}.svg" for plot in PLOTS] for name in PLANS}
    runs = [(name, Figures.read(RESULTS / f"{name}.json"), [file for file in plots[name] if file.exists()]) for name in PLANS]
    assert PAGE.read_text(encoding="utf-8") == render(runs, PAGE), "docs/benchmarks.md is stale: run `python -m benchmarks page`"


def test_the_load_before_a_part_counts_for_that_part() -> None:
    """Restored in three rounds, of which the last one began on a busy machine."""
    figures = Figures(machine(20, "aaa"), machine(21, "bbb", load=2 * QUIET + 0.01))
    for system, ms in (("plain boto3", 1000), ("spark-ckpt, s3://", 1000)):
        figures.add(Case("restore", system, 20, 1000), "restore_ms", [ms] * 3)
    what = "plain boto3's time over ours, restoring on a fresh machine"
    for sitting, met in ((Sitting("restore", 3, load_before=0.1), "yes"), (None, "too noisy")):
        if sitting is None:
            figures.finish("restore", "restore")
        else:
            figures.sittings["restore"] = [sitting]
        assert [v.met.value for v in verdicts(figures) if v.what == what] == [met]


@pytest.mark.parametrize("plan", [SHORT, FULL], ids=lambda plan: plan.name)
def test_the_full_form_has_three_rounds_of_every_time_that_is_judged(plan: Plan) -> None:
    """The short form has no time for them."""
    figures, rounds = Figures(), dict[Case, int]()
    for turns in (turns for group in plan.groups for turns in group):
        for case in (turns.case(system) for system in turns.systems):
            figures.add(case, "epoch_ms", [1])
            rounds[case] = turns.rounds
    times = [target.profile for target in TARGETS if target.profile and not target.counted and target.limit is not None]
    few = {case for profile in times for case in profile.cases(figures) if rounds[case] < ROUNDS}
    assert bool(few) == (plan is SHORT), few
    others = (plan.finalise_rounds, plan.start_ups, plan.restore_rounds, plan.state_rounds)
    assert (min(others) >= ROUNDS) == (plan is FULL)
