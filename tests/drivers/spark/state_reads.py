"""What Spark's own reader of state (`format("statestore")`) finds in stock checkpoints, to be compared row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_ckpt.state.reading import Selected, StateOfCheckpoint
from tests.drivers.spark.harness import Start

READER = {"spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}


def kept(state: StateOfCheckpoint) -> list[Selected]:
    """Every store and state variable of a checkpoint."""
    return [Selected(o, s, f) for o in state.operators for s in o.stores for f in s.families if not f.is_internal]


def options(one: Selected) -> dict[str, str]:
    """Those of Spark's reader for the same entries."""
    chosen = {"operatorId": str(one.operator.id)}
    if not one.store.has_families:
        return chosen | {"storeName": one.name}
    return chosen | ({"readRegisteredTimers": "true"} if one.name == "timers" else {"stateVarName": one.name})


class SparkReads:
    """Reads of some checkpoints, done by one application."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start, self._folder = start, folder
        self._wanted: list[dict[str, Any]] = []

    def want(self, name: str, location: Path, one: Selected) -> None:
        self._wanted.append({"name": name, "path": str(location), "options": options(one)})

    def tables(self) -> dict[str, pa.Table]:
        reads, out = self._folder / "reads.json", self._folder / "read"
        reads.write_text(json.dumps(self._wanted))
        out.mkdir()
        self._start("state_reader.py", str(reads), str(out), storage=None, plugin=False, conf=READER).expect_success(900)
        return {read["name"]: _table(out / f"{read['name']}.arrow") for read in self._wanted}


def _table(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def rows(table: pa.Table, without: Iterable[str] = ()) -> list[str]:
    """Keys and values field by field, without their names, of which some come twice; and in an order that all readers have.

    `without`: columns, and fields of keys and values by their number (`value.1`), that are left out.
    """
    flat = table.flatten()
    numbered = [str(number) for number in range(flat.num_columns)]
    wanted = [n for n, name in zip(numbered, flat.column_names, strict=True) if name not in without]
    return sorted(repr([_plain(value) for value in row.values()]) for row in flat.rename_columns(numbered).select(wanted).to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
