"""What each kind of sink holds, read from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from campaign.comparison import Comparison, Rows, compare, counted, parts_of
from campaign.dimensions import Mode
from campaign.sinks.dimensions import ON_KAFKA, SinkKind
from campaign.sinks.topics import Topics, named, once


@dataclass(frozen=True)
class Holding:
    """Rows of one sink. `in_topic`: of numbered records, before their reader has dropped anything."""

    rows: Rows
    in_topic: Rows | None = None

    @property
    def twice(self) -> int:
        return again(self.rows)

    @property
    def twice_in_topic(self) -> int | None:
        return None if self.in_topic is None else again(self.in_topic)


@dataclass(frozen=True)
class Held:
    """A holding against what a batch query gives."""

    sink: SinkKind
    rows: Comparison
    in_topic: Comparison | None = None


def again(rows: Rows) -> int:
    """Every row of the batch query is there once."""
    return rows.total() - len(rows)


def holding(sink: SinkKind, out: Path, topics: Topics, topic: str) -> Holding:
    """Raises NumberError."""
    if sink in ON_KAFKA:
        every = list(topics.records(topic))
        rows = counted(record.value for record in every)
        return Holding(rows) if sink is SinkKind.KAFKA else Holding(counted(one.value for one in named(once(every))), rows)
    parts = in_files(out) if sink is SinkKind.FILE else parts_of(out)
    return Holding(counted(row for part in parts for row in part))


def in_files(out: Path) -> list[list[dict[str, Any]]]:
    """Of Spark's file sink: the files that its own log names, as every reader should go by."""
    log = out / "_spark_metadata"
    entries = [entry for entry in log.iterdir() if entry.name.split(".")[0].isdigit()] if log.exists() else []
    lines = [line for entry in entries for line in entry.read_text().splitlines()[1:]]
    files = sorted({unquote(urlsplit(json.loads(line)["path"]).path) for line in lines})
    return [[json.loads(row) for row in Path(file).read_text().splitlines()] for file in files]


def compared(sink: SinkKind, held: Holding, expected: Rows) -> Held:
    """What came twice is counted apart, whatever the mode."""
    assert max(expected.values()) == 1, "a row that is right twice would be taken for one that came again"
    topic = None if held.in_topic is None else compare(expected, held.in_topic, Mode.AT_LEAST_ONCE)
    return Held(sink, compare(expected, held.rows, Mode.AT_LEAST_ONCE), topic)


def increase(before: Holding | None, now: Holding) -> tuple[int, int | None]:
    """Rows that have come twice since then: at the reader, in the topic."""
    in_topic = now.twice_in_topic
    if before is None:
        return now.twice, in_topic
    return now.twice - before.twice, None if in_topic is None else in_topic - (before.twice_in_topic or 0)


