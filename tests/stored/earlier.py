"""What earlier versions stored (README.md)."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
EVENTS = Path("/tmp/spark-ckpt-stored-stream/events")
"""Where the streams' source has its files: their paths are in its log."""
INPUT = HERE / "1" / "events"
"""Of the streams of all versions."""
QUERY = {"1": "e2688239-01be-44df-a66a-64a02582f1b2", "2": "23c873a2-2121-4959-944b-c6a84a08c8e9"}
"""By version, the id of the stream's query."""


def place(version: str, stream: Path) -> None:
    """A copy of that version's stream as the folder `stream`."""
    shutil.copytree(HERE / version / "stream", stream)


def place_events() -> None:
    """The input, with the modification times that the source has recorded: much newer files would make it forget the ones it has seen."""
    shutil.copytree(INPUT, EVENTS)
    for number, path in enumerate(sorted(EVENTS.iterdir())):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def totals(files: int) -> dict[str, tuple[int, int]]:
    """Rows and sum of each key in the first so many input files: what the query has to hold after them."""
    rows, total = Counter[str](), Counter[str]()
    for path in sorted(INPUT.iterdir())[:files]:
        for event in map(json.loads, path.read_text().splitlines()):
            rows[event["key"]] += 1
            total[event["key"]] += event["value"]
    return {key: (rows[key], total[key]) for key in rows}
