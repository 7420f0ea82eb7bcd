"""The campaign's own parts: what is drawn, what counts as equal, what is kept of it and told."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from campaign import __main__ as command
from campaign import long_tests, page, record, tested
from campaign.comparison import Comparison, compare, counted, folded
from campaign.dimensions import Case, Fault, Mode, Place, Sink, Victim
from campaign.plan import Pair, met
from campaign.trial import Observed, Outcome, Result, cause

CASES = command.KILLS // command.KILLS_A_CASE
SCHEMA = jsonschema.Draft202012Validator(json.loads(record.SCHEMA.read_text()))


def drawn(seed: int, cases: int = CASES) -> list[Case]:
    return list(islice(command.plan(seed, command.KILLS_A_CASE).cases(), cases))


@cache
def first() -> Case:
    """A sample of thousands is drawn before it."""
    return drawn(1, 1)[0]


def met_in(cases: Sequence[Case]) -> Counter[Pair]:
    return Counter(pair for case in cases for pair in met(case))


def test_a_plan_is_the_same_every_time_and_another_for_another_seed() -> None:
    assert drawn(1, 5) == drawn(1, 5) != drawn(2, 5)


@pytest.mark.parametrize("seed", [command.SEED, 20])
def test_within_the_plan_everything_meets_everything(seed: int) -> None:
    cases = drawn(seed)
    assert sum(len(case.kills) for case in cases) == command.KILLS
    often, possible = met_in(cases), command.plan(seed, command.KILLS_A_CASE).sample()
    assert len(possible) > 500
    assert [pair for pair in possible if not often[pair]] == []
    each = Counter(kill.victim for case in cases for kill in case.kills)
    assert min(each[victim] for victim in Victim) >= 0.7 * command.KILLS / len(Victim)


def test_what_cannot_be_is_not_drawn() -> None:
    for case in drawn(3):
        assert case.place is Place.S3 or case.fault is Fault.NONE
        assert len({stream.operator for stream in case.streams}) == len(case.streams)
        for stream in case.streams:
            assert stream.sink is Sink.SKIPS or stream.operator not in ("complete", "update", "pandas", "transform")


ROWS: list[dict[str, Any]] = [{"key": "a", "n": 1}, {"key": "a", "n": 1}, {"key": "b", "n": 2}]


@pytest.mark.parametrize("mode", Mode)
def test_rows_that_are_missing_or_wrong_are_found(mode: Mode) -> None:
    found = compare(counted(ROWS), counted([*ROWS[1:], {"key": "b", "n": 3}]), mode)
    assert (found.expected, found.missing, found.excess, found.twice, found.equal) == (3, 1, 1, 0, False)
    assert found.examples == ('missing 1 x {"key": "a", "n": 1}', 'in excess 1 x {"key": "b", "n": 3}')
    assert compare(counted(ROWS), counted(ROWS), mode).equal


@pytest.mark.parametrize("mode", Mode)
def test_right_rows_may_come_again_in_at_least_once_only(mode: Mode) -> None:
    found = compare(counted(ROWS), counted([*ROWS, ROWS[0]]), mode)
    assert found.twice == 1
    assert found.equal == (mode is Mode.AT_LEAST_ONCE)
    assert found.excess == (0 if found.equal else 1)


def test_what_closes_the_windows_is_on_neither_side() -> None:
    closing: list[dict[str, Any]] = [{"key": "far"}, {"lkey": "k1", "rkey": "far"}, {"start": "2030-01-01T00:00:00.000Z", "n": 1}]
    assert counted([*ROWS, *closing]) == counted(ROWS)


def test_batches_make_the_table_that_their_output_mode_means() -> None:
    batches: list[list[dict[str, Any]]] = [[{"key": "a", "n": 1}], [], [{"key": "b", "n": 1}, {"key": "a", "n": 2}]]
    assert folded(batches, "append") == [*batches[0], *batches[2]]
    assert folded(batches, "complete") == batches[2]
    assert folded(batches, "update") == [{"key": "a", "n": 2}, {"key": "b", "n": 1}]
    assert folded([], "complete") == []


def test_the_cause_of_an_end_is_found_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO all is well\nCaused by: java.io.IOException: it broke\nINFO the rest\n")
    assert cause(log) == "Caused by: java.io.IOException: it broke"
    log.write_text(
        "26/11/22 17:12:37 ERROR MicroBatchExecution: Query x terminated with error\nan.AnError: first\n\tat a.b\n"
        "Caused by: java.lang.AnError: last\n26/11/22 17:12:38 WARN x: y\nCaused by: py4j.Py4JException: Received empty command\n"
    )
    assert cause(log) == "an.AnError: first … Caused by: java.lang.AnError: last"
    log.write_text("killed")
    assert cause(log) == "killed"
    log.write_text("")
    assert cause(log) == "it said nothing"


@pytest.mark.parametrize(
    ("status", "last", "expected"),
    [
        (0, "===== 1 passed in 3.21s =====", "passed"),
        (0, "1 skipped in 0.01s", "skipped"),
        (1, "1 failed in 3.21s", "failed"),
        (1, "1 passed, 1 error in 3.21s", "failed"),
        (5, "1 deselected in 0.10s", "failed"),
        (4, "", "failed"),
    ],
)
def test_what_pytest_says_of_a_long_test(status: int, last: str, expected: str) -> None:
    assert long_tests.outcome(status, f"collected 1 item\n{last}") == expected


@pytest.fixture
def result() -> Result:
    case = first()
    kills = [Observed(10.0 + n, 5 * n, kill.victim.value) for n, kill in enumerate(case.kills)]
    return Result(case, Outcome.EQUAL, [Comparison(10, 0, 0, 0)] * len(case.streams), kills, files=12, seconds=90.0)


def test_a_line_is_as_its_schema_says_and_holds_the_case(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "kills.jsonl"
    record.append(path, record.case_line(result))
    (line,) = record.read(path)
    SCHEMA.validate(line)
    assert record.identity(line) == record.drawn(result.case)
    assert line["code"] == tested.code_of_kills()
    assert [kill["killed"] for kill in line["kills"]] == [kill.victim.value for kill in result.case.kills]
    hung = record.case_line(replace(result, outcome=Outcome.HUNG, comparisons=[], text="no epoch for 240 s"))
    SCHEMA.validate(hung)


def test_the_schema_refuses_an_equal_case_with_a_difference(result: Result) -> None:
    wrong = record.case_line(replace(result, comparisons=[Comparison(10, 1, 0, 0)] * len(result.case.streams)))
    assert not SCHEMA.is_valid(wrong)
    ended = record.case_line(replace(result, ends=[Observed(1.0, 2, "it ended")]))
    assert not SCHEMA.is_valid(ended)
    slow = Observed(1.0, 2, "org.apache.spark.SparkException: Python worker failed to connect back.")
    assert SCHEMA.is_valid(record.case_line(replace(result, ends=[slow])))
    assert not SCHEMA.is_valid({**record.case_line(result), "more": 1})


def test_what_is_done_for_this_code_is_not_done_again(result: Result, tmp_path: Path) -> None:
    results, kills = tmp_path / "kills.jsonl", 3 * command.KILLS_A_CASE
    assert [case.number for case in command.left(1, kills, command.KILLS_A_CASE, results)] == [1, 2, 3]
    record.append(results, record.case_line(result))
    record.append(results, {**record.case_line(result), "case": 2, "code": "0" * 12})
    assert [case.number for case in command.left(1, kills, command.KILLS_A_CASE, results)] == [2, 3]
    assert record.keep(results, lambda line: line["code"] == tested.code_of_kills()) == 1
    assert [line["case"] for line in record.read(results)] == [1]


def test_a_simulation_counts_for_all_that_it_can_reach() -> None:
    simulated = tested.reached(tested.ROOT / "tests" / "simulation" / "test_interval.py")
    assert {"spark_ckpt/protocol/run.py", "spark_ckpt/protocol/start/start.py", "spark_ckpt/model.py", "simulation/world.py"} <= {
        path.relative_to(tested.ROOT).as_posix() for path in simulated
    }
    assert not any(path.is_relative_to(tested.ROOT / "spark_ckpt" / "cli") for path in simulated)


def test_the_code_of_a_long_test_is_the_product_and_what_the_test_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that a change of the test itself would have made another one does not count any more."""
    monkeypatch.setattr(tested, "ROOT", tmp_path)
    kills, test, schedule = "kills", "tests/campaign/test_a.py::test[a-1]", "tests/simulation/test_b.py::test"
    files = {
        "pyproject.toml": ("", {test}),
        "spark_ckpt/__init__.py": ("", {kills, test}),
        "spark_ckpt/cli/x.py": ("", {kills, test}),
        "jvm_shim/X.scala": ("", {kills, test}),
        "tests/conftest.py": ("import testbed.server", {test, schedule}),
        "tests/campaign/conftest.py": ("from tests.drivers.fixtures import start", {test}),
        "tests/campaign/test_a.py": ("from pathlib import Path\nimport beside\nJOB = Path(__file__).parent / 'stream.py'", {test}),
        "tests/campaign/beside.py": ("import flights", {test}),
        "tests/campaign/stream.py": ("", {test}),
        "tests/campaign/test_other.py": ("", set[str]()),
        "tests/drivers/fixtures.py": ("def start():\n    submit('told.py')\n    run([python, '-m', 'benchmarks'])", {test}),
        "tests/drivers/harness.py": ("COMMAND = ('pytest', 'tests/contract')", {kills}),
        "tests/contract/test_storage.py": ("", {kills}),
        "tests/spark/jobs/told.py": ("import collected", {test}),
        "tests/spark/jobs/collected.py": ("", {kills, test}),
        "tests/spark/jobs/other.py": ("", set[str]()),
        "tests/simulation/test_b.py": ("import simulation.world", {schedule}),
        "simulation/world.py": ("ARGUMENTS = ['-m', 'simulation']", {schedule}),
        "simulation/__init__.py": ("", {schedule}),
        "simulation/__main__.py": ("import spark_ckpt.protocol", {schedule}),
        "spark_ckpt/protocol/__init__.py": ("", {kills, test, schedule}),
        "benchmarks/__init__.py": ("", {test}),
        "benchmarks/__main__.py": ("import benchmarks.plans", {test}),
        "benchmarks/plans.py": ("", {test}),
        "examples/flights.py": ("", {test}),
        "testbed/server.py": ("", {test, schedule}),
        "campaign/__init__.py": ("", {kills}),
        "campaign/trial.py": ("from campaign import weather\nfrom tests.drivers import harness", {kills}),
        "campaign/weather.py": ("", {kills}),
        "campaign/job.py": ("from collected import collected", {kills}),
        "campaign/page.py": ("", set[str]()),
    }
    for name, (text, _) in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def codes() -> dict[str, str]:
        return {kills: tested.code_of_kills(), test: tested.code_of(test), schedule: tested.code_of(schedule)}

    for name, (text, counts) in files.items():
        before = codes()
        (tmp_path / name).write_text(f"{text}\n# changed\n")
        assert {one for one, code in codes().items() if code != before[one]} == counts, name


