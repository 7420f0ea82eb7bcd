"""The table of docs/guarantees.md that says how many rows come twice after a kill in real time: taken from campaign/results/tests.jsonl."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from documents.parts import period, replaced

_SOURCE = "campaign/results/tests.jsonl"
_STORAGES = {"file": "`file://`", "s3": "S3, 20 ms away"}
_MODES = {"every epoch": "every batch", "interval": "with an interval"}
_KILLED = {"machine": "the driver with its disk", "executor": "an executor"}
_WHEN = {
    "in a batch": "in the middle of a batch",
    "after a batch": "when a batch had ended",
    "before its checkpoint": "between the end of a batch and its checkpoint",
}
_HEAD = ("storage", "checkpoints", "killed", "when", "kills", "ended, in no checkpoint", "rows that came twice")

Line = Mapping[str, Any]


def renewed(page: str, lines: Sequence[Line]) -> str:
    """The page with the table of today. `lines`: of all long tests. Raises ValueError where the page has no place for it."""
    return replaced(page, _SOURCE, table(lines))


def table(lines: Sequence[Line]) -> str:
    """Of each test the newest line that has recorded its kills. Lines of before they did so have none."""
    newest = list({line["test"]: line for line in lines if "kills" in line}.values())
    if not newest:
        return "None is recorded yet."
    kills = [kill for line in newest for kill in line["kills"]]
    rows = []
    for storage, place in _STORAGES.items():
        for mode, often in _MODES.items():
            for killed, what in _KILLED.items():
                for when, moment in _WHEN.items():
                    of = {"storage": storage, "mode": mode, "killed": killed, "when": when}
                    found = [kill for kill in kills if of.items() <= kill.items()]
                    if found:
                        counts = (_range([kill["behind"] for kill in found]), _range([kill["twice"] for kill in found]))
                        rows.append((place, often, what, moment, str(len(found)), *counts))
    lengths, rates = (sorted({kill[name] for kill in kills}) for name in ("batch_s", "a_second"))
    twice = [kill["twice"] for kill in kills]
    failed = [line["test"] for line in newest if line["outcome"] != "passed"]
    return "\n".join(
        [
            f"| {' | '.join(_HEAD)} |",
            f"|{'---|' * 4}{'---:|' * 3}",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            f"**{len(kills)} kills; {sum(twice):,} rows came twice, {_range(twice)} after each.** Batches of {_said(lengths)} s, at most "
            f"{_said(rates)} records a second, a row for each. " + _taken(newest),
            *([f"Not passed: {', '.join(f'`{test}`' for test in failed)}."] if failed else []),
        ]
    )


def _taken(lines: Sequence[Line]) -> str:
    return f"{period(line['date'] for line in lines)}, code {', '.join(sorted({line['code'] for line in lines}))}."


def _said(values: Sequence[float]) -> str:
    return " and ".join(f"{value:g}" for value in values)


def _range(values: Sequence[int]) -> str:
    """Several with their median."""
    if min(values) == max(values):
        return f"{values[0]:,}"
    return f"{statistics.median(values):,.0f} ({min(values):,} to {max(values):,})"
