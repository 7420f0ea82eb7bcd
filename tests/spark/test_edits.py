"""A job is killed, its state is changed with `transform_state`, and the same job goes on from there, under kills."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from spark_ckpt import drop_keys, read_state, transform_state, write_state
from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import Rows, read
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FAR_EVENTS = 2
"""Of the key `far`, at the end of the input."""


def totals(url: str) -> dict[str, tuple[int, int]]:
    rows = read_state(url).to_table().to_pylist()
    return {row["key"]["key"]: (row["value"]["count"], row["value"]["sum"]) for row in rows}


def corrected(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`k1` is gone, `k2` has 1000 more, `k4` is called `far`, which is in another partition."""
    batch = batch.filter(pc.not_equal(pc.struct_field(batch.column("key"), 0), "k1"))
    keys, value = batch.column("key").field(0), batch.column("value")
    more = pc.if_else(pc.equal(keys, "k2"), 1000, 0)
    sums = pc.add(value.field(1), more)
    renamed = pc.if_else(pc.equal(keys, "k4"), "far", keys)
    columns = [
        pa.StructArray.from_arrays([renamed], names=["key"]),
        pa.StructArray.from_arrays([value.field(0), sums], names=[field.name for field in value.type]),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"])


@pytest.mark.campaign
def test_a_killed_query_goes_on_from_what_was_changed(start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path) -> None:
    storage, out = tmp_path / "storage", tmp_path / "out"

    def begin(locations: str, **conf: str) -> Any:
        arguments = ("run", "update", str(events), str(tmp_path / locations), str(out))
        return start("operators.py", *arguments, storage=f"file://{storage}", conf=conf)

    app = begin("first")
    app.until(lambda: len(completed(storage, tmp_path / "first" / "update")) >= 2, "checkpoints", 200)
    app.kill()
    stream = f"file://{storage}{tmp_path}/first/update"
    before = totals(stream)
    savepoint = transform_state(stream, 0, corrected)
    changed = totals(savepoint)
    assert set(before) == {"k0", "k1", "k2", "k3", "k4"}
    assert totals(stream) == before
    assert changed == {
        **{key: before[key] for key in ("k0", "k3")},
        "k2": (before["k2"][0], before["k2"][1] + 1000),
        "far": before["k4"],
    }
    begin("second", **{"spark.ckpt.restore.path": savepoint}).expect_success()

    everything = {row["key"]: (row["n"], row["total"]) for row in map(json.loads, read(oracle["update"]))}
    expected = {
        key: (n - before[key][0] + changed.get(key, (0, 0))[0], total - before[key][1] + changed.get(key, (0, 0))[1])
        for key, (n, total) in everything.items()
    }
    expected["far"] = (before["k4"][0] + FAR_EVENTS, before["k4"][1])
    held = json.loads((out / "update" / "held.json").read_text())
    assert {key: (row["n"], row["total"]) for key, row in held.items()} == expected


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "column"), [("outer", "lkey"), ("timers", "key"), ("sessions", "key"), ("transform", "key")])
def test_a_query_goes_on_without_a_key_and_loses_nothing_of_the_others(
    name: str, column: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    storage, out = tmp_path / "storage", tmp_path / "out"

    def begin(locations: str, **conf: str) -> Any:
        arguments = ("run", name, str(events), str(tmp_path / locations), str(out))
        return start("operators.py", *arguments, storage=f"file://{storage}", conf=conf)

    app = begin("first")
    app.until(lambda: len(completed(storage, tmp_path / "first" / name)) >= 3, "checkpoints", 200)
    app.kill()
    savepoint = drop_keys(f"file://{storage}{tmp_path}/first/{name}", 0, lambda keys: pc.equal(keys.column(0), "k1"))
    begin("second", **{"spark.ckpt.restore.path": savepoint}).expect_success()

    def of_others(rows: Rows) -> Rows:
        return Rows({row: n for row, n in rows.items() if json.loads(row)[column] != "k1"})

    ours, theirs = read(out / name), read(oracle[name])
    assert of_others(ours) == of_others(theirs)
    assert of_others(theirs)
    assert ours != theirs


@pytest.mark.campaign
def test_the_state_of_a_new_query_comes_from_parquet(start: Start, tmp_path: Path) -> None:
    events, storage = tmp_path / "events", tmp_path / "storage"

    def run(locations: str, **conf: str) -> str:
        arguments = ("run", "update", str(events), str(tmp_path / locations), str(tmp_path / "out"))
        start("operators.py", *arguments, storage=f"file://{storage}", conf=conf).expect_success()
        return f"file://{storage}{tmp_path / locations}/update"

    write_events(events, 0, 1)
    first = run("first")
    expected = {**{f"k{n}": (n, 100 * n) for n in range(5)}, **{f"c{n:04d}": (1, n) for n in range(2000)}}
    rows = [{"key": {"key": key}, "value": {"count": n, "sum": total}} for key, (n, total) in expected.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "totals.parquet")
    batches = ds.dataset(tmp_path / "totals.parquet").scanner(batch_size=300).to_batches()
    savepoint = write_state(first, 0, batches, mode="overwrite")

    write_events(events, 1, 2)
    second = run("second", **{"spark.ckpt.restore.path": savepoint})
    for path in sorted(events.iterdir())[1:]:
        for event in map(json.loads, path.read_text().splitlines()):
            n, total = expected[event["key"]]
            expected[event["key"]] = n + 1, total + event["value"]
    assert totals(second) == expected


def with_a_column_more(name: str, default: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What goes on without an own value has the default; of `k0` it is another one."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        key, value = batch.column("key").field(0), batch.column("value")
        fields = {field.name: value.field(number) for number, field in enumerate(value.type)}
        fields[name] = pc.cast(pc.if_else(pc.equal(key, "k0"), 1_000_000, default), pa.int64())
        made = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        return batch.set_column(batch.schema.get_field_index("value"), "value", made)

    return function


COLUMNS = {"update": ("max", None), "outer": ("value", "left-keyWithIndexToValue")}
"""What the store calls the column that the changed query has more, and the store."""


@pytest.mark.campaign
@pytest.mark.parametrize("name", COLUMNS)
def test_a_killed_query_goes_on_with_a_column_more(
    name: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is tried on an input of its own first, and killed after it has gone on, too."""
    storage, out = tmp_path / "storage", tmp_path / "out"

    def begin(query: str, locations: str, conf: Mapping[str, str], source: Path = events, to: Path = out) -> Any:
        return start("operators.py", "run", query, str(source), str(tmp_path / locations), str(to), storage=f"file://{storage}", conf=conf)

    app = begin(name, "first", {})
    app.until(lambda: len(completed(storage, tmp_path / "first" / name)) >= 3, "checkpoints", 200)
    app.kill()
    write_events(tmp_path / "little", 0, 1)
    begin(f"wider-{name}", "tried", {}, tmp_path / "little", tmp_path / "elsewhere").expect_success()
    like = f"file://{storage}{tmp_path}/tried/{name}"
    column, store = COLUMNS[name]
    before = read_state(f"file://{storage}{tmp_path}/first/{name}", store=store).to_table()
    assert before.num_rows
    savepoint = transform_state(
        f"file://{storage}{tmp_path}/first/{name}", 0, with_a_column_more(column_of(like, store, column), -1), store=store, like=like
    )
    app = begin(f"wider-{name}", "second", {"spark.ckpt.restore.path": savepoint})
    app.until(lambda: len(completed(storage, tmp_path / "second" / name)) >= 3, "checkpoints", 200)
    app.kill()
    begin(f"wider-{name}", "second", {"spark.ckpt.restore.path": savepoint}).expect_success()
    if name == "update":
        everything = {row["key"]: (row["n"], row["total"]) for row in map(json.loads, read(oracle[name]))}
        held = json.loads((out / name / "held.json").read_text())
        # The oracle leaves out what only closes windows.
        assert {key: (row["n"], row["total"]) for key, row in held.items() if key != "far"} == everything
        assert held["k0"]["most"] == 1_000_000
        assert all(0 <= row["most"] < 1000 for key, row in held.items() if key not in ("k0", "far"))
        return
    rows = [json.loads(row) for row in read(out / name).elements()]
    values = {row.pop("value", None) for row in rows}
    assert Rows(json.dumps(row, sort_keys=True) for row in rows) == read(oracle[name])
    assert values & {-1, 1_000_000}


def column_of(url: str, store: str | None, like: str) -> str:
    """Spark's name of it."""
    names = [str(field.name) for field in read_state(url, store=store).schema.field("value").type]
    return next(name for name in names if like in name)
