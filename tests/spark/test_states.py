"""State of every kind of operator, as `read_state` reads it and as Spark's own reader does, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.state_reads import SparkReads, kept, rows
from tests.drivers.state_differences import checked_changes

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(1800)]

JOINS = ("inner", "outer", "right", "full")

KINDS = {
    "update": {"default"},
    "wide": {"default"},
    "windows": {"default"},
    "sliding": {"default"},
    "sessions": {"default"},
    "unique": {"default"},
    "within": {"default"},
    **{name: {f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")} for name in JOINS},
    "pandas": {"default"},
    "flat": {"default"},
    "limit": {"default"},
    "chained": {"default"},
    "transform": {"count", "best", "parity"},
    "timers": {"count", "best", "parity", "timers"},
    "ttl": {"count", "best", "parity", "forever", "timers"},
    "transform-avro": {"count", "best", "parity"},
    "ttl-avro": {"count", "best", "parity", "forever", "timers"},
}
"""What each query keeps, by the names of stores and state variables."""

GROUPS = (
    ("update", "wide", "windows", "sliding", "sessions"),
    ("unique", "within", *JOINS, "limit", "chained"),
    ("pandas", "flat", "transform", "timers"),
    ("ttl", "transform-avro", "ttl-avro"),
)
"""Those that one application runs."""

UNCHANGED = {"timers.timers"}
"""State variables that the last epochs leave as they are."""

DELETING = {
    "sliding.default",
    "within.default",
    *(f"{join}.{side}-keyWithIndexToValue" for join in JOINS for side in ("left", "right")),
    "chained.default",
    *(f"{query}.best" for query in ("transform", "timers", "transform-avro")),
}
"""Those of which the last epochs delete something."""

SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}
"""So that there are changelogs behind full snapshots."""


def test_every_kind_is_in_a_group() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(KINDS)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_what_is_read_is_what_sparks_reader_reads(names: Sequence[str], start: Callable[..., Application], tmp_path: Path) -> None:
    events, locations, storage = (tmp_path / name for name in ("events", "locations", "storage"))
    write_events(events, 0, 6)
    args = (",".join(names), str(events), str(locations))
    start("states.py", *args, storage=f"file://{storage}", conf=SNAPSHOTS).expect_success(900)

    ours, found = {}, {}
    theirs = SparkReads(start, tmp_path)
    for query in names:
        url, stock = f"file://{storage}{locations}/{query}", tmp_path / "stock" / query
        assert run(["export", url, str(stock)]) == 0
        stream = open_storage(url)
        reader = StreamReader(stream)
        state = StateOfCheckpoint(stream, reader.read(reader.latest()))
        found[query] = {one.name for one in kept(state)}
        for one in kept(state):
            name = f"{query}.{one.operator.id}.{one.name}"
            theirs.want(name, stock, one)
            ours[name] = pa.Table.from_batches(state.batches(one, None, 2), schema=state.decoder(one).schema)
            ours[name].validate(full=True)
    assert found == {name: KINDS[name] for name in names}

    read = theirs.tables()
    assert [name for name, table in ours.items() if rows(table) != rows(read[name])] == []
    assert [name for name, table in ours.items() if table.num_rows == 0] == []


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_what_changed_is_what_two_reads_differ_in(names: Sequence[str], start: Callable[..., Application], tmp_path: Path) -> None:
    """Between the last checkpoint and each before it: with changelogs between, and with full snapshots."""
    events, locations, storage = (tmp_path / name for name in ("events", "locations", "storage"))
    write_events(events, 0, 6)
    args = (",".join(names), str(events), str(locations))
    start("states.py", *args, storage=f"file://{storage}", conf={**SNAPSHOTS, "spark.ckpt.retained": "10"}).expect_success(900)

    changed: dict[str, Counter[str]] = {}
    for query in names:
        stream = open_storage(f"file://{storage}{locations}/{query}")
        reader = StreamReader(stream)
        *earlier, latest = [StateOfCheckpoint(stream, reader.read(found)) for found, _ in reader.checkpoints()]
        assert len(earlier) >= 4
        for one in kept(latest):
            there = [before for before in earlier if one.name in {other.name for other in kept(before)}]
            types = [checked_changes(before, latest, one.operator.id, one.name)[1] for before in there]
            changed[f"{query}.{one.name}"] = Counter(kind for found in types for kind in found)
    assert [name for name, types in changed.items() if not types and name not in UNCHANGED] == []
    assert [name for name in DELETING & changed.keys() if not changed[name]["delete"]] == []
