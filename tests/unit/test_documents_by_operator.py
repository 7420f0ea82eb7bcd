"""The table of docs/state.md: which tests it takes for which operator, and what it says of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from documents import by_operator
from documents.places import ROOT, STATE, TESTS


def row(kind: str, lines: list[by_operator.Line]) -> list[str]:
    (found,) = (line for line in by_operator.table(lines).splitlines() if line.startswith(f"| {kind} |"))
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def line(test: str, outcome: str = "passed", date: str = "2026-11-01T00:00:00Z") -> by_operator.Line:
    return {"test": f"tests/spark/{test}", "outcome": outcome, "date": date}


def test_the_page_has_the_table_of_the_results() -> None:
    text = STATE.read_text(encoding="utf-8")
    assert text == by_operator.renewed(text, by_operator.read(TESTS)), "docs/state.md is stale: run `python -m documents`"


def test_a_group_counts_for_all_that_are_in_it() -> None:
    read = line("test_states.py::test_what_is_read_is_what_sparks_reader_reads[unique]")
    assert row("full outer join", [read]) == ["yes", "not run", "not run", "not run", "not run"]
    assert row("limit", [read])[2] == "·"
    assert row("session windows", [read])[0] == "not run"


def test_the_last_run_counts_and_all_that_a_cell_stands_for() -> None:
    name = "test_export.py::test_stock_spark_goes_on_after_a_kill[inner-{}]"
    lines = [line(name.format("snapshots"), "failed"), line(name.format("snapshots"))]
    assert row("inner join of streams", lines[:1])[2] == "failed"
    assert row("inner join of streams", lines)[2] == "1 of 2 tests"
    assert row("inner join of streams", [*lines, line(name.format("changelogs"))])[2] == "yes"
    assert row("inner join of streams", [*lines, line(name.format("changelogs"), "failed")])[2] == "1 of 2 tests"
    assert "From 2026-11-01 to 2026-11-02" in by_operator.table([*lines, line(name.format("changelogs"), date="2026-11-02T00:00:00Z")])
    assert "None is recorded yet" in by_operator.table([])


@pytest.mark.timeout(200)
def test_the_tests_that_it_names_are_there() -> None:
    asked = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "campaign", "-p", "no:cacheprovider", "tests/spark"]
    there = set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())
    named = {test for column in by_operator.COLUMNS.values() for shown in column for tests in shown.tests().values() for test in tests}
    assert sorted(named - there) == []
