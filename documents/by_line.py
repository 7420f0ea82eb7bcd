"""The table of docs/compatibility.md: what a few tests have shown on each line of Spark, from campaign/results/lines.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from documents.parts import period, replaced
from documents.places import LINES

_SOURCE = "campaign/results/lines.jsonl"
_MARKS = {"passed": "✓", "skipped": "not there", "failed": "**fails**"}
SHOWN: Mapping[str, tuple[str, ...]] = {
    "a file storage, the driver killed twice, its disk lost, equal to a batch": (
        "tests/spark/test_lines.py::test_a_driver_killed_twice_without_its_disk",
    ),
    "S3, the driver killed at four points of an epoch, a server with every fault": (
        "tests/spark/test_kills.py::test_the_driver_is_killed_at_every_point_and_the_last_one_has_a_server_with_every_fault",
    ),
    "agent and coordinator killed": (
        "tests/spark/test_kills.py::test_agent_and_coordinator_are_killed_also_while_the_storage_is_away_and_the_query_goes_on",
    ),
    "every kind of operator, the machine lost": (
        "tests/spark/test_operators.py::test_every_operator_survives_the_loss_of_its_machine[in-the-jvm]",
        "tests/spark/test_operators.py::test_every_operator_survives_the_loss_of_its_machine[in-python]",
    ),
    "savepoints, restores, forks": ("tests/spark/test_savepoints.py::test_savepoints_and_the_ways_back[2s]",),
    "checkpoints at an interval, the driver killed": (
        "tests/spark/test_interval.py::test_a_killed_driver_costs_the_epochs_past_the_last_checkpoint_and_no_row",
    ),
    "the Checkpoints tab, live and in the history server": (
        "tests/spark/test_tab.py::test_a_running_application_and_what_the_history_server_shows_of_it",
    ),
    **{
        f"a table of {name.capitalize()}, killed while it has epochs that no checkpoint holds": tuple(
            f"tests/spark/test_table_formats.py::test_a_table_has_each_row_once[{name}-{interval}]" for interval in ("0", "2s")
        )
        for name in ("delta", "iceberg")
    },
}
"""What a test shows, in words, and its name, or theirs."""

Line = Mapping[str, Any]


def read(path: Path = LINES) -> Sequence[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def line_of(result: Line) -> str:
    """The line of Spark that a result is of."""
    return ".".join(str(result["versions"]["pyspark"]).split(".")[:2])


def renewed(page: str, results: Sequence[Line]) -> str:
    """The page with the table of today. Raises ValueError where it has no place for it."""
    return replaced(page, _SOURCE, table(results))


def table(results: Sequence[Line]) -> str:
    """Of the last run of each test on each patch release."""
    newest = {(result["test"], result["versions"]["pyspark"]): result for result in results}
    versions = sorted({version for _, version in newest}, key=lambda v: tuple(map(int, v.split("."))))
    if not versions:
        return "None is recorded yet."
    rows = [f"| | {' | '.join(f'Spark {version}' for version in versions)} |", "|---|" + "---|" * len(versions)]
    for what, tests in SHOWN.items():
        cells = [_cell([newest.get((test, version)) for test in tests]) for version in versions]
        rows.append(f"| {what} | {' | '.join(cells)} |")
    pythons = ", ".join(sorted({result["versions"]["python"] for result in newest.values()}))
    return "\n".join([*rows, "", f"{period(result['date'] for result in newest.values())}, Python {pythons}. ·: did not run."])


def _cell(results: Sequence[Line | None]) -> str:
    said = {"·" if result is None else _MARKS[result["outcome"]] for result in results}
    return next(iter(said)) if len(said) == 1 else ", ".join(sorted(said))
