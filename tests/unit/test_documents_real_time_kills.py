"""The table of docs/guarantees.md of what came twice after kills in real time, and the lines that it is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from campaign import long_tests, record
from documents import by_operator, real_time_kills
from documents.places import GUARANTEES, TESTS

SCHEMA = jsonschema.Draft202012Validator(json.loads(record.SCHEMA.read_text()))
KILL = {
    "storage": "file",
    "mode": "every epoch",
    "batch_s": 2,
    "a_second": 100,
    "killed": "machine",
    "when": "in a batch",
    "behind": 1,
    "twice": 40,
}


def line(test: str, *kills: dict[str, Any], outcome: str = "passed") -> dict[str, Any]:
    versions = {"spark-ckpt": "0.1.0", "pyspark": "4.3.0", "python": "3.11.7", "java": "17.0.15"}
    head = {"format": 1, "code": "0" * 12, "commit": "1" * 12, "date": "2026-11-29T00:00:00Z", "versions": versions, "cores": 2}
    killed = {"kills": list(kills)} if kills else {}
    return {**head, "test": f"tests/campaign/{test}", "outcome": outcome, "seconds": 1.0, **killed}


def test_the_page_has_the_table_of_the_results() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    assert text == real_time_kills.renewed(text, by_operator.read(TESTS)), "docs/guarantees.md is stale: run `python -m documents`"


def test_each_way_of_killing_has_a_row_and_the_newest_line_of_a_test_counts() -> None:
    kills = [KILL, {**KILL, "twice": 60}, {**KILL, "when": "after a batch", "behind": 0, "twice": 1_200}]
    far = {**KILL, "storage": "s3", "mode": "interval", "killed": "executor"}
    told = real_time_kills.table([line("a", {**KILL, "twice": 9_999}), line("b", far), line("a", *kills), line("a")])
    about = "**4 kills; 1,340 rows came twice, 50 (40 to 1,200) after each.** Batches of 2 s, at most 100 records a second, a row for each."
    assert told.splitlines()[2:] == [
        "| `file://` | every batch | the driver with its disk | in the middle of a batch | 2 | 1 | 50 (40 to 60) |",
        "| `file://` | every batch | the driver with its disk | when a batch had ended | 1 | 0 | 1,200 |",
        "| S3, 20 ms away | with an interval | an executor | in the middle of a batch | 1 | 1 | 40 |",
        "",
        f"{about} On 2026-11-29, code 000000000000.",
    ]
    assert "Not passed: `tests/campaign/a`." in real_time_kills.table([line("a", KILL, outcome="failed")])
    assert real_time_kills.table([line("a")]) == "None is recorded yet."


def test_lines_with_and_without_kills_are_as_the_schema_says() -> None:
    SCHEMA.validate(line("a::b"))
    SCHEMA.validate(line("a::b", KILL))
    assert not SCHEMA.is_valid(line("a::b", {**KILL, "when": "at noon"}))
    assert not SCHEMA.is_valid(line("a::b", {name: value for name, value in KILL.items() if name != "twice"}))


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_what_a_test_has_recorded_is_in_its_line(outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that fails later."""
    module = tmp_path / "tests" / "test_kills.py"
    module.parent.mkdir()
    module.write_text(
        "import json, pytest\n"
        "@pytest.mark.campaign\n"
        "def test_a(record_property):\n"
        f"    for twice in (3, 5):\n        record_property('kill', json.dumps({{**{KILL!r}, 'twice': twice}}))\n"
        f"    assert {outcome == 'passed'}\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['campaign']\n")
    monkeypatch.setattr(long_tests, "ROOT", tmp_path)
    monkeypatch.setattr(long_tests, "code_of", lambda _: "0" * 12)
    found = long_tests.run("tests/test_kills.py::test_a", tmp_path / "test.log")
    SCHEMA.validate(found)
    assert (found["outcome"], [kill["twice"] for kill in found["kills"]]) == (outcome, [3, 5])
    module.write_text("import pytest\n@pytest.mark.campaign\ndef test_a(): pass\n")
    assert "kills" not in long_tests.run("tests/test_kills.py::test_a", tmp_path / "test.log")
