"""The table of docs/state.md that says what is shown for which kind of operator: taken from campaign/results/tests.jsonl.

Which test shows what for which query, the tests' own modules say: `GROUPS` and the like, whose first member is in the test's name.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documents.parts import period, replaced
from documents.places import ROOT

_SOURCE = "campaign/results/tests.jsonl"
_KINDS = {
    "aggregation": ("complete", "update"),
    "aggregation, values of many types": ("wide",),
    "windows": ("windows",),
    "sliding windows": ("sliding",),
    "session windows": ("sessions",),
    "inner join of streams": ("inner",),
    "left outer join": ("outer",),
    "right outer join": ("right",),
    "full outer join": ("full",),
    "`dropDuplicates`": ("unique",),
    "`dropDuplicatesWithinWatermark`": ("within",),
    "limit": ("limit",),
    "`applyInPandasWithState`": ("pandas",),
    "the same, with a time-out": ("flat",),
    "`transformWithState`: value, list, map": ("transform",),
    "the same, with timers": ("timers",),
    "the same, with a time to live": ("ttl",),
    "the same, in Avro": ("transform-avro", "ttl-avro"),
    "three operators, one behind the other": ("chained",),
    "no state": ("stateless",),
}
"""What people call them, and the queries of the tests' jobs that have them."""
_NOTHING = "·"

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    """A test. `constant`: of its module, which queries it runs, or groups of queries; `ids`: what stands in brackets behind its name for
    one of them, of which `{first}` is the first member."""

    module: str
    name: str
    constant: str
    ids: tuple[str, ...] = ("{first}",)

    def tests(self) -> Mapping[str, list[str]]:
        """Query -> the tests that show it, as pytest calls them."""
        found: dict[str, list[str]] = {}
        for member in _constants(ROOT / "tests" / "spark" / self.module)[self.constant]:
            group = (member,) if isinstance(member, str) else member
            names = [f"tests/spark/{self.module}::{self.name}[{one.format(first=group[0])}]" for one in self.ids]
            for query in group:
                found.setdefault(query, []).extend(names)
        return found


_HOW = ("format-1", "format-1-without-changelogs", "format-1-zstd", "format-1-snappy", "format-2", "format-2-zstd")
COLUMNS = {
    "read: equal to Spark's own reader": (Shown("test_states.py", "test_what_is_read_is_what_sparks_reader_reads", "GROUPS"),),
    "what changed: equal to two reads": (Shown("test_states.py", "test_what_changed_is_what_two_reads_differ_in", "GROUPS"),),
    "killed, exported, goes on with stock Spark": (
        Shown("test_export.py", "test_stock_spark_goes_on_after_a_kill", "GROUPS", ("{first}-snapshots", "{first}-changelogs")),
    ),
    "imported from stock Spark, killed, goes on": (
        Shown("test_import.py", "test_every_operator_moves_in_and_is_killed_right_after", "NAMES", _HOW),
    ),
    "other partitions: equal, goes on": (
        Shown("test_rescale.py", "test_every_operator_from_20_to_200_and_back_to_7", "NAMES"),
        Shown("test_rescale.py", "test_state_of_every_form_is_the_same_and_goes_on", "FORMS"),
    ),
}


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def renewed(page: str, lines: Sequence[Line]) -> str:
    """docs/state.md with the table of today. Raises ValueError where it has no place for it."""
    return replaced(page, _SOURCE, table(lines))


def table(lines: Sequence[Line]) -> str:
    """Of the last run of each test. What never ran says so."""
    newest = {line["test"]: line for line in lines}
    shown = {title: _by_query(column) for title, column in COLUMNS.items()}
    rows = [f"| | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    for kind, queries in _KINDS.items():
        rows.append(f"| {kind} | {' | '.join(_cell(queries, column, newest) for column in shown.values())} |")
    dates = [newest[test]["date"] for column in shown.values() for tests in column.values() for test in tests if test in newest]
    when = period(dates) if dates else "None is recorded yet"
    return "\n".join([*rows, "", f"{when}. {_NOTHING}: there is no such test."])


def _by_query(column: Sequence[Shown]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for shown in column:
        for query, tests in shown.tests().items():
            found.setdefault(query, []).extend(tests)
    return found


def _cell(queries: Sequence[str], column: Mapping[str, Sequence[str]], newest: Mapping[str, Line]) -> str:
    tests = list(dict.fromkeys(test for query in queries for test in column.get(query, ())))
    outcomes = [newest[test]["outcome"] if test in newest else "not run" for test in tests]
    if not outcomes:
        return _NOTHING
    wrong = [one for one in outcomes if one != "passed"]
    return "yes" if not wrong else f"{len(outcomes) - len(wrong)} of {len(outcomes)} tests" if len(wrong) < len(outcomes) else wrong[0]


def _constants(module: Path) -> Mapping[str, tuple[Any, ...]]:
    """Tuples of strings, and of such tuples."""
    found: dict[str, tuple[Any, ...]] = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _tuple(node.value, found)
    return found


def _tuple(node: ast.Tuple, known: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    members: list[Any] = []
    for one in node.elts:
        if isinstance(one, ast.Starred) and isinstance(one.value, ast.Name):
            members += known[one.value.id]
        else:
            members.append(_tuple(one, known) if isinstance(one, ast.Tuple) else ast.literal_eval(one))
    return tuple(members)
