"""What `tests/spark/jobs/file_totals.py` has to give, and what it has given."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

Totals = dict[str, tuple[int, int]]
"""By key: rows, and the sum of their values."""


def totals_of(events: Path) -> Totals:
    """Over all files of the input."""
    rows, total = Counter[str](), Counter[str]()
    for path in events.iterdir():
        for event in map(json.loads, path.read_text().splitlines()):
            rows[event["key"]] += 1
            total[event["key"]] += event["value"]
    return {key: (rows[key], total[key]) for key in rows}


def last_totals(out: Path) -> Totals:
    """Of each key what the newest epoch that has it says."""
    held: Totals = {}
    for path in sorted(out.glob("batch-*.json"), key=lambda path: int(path.stem.removeprefix("batch-"))):
        for row in map(json.loads, path.read_text().splitlines()):
            held[row["key"]] = (row["n"], row["total"])
    return held
