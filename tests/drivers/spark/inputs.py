"""Events for the tests' jobs: a few keys, some duplicates, event time that moves on, a last event that closes every window."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 1, 1, tzinfo=UTC)
FAR = datetime(2030, 1, 1, tzinfo=UTC)
FILES, MANY = 8, 24


def write_events(
    folder: Path, first: int, files: int, *, per_file: int = 60, minutes: int = 5, seed: int = 7, closing: bool = False
) -> None:
    """Files `first` … `first + files - 1`, each written aside and moved into place: the source never sees half of one.

    A file's events are of so many `minutes`, behind those of the file before. With `closing`, two more files carry an event far in the
    future, so that a watermark passes every window.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        rng = random.Random(f"{seed}-{number}")
        lines = []
        for i in range(per_file):
            ts = START + timedelta(minutes=minutes * number, seconds=rng.randrange(60 * minutes))
            event = {"id": number * per_file + i, "key": f"k{rng.randrange(5)}", "ts": ts.isoformat(), "value": rng.randrange(1000)}
            lines.append(event)
            if rng.random() < 0.1:
                lines.append(event)
        write_file(folder, number, lines)
    if closing:
        for extra in range(2):
            number = first + files + extra
            event = {"id": 12_000_000 + 6 * extra, "key": "far", "ts": (FAR + timedelta(days=extra)).isoformat(), "value": 0}
            write_file(folder, number, [event])


def write_file(folder: Path, number: int, lines: Sequence[Mapping[str, object]]) -> None:
    temp = folder.parent / f".{folder.name}-{number}"
    temp.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # Spark's file source takes files in the order of their modification times.
    os.utime(temp, (1_700_000_000 + number, 1_700_000_000 + number))
    temp.rename(folder / f"events-{number:05d}.json")
