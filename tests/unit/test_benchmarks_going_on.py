"""A run of the benchmark that ends early: by which command it goes on, and what it measures then."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import machine
from benchmarks.__main__ import cli
from benchmarks.budget import Budget
from benchmarks.epochs import Rounds
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.measuring import measure_locally
from benchmarks.plans import LASTING, SHORT, Plan
from benchmarks.plans import run as run_plan

pytestmark = pytest.mark.usefixtures("any_load")


def test_a_part_that_ended_early_is_measured_anew_and_others_are_not(tmp_path: Path) -> None:
    plan = replace(SHORT, groups=(), finalise=(), many_files=(5, 6), idle_s=0, start_ups=0)
    file, figures = tmp_path / "short.json", Figures()

    def save() -> None:
        figures.write(file)
        if len(figures.parts) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, figures, print, save)
    figures = Figures.read(file)
    assert figures.parts == {"many files 5": 1}
    first, second = (Case("many files", "coordinator", 0, seen) for seen in (5, 6))
    kept = figures.values(first, "start_ms")
    figures.add(second, "start_ms", [1e9])  # as a part that was cut short leaves them
    assert not run_plan(plan, figures, print, until=Budget(0))
    assert figures.values(second, "start_ms") == [1e9]
    assert run_plan(plan, figures, print)
    assert set(figures.parts) == set(plan.parts) == {"many files 5", "many files 6"}
    assert figures.values(first, "start_ms") == kept
    assert 1e9 not in figures.values(second, "start_ms")


@pytest.mark.parametrize(
    ("again", "told"),
    [(["--again", "join"], "join is not in the short form"), (["--full", "--again", "join"], "nothing can be measured again: there is no")],
)
def test_what_cannot_be_measured_again_is_said_at_once(again: list[str], told: str, tmp_path: Path) -> None:
    Figures().write(tmp_path / "short.json")
    ran = CliRunner().invoke(cli, ["run", *again, "--results", str(tmp_path)])
    assert ran.exit_code == 2
    assert told in " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("begun", "words", "told"),
    [
        ({"again": [], "rounds": 0}, [], ""),
        ({"again": [], "rounds": 0}, ["--rounds", "2"], "begun without --again and --rounds: go on with it so, or forget it with --anew"),
        ({"again": [], "rounds": 0}, ["--again", "rows"], "was begun without --again and --rounds"),
        ({"again": ["rows"], "rounds": 2}, [], ""),
        ({"again": ["rows"], "rounds": 2}, ["--again", "rows"], ""),
        ({"again": ["rows"], "rounds": 2}, ["--rounds", "2", "--again", "rows"], ""),
        ({"again": ["rows"], "rounds": 2}, ["--rounds", "3"], "was begun with --again 'rows' --rounds 2"),
        ({"again": ["rows"], "rounds": 2}, ["--again", "kafka"], "was begun with --again 'rows' --rounds 2"),
    ],
)
def test_a_run_that_ended_early_is_gone_on_with_by_the_command_that_began_it(
    begun: dict[str, Any], words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[Plan, list[Any]]] = []
    monkeypatch.setattr("benchmarks.plans.run", lambda plan, figures, *_: ran.append((plan, list(figures))))
    figures = Figures(begun)
    figures.add(Case("rows", "a", 20, 1), "epoch_ms", [1])
    figures.write(tmp_path / "short.unfinished.json")
    done = CliRunner().invoke(cli, ["run", *words, "--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
    assert done.exit_code == (2 if told else 0), done.output
    assert told in " ".join(done.output.replace("│", " ").split())
    for plan, kept in ran:
        assert kept == list(figures), "what is measured of it is not forgotten"
        assert plan.experiments == ({"rows"} if begun["again"] else SHORT.experiments)


def test_a_wrong_word_forgets_nothing(tmp_path: Path) -> None:
    begun = tmp_path / "short.unfinished.json"
    Figures({"again": [], "rounds": 0}).write(begun)
    assert CliRunner().invoke(cli, ["run", "--anew", "--again", "join", "--results", str(tmp_path)]).exit_code == 2
    assert begun.exists()


def test_what_was_measured_until_something_failed_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(_: Path, figures: Figures) -> None:
        figures.add(Case("chains", "a", 1, 1), "first_epoch_ms", [7])
        raise BenchmarkError("the disk is full")

    monkeypatch.setattr("benchmarks.measuring.machine.describe", dict)
    with pytest.raises(BenchmarkError, match="the disk is full"):
        measure_locally(tmp_path / "found.json", fails)
    found = Figures.read(tmp_path / "found.json")
    assert list(found) == [(Case("chains", "a", 1, 1), "first_epoch_ms", [7])]
    assert found.notes == ["this ended early, and is not all that was to be measured"]


def test_where_the_disk_is_too_small_the_hour_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = replace(SHORT, groups=(), finalise=(), idle_s=0, start_ups=0, large_mb=10_000)
    monkeypatch.setattr("benchmarks.plans.far_s3", lambda _: nullcontext(FarS3("", "", tmp_path / "log")))
    monkeypatch.setattr("benchmarks.large_state.shutil.disk_usage", lambda _: SimpleNamespace(free=10_000_000_000))
    figures = Figures()
    assert run_plan(plan, figures, print), "the run comes to its end"
    assert figures.notes == ["10,000 MB of state may need 60.0 GB of disk, and 10.0 GB are free"]
    measured = Figures()
    for system in LASTING:
        measured.finish(f"large state: {system.value}", "large state")
    assert run_plan(plan, measured, print)
    assert not measured.notes, "it is there, and nobody asks for the disk"


def test_no_round_is_begun_too_late_and_the_next_run_has_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = replace(SHORT, groups=(), finalise=(), idle_s=0, start_ups=0, chain_rounds=3)
    clock, begun, ended = [0.0], list[int](), list[int]()

    def rounds(*_: object) -> Rounds:
        begun.append(1)
        try:
            while True:
                clock[0] += 10
                found = Figures()
                found.add(Case("chains", "a", 1, 1), "first_epoch_ms", [clock[0]])
                yield found
        finally:
            ended.append(1)

    monkeypatch.setattr("benchmarks.chains.rounds", rounds)
    monkeypatch.setattr("benchmarks.plans.far_s3", lambda _: nullcontext(FarS3("", "", tmp_path / "log")))
    figures, saved = Figures(), list[int]()

    def run(seconds: float) -> bool:
        return run_plan(plan, figures, print, lambda: saved.append(figures.parts.get("chains", 0)), Budget(seconds, lambda: clock[0]))

    assert [run(0), figures.parts, begun] == [False, {}, []]
    assert [run(15), figures.parts] == [False, {"chains": 2}]
    assert [run(15), figures.parts] == [True, {"chains": 3}]
    assert figures.values(Case("chains", "a", 1, 1), "first_epoch_ms") == [10, 20, 30]
    assert {1, 2, 3} <= set(saved)
    assert len(begun) == len(ended) == 2, "what the rounds have in common is cleared away"


def test_rounds_that_another_machine_has_begun_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of one part are compared with each other."""
    plan = replace(SHORT, groups=(), finalise=(), idle_s=0, start_ups=0, chain_rounds=2)
    case, clock, killed = Case("chains", "a", 1, 1), [0.0], list[int]()

    def rounds(*_: object) -> Rounds:
        while True:
            if killed:
                raise KeyboardInterrupt
            clock[0] += 10
            found = Figures()
            found.add(case, "first_epoch_ms", [clock[0]])
            yield found

    def of(name: str) -> dict[str, Any]:
        return {"processors": f"2 x {name}", "memory_gib": 8, "pyspark": "4.3.0"}

    def run(figures: Figures, seconds: float) -> list[float]:
        run_plan(plan, figures, print, lambda: figures.write(tmp_path / "full.json"), Budget(seconds, lambda: clock[0]))
        return list(figures.values(case, "first_epoch_ms"))

    monkeypatch.setattr("benchmarks.chains.rounds", rounds)
    monkeypatch.setattr("benchmarks.plans.far_s3", lambda _: nullcontext(FarS3("", "", tmp_path / "log")))
    assert run(Figures(of("a")), 5) == [10]
    killed.append(1)
    with pytest.raises(KeyboardInterrupt):
        run(Figures.read(tmp_path / "full.json", of("b")), 5)
    killed.clear()
    assert run(Figures.read(tmp_path / "full.json", of("a")), 5) == [20], "what was forgotten does not count as measured"
    assert run(Figures.read(tmp_path / "full.json", of("b")), 5) == [30]
    assert run(Figures.read(tmp_path / "full.json", of("b")), 5) == [30, 40]
    whole = Figures.read(tmp_path / "full.json", of("c"))
    assert run(whole, 5) == [30, 40], "what is complete stays"
    assert [(sitting.machine, sitting.rounds) for sitting in whole.sittings["chains"]] == [("2 x b, 8 GiB, PySpark 4.3.0", 2)]