def test_what_the_real_long_tests_are_made_of_is_found() -> None:
    def made_of(test: str) -> set[str]:
        return {path.relative_to(tested.ROOT).as_posix() for path in tested.reached(tested.ROOT / test)}

    assert {"tests/campaign/flights_stream.py", "tests/drivers/spark/harness.py", "examples/flights_data.py"} <= made_of(
        "tests/campaign/test_flights_kills.py"
    )
    assert {"examples/demo.py", "examples/flights_job.py", "examples/flights_check.py"} <= made_of("tests/campaign/test_demo.py")
    assert "tests/contract/test_storage_contract.py" in made_of("tests/campaign/test_contract.py")
    assert {"campaign/job.py", "campaign/queries.py", "tests/spark/jobs/operators.py"} <= made_of("tests/spark/test_two_drivers.py")
    assert {"simulation/world.py", "simulation/__main__.py"} <= made_of("tests/simulation/test_interval.py")


def test_a_module_that_runs_only_because_it_is_imported_further_down_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest that missed one would call stale results valid."""
    monkeypatch.setattr(tested, "ROOT", tmp_path)
    for name, text in {
        "tests/simulation/test_a.py": "from simulation import b",
        "simulation/__init__.py": "import simulation.c as c",
        "simulation/b.py": "def late():\n    from spark_ckpt.protocol.d import e",
        "simulation/c.py": "",
        "spark_ckpt/__init__.py": "",
        "spark_ckpt/protocol/__init__.py": "",
        "spark_ckpt/protocol/d.py": "e = 1",
        "spark_ckpt/protocol/other.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    test = "tests/simulation/test_a.py::test"
    here = ("simulation/b.py", "simulation/c.py", "tests/simulation/test_a.py")
    reached = (*here, "spark_ckpt/protocol/d.py", "spark_ckpt/protocol/__init__.py")
    for name in reached:
        before = tested.code_of(test)
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n# changed")
        assert tested.code_of(test) != before, name
    before = tested.code_of(test)
    (tmp_path / "spark_ckpt/protocol/other.py").write_text("# changed")
    assert tested.code_of(test) == before


def test_two_campaigns_do_not_run_the_same_case(tmp_path: Path) -> None:
    at = tmp_path / "work"
    with command.alone_with("a", at) as first, command.alone_with("a", at) as second, command.alone_with("b", at) as other:
        assert (first, second, other) == (True, False, True)
    with command.alone_with("a", at) as again:
        assert again


def test_a_line_of_another_format_is_refused(result: Result, tmp_path: Path) -> None:
    record.append(tmp_path / "lines", {**record.case_line(result), "format": 99})
    with pytest.raises(ValueError, match="format 99"):
        record.read(tmp_path / "lines")


def test_the_page_tells_of_the_newest_code_and_of_what_was_not_equal(result: Result) -> None:
    line: dict[str, Any] = record.case_line(result)
    end = {"why": "the executor\nwas lost", "sparks_own": False, "at_s": 3.0, "epochs": 1}
    ended = {**line, "case": 2, "outcome": "ended", "ends": [end]}
    test = {**{name: line[name] for name in ("format", "code", "commit", "date", "versions", "cores")}}
    test |= {"test": "tests/a.py::b", "outcome": "passed", "seconds": 3.2}
    outcomes = {"1": "passed", "2": "passed", "3-x[y]": "failed"}
    cases = [{**test, "test": f"tests/a.py::c[{case}]", "outcome": outcome} for case, outcome in outcomes.items()]
    text = page.render([{**line, "code": "0" * 12}, line, ended], [test, *cases])
    assert f"**{2 * command.KILLS_A_CASE} kills, {2 * 10 * len(result.case.streams)} rows expected, 0 missing" in text
    assert "1 equal, 1 ended" in text
    assert "The file has 1 of other code too." in text
    assert "- case 2 of seed 1, ended: At 3 s: the executor was lost." in text
    code = f"{line['code']} | {line['commit']}"
    assert f"| `tests/a.py::b` | 1 | passed | 3 | {code} |" in text
    assert f"| `tests/a.py::c` | 2 | passed | 6 | {code} |" in text
    assert f"| `tests/a.py::c[3-x[y]]` | 1 | failed | 3 | {code} |" in text
    assert "3 passed, 1 failed" in text


def test_the_page_in_the_repository_is_that_of_the_results() -> None:
    text = page.render(record.read(record.KILLS), record.read(record.TESTS))
    assert command.PAGE.read_text() == text, "docs/reliability.md is stale: run `python -m campaign page`"


@pytest.mark.parametrize("path", [record.KILLS, record.TESTS, record.LINES], ids=lambda path: path.name)
def test_every_recorded_line_is_as_the_schema_says(path: Path) -> None:
    for line in record.read(path):
        SCHEMA.validate(line)
