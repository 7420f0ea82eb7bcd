"""State of every kind of operator, as `read_state` reads it and as Spark's own reader does, row by row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.state.reading import Selected, StateOfCheckpoint
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.stock import STOCK, place

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(1800)]

KINDS = {
    "update": {"default"},
    "wide": {"default"},
    "windows": {"default"},
    "sliding": {"default"},
    "sessions": {"default"},
    "unique": {"default"},
    "within": {"default"},
    "inner": {"left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"},
    "outer": {"left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"},
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
    ("unique", "within", "inner", "outer", "limit", "chained"),
    ("pandas", "flat", "transform", "timers"),
    ("ttl", "transform-avro", "ttl-avro"),
)
"""Those that one application runs."""

SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}
"""So that there are changelogs behind full snapshots."""
READER = {
    "spark.sql.streaming.stateStore.providerClass": STOCK.decode(),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def options(one: Selected) -> dict[str, str]:
    """Those of Spark's reader for the same entries."""
    chosen = {"operatorId": str(one.operator.id)}
    if not one.store.has_families:
        return chosen | {"storeName": one.name}
    return chosen | ({"readRegisteredTimers": "true"} if one.name == "timers" else {"stateVarName": one.name})


def rows(table: pa.Table) -> list[str]:
    """Keys and values field by field, without their names, of which some come twice; and in an order that all readers have."""
    flat = table.flatten()
    flat = flat.rename_columns([str(number) for number in range(flat.num_columns)])
    return sorted(repr([plain(value) for value in row.values()]) for row in flat.to_pylist())


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_every_kind_is_in_a_group() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(KINDS)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_what_is_read_is_what_sparks_reader_reads(names: Sequence[str], start: Callable[..., Application], tmp_path: Path) -> None:
    events, locations, storage = (tmp_path / name for name in ("events", "locations", "storage"))
    write_events(events, 0, 5)
    args = (",".join(names), str(events), str(locations))
    start("states.py", *args, storage=f"file://{storage}", conf=SNAPSHOTS).expect_success(900)

    reads, ours, kept = [], {}, {}
    for query in names:
        stream = open_storage(f"file://{storage}{locations}/{query}")
        reader = StreamReader(stream)
        checkpoint = reader.read(reader.latest())
        shutil.rmtree(locations / query)
        place(stream, checkpoint, locations / query)
        state = StateOfCheckpoint(stream, checkpoint)
        found = [Selected(o, s, f) for o in state.operators for s in o.stores for f in s.families if not f.is_internal]
        kept[query] = {one.name for one in found}
        for one in found:
            name = f"{query}.{one.operator.id}.{one.name}"
            reads.append({"name": name, "path": str(locations / query), "options": options(one)})
            ours[name] = pa.Table.from_batches(state.batches(one, None, 2), schema=state.decoder(one).schema)
            ours[name].validate(full=True)
    assert kept == {name: KINDS[name] for name in names}

    (tmp_path / "reads.json").write_text(json.dumps(reads))
    (tmp_path / "read").mkdir()
    reading = (str(tmp_path / "reads.json"), str(tmp_path / "read"))
    start("state_reader.py", *reading, storage=None, plugin=False, conf=READER).expect_success(900)
    differing = []
    for name, table in ours.items():
        with pa.OSFile(str(tmp_path / "read" / f"{name}.arrow")) as file:
            theirs = pa.ipc.open_file(file).read_all()
        if rows(table) != rows(theirs):
            differing.append(name)
    assert differing == []
    assert [name for name, table in ours.items() if table.num_rows == 0] == []