def test_what_is_complete_is_kept_before_anything_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_: Figures) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("benchmarks.__main__.print_tables", broken)
    monkeypatch.setattr("benchmarks.plans.run", lambda _plan, _figures, _tell, save, _until: [save()])
    done = CliRunner().invoke(cli, ["run", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
    assert isinstance(done.exception, BrokenPipeError)
    assert [file.name for file in tmp_path.glob("*.json")] == ["short.json"]


@pytest.mark.parametrize(("loads", "waits"), [([0.4], 0), ([9, 5, 0.4], 2), ([9] * 1000, 40)])
def test_a_busy_machine_is_waited_for_but_not_for_ever(loads: list[float], waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told, left = [0.0], list[str](), iter(loads)
    monkeypatch.setattr(machine, "WAIT_S", 600.0)
    monkeypatch.setattr("benchmarks.machine.os.cpu_count", lambda: 2)
    monkeypatch.setattr("benchmarks.machine.os.cpu_count", lambda: 2)
    monkeypatch.setattr("benchmarks.machine.os.getloadavg", lambda: (next(left), 0.0, 0.0))
    clocks = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.append(clock.pop() + s))
    monkeypatch.setattr("benchmarks.machine.time", clocks)
    assert machine.quietened(told.append) == loads[waits]
    assert len(told) == waits
