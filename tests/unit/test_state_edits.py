"""`transform_state` and `write_state` on stored state: what is written, what is refused, and what is left of it then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_ckpt
from spark_ckpt.errors import ConfigError, ConflictError, DamagedError, StorageError
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.operators import Matched
from spark_ckpt.protocol.start.renumbering import renumbered
from spark_ckpt.protocol.start.restoring import incomplete
from spark_ckpt.state.changelogs import Change
from spark_ckpt.state.editing import Editing
from spark_ckpt.state.entry_encoder import EntryEncoder
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.state.rows import Encoding
from spark_ckpt.state.schemas import Family, KeyForm, KeyLayout, Operator
from spark_ckpt.state.spark_types import SparkType, Struct
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.opening import opened_stream
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.command_line import call
from tests.drivers.spark.s3_server import moto, with_bucket
from tests.drivers.state_entries import entries
from tests.drivers.state_versions import StoreVersions
from tests.stored.earlier import HERE, place, totals

Batch = Any
"""A `pyarrow.RecordBatch`."""


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """An aggregation: changelogs and no full snapshot."""
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


@pytest.fixture
def state(tmp_path: Path) -> Callable[[str], str]:
    """One of the queries that Spark has left state of."""

    def put(name: str) -> str:
        shutil.copytree(HERE / "states" / name, tmp_path / name)
        return f"file://{tmp_path}/{name}"

    return put


def read(url: str) -> dict[str, tuple[int, int]]:
    rows = spark_ckpt.read_state(url).to_table().to_pylist()
    return {row["key"]["key"]: (row["value"]["count"], row["value"]["sum"]) for row in rows}


def stored(url: str) -> Checkpoint:
    with open_storage(url) as storage:
        return RestorePath.at(url).read(storage)


def source(url: str) -> Checkpoint:
    with opened_stream(url, S3Options()) as (_, reader):
        return reader.read(reader.latest())


def without(*keys: str) -> Callable[[Batch], Batch]:
    def function(batch: Batch) -> Batch:
        there = pc.is_in(pc.struct_field(batch.column("key"), 0), pa.array(keys))
        return batch.filter(pc.invert(there))

    return function


def savepoints(stream: str) -> list[Path]:
    return list(Path(stream.removeprefix("file://"), "savepoints").glob("edited-*/_metadata"))


def test_keys_are_dropped_and_only_their_partitions_are_written_anew(stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, all_of_them = source(stream), totals(6)
    partition_of = {row["key"]["key"]: row["partition_id"] for row in spark_ckpt.read_state(stream).to_table().to_pylist()}
    url = spark_ckpt.transform_state(stream, 0, without("k1"))
    assert url.startswith(f"{stream}/savepoints/edited-")
    assert read(url) == {key: value for key, value in all_of_them.items() if key != "k1"}
    assert read(stream) == all_of_them
    made = stored(url)
    for old, new in zip(before.snapshots, made.snapshots, strict=True):
        assert (old.store, old.version) == (new.store, new.version)
        assert (old.uid != new.uid) == (old.store.partition == partition_of["k1"])
        assert new.num_keys == sum(partition == new.store.partition for key, partition in partition_of.items() if key != "k1")
    assert incomplete(made) == []
    assert (made.id, made.log, made.claim, made.stream, made.job) == (before.id, before.log, before.claim, before.stream, before.job)
    status, _ = call(capsys, "verify", url, "--deep")
    assert status == 0


def test_keys_that_are_new_go_where_spark_looks_for_them(stream: str) -> None:
    """Spark has put these keys where they are, and what is taken out and put back comes there again, with the same bytes."""
    rows = spark_ckpt.read_state(stream).to_table()
    empty = spark_ckpt.transform_state(stream, 0, lambda batch: batch.slice(0, 0))
    assert read(empty) == {}
    one_by_one = [rows.slice(n, 1).drop_columns("partition_id") for n in reversed(range(rows.num_rows))]
    again = spark_ckpt.write_state(empty, 0, one_by_one)
    assert entries(again) == entries(stream)
    found = spark_ckpt.read_state(again).to_table()
    assert found.column("partition_id").equals(rows.column("partition_id"))
    assert entries(spark_ckpt.write_state(stream, 0, rows, mode="overwrite")) == entries(stream)


@pytest.mark.parametrize(("name", "store"), [("update", None), ("transform", "count"), ("transform", "parity"), ("ttl", "forever")])
def test_what_spark_has_written_is_written_with_the_same_bytes(state: Callable[[str], str], name: str, store: str | None) -> None:
    """All other families of the store too."""
    url = state(name)
    rows = spark_ckpt.read_state(url, store=store).to_table()
    empty = spark_ckpt.transform_state(url, None, lambda batch: batch.slice(0, 0), store=store)
    assert spark_ckpt.read_state(empty, store=store).to_table().num_rows == 0
    again = spark_ckpt.write_state(empty, None, rows, store=store)
    assert entries(again) == entries(url)
    assert [s.num_keys for s in stored(again).snapshots] == [s.num_keys for s in source(url).snapshots]


def test_rows_that_are_as_they_were_leave_their_stores_as_they_are(stream: str) -> None:
    url = spark_ckpt.transform_state(stream, None, lambda batch: batch.slice(0))
    assert [s.uid for s in stored(url).snapshots] == [s.uid for s in source(stream).snapshots]
    assert entries(url) == entries(stream)


def test_a_savepoint_is_changed_beside_itself(stream: str) -> None:
    first = spark_ckpt.transform_state(stream, 0, without("k0"), name="first")
    second = spark_ckpt.transform_state(first, 0, without("k1"), name="second")
    assert (first, second) == (f"{stream}/savepoints/first", f"{stream}/savepoints/second")
    assert set(read(second)) == set(totals(6)) - {"k0", "k1"}


def renamed(batch: Batch, to: str) -> Batch:
    key = pa.StructArray.from_arrays([pa.array([to] * batch.num_rows)], names=["key"])
    return pa.RecordBatch.from_arrays([key, batch.column("value")], names=["key", "value"])


def typed(batch: Batch, kind: pa.DataType) -> Batch:
    value = batch.column("value")
    wrong = pa.StructArray.from_arrays([value.field(0), pa.nulls(len(value), kind)], names=["count", "sum"])
    return batch.set_column(1, "value", wrong)


def raising(_: Batch) -> Batch:
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("function", "kind", "why"),
    [
        (lambda _: None, ConfigError, "the function returned None; let it return a batch"),
        (lambda batch: batch.to_pandas(), ConfigError, "DataFrame is no Arrow batch"),
        (lambda batch: batch.select(["key"]), ConfigError, "has the columns key, and must have key, value"),
        (lambda batch: typed(batch, pa.list_(pa.int64())), ConfigError, "does not have the state's types"),
        (lambda batch: renamed(batch, "same"), ConflictError, "are given more than once"),
        (raising, KeyError, "mine"),
    ],
)
def test_what_does_not_fit_is_named_and_leaves_no_savepoint(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, kind: type[Exception], why: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(kind, match=why):
        spark_ckpt.transform_state(stream, 0, function)
    assert savepoints(stream) == []
    assert list(tmp_path.glob(".spark-ckpt-*")) == []
    assert read(stream) == totals(6)


def test_an_operator_that_begins_takes_no_rows(stream: str) -> None:
    """The query has got an operator more; until an epoch has run there is no store that its rows could be in."""
    base = spark_ckpt.transform_state(stream, 0, lambda batch: batch, name="base")
    found = stored(base)
    planned = {
        name.replace("state/0/", "state/1/"): content.replace(b'"operatorId":0', b'"operatorId":1')
        for name, content in found.files.items()
        if name.startswith("state/0/") and isinstance(content, bytes)
    }
    changed = renumbered(found, Matched({0: 0}, (1,)), planned)
    assert changed.begins == (1,)
    metadata = Path(base.removeprefix("file://")) / "_metadata"
    metadata.chmod(0o600)
    metadata.write_bytes(encode_metadata(changed))
    rows = spark_ckpt.read_state(base, operator=0).to_table()
    for mode in ("overwrite", "append"):
        with pytest.raises(ConfigError, match=r"operator 1 \(stateStoreSave\) has no state stores yet.*Start the query once"):
            spark_ckpt.write_state(base, 1, rows, mode=mode, name="filled")
    assert not metadata.parent.with_name("filled").joinpath("_metadata").exists()


def test_rows_whose_store_is_not_there_are_not_dropped(stream: str) -> None:
    base = spark_ckpt.transform_state(stream, 0, lambda batch: batch, name="base")
    found = stored(base)
    metadata = Path(base.removeprefix("file://")) / "_metadata"
    metadata.chmod(0o600)
    metadata.write_bytes(encode_metadata(replace(found, snapshots=found.snapshots[1:])))
    with pytest.raises(DamagedError):
        spark_ckpt.write_state(base, 0, spark_ckpt.read_state(stream).to_table(), mode="overwrite", name="filled")
    assert not metadata.parent.with_name("filled").joinpath("_metadata").exists()


def test_a_row_that_moves_to_another_partition_gets_the_number_that_its_family_has_there(tmp_path: Path) -> None:
    """Each store numbers its families as it first needs them."""
    storage = open_storage(f"file://{tmp_path}/stream")
    shutil.copytree(HERE / "states" / "transform", tmp_path / "transform")
    files = {name: content for name, content in stored(f"file://{tmp_path}/transform").files.items() if name.startswith("state/")}
    numbers = [{"count": 1, "best": 2, "parity": 3}, {"best": 1, "count": 2, "parity": 3}]
    versions = [StoreVersions(storage, files, of, segment=f"run-00000001/seg/{n}-a") for n, of in enumerate(numbers)]
    selected = versions[0].checkpoint([[]], 1).select(None, "count")
    encoder = EntryEncoder(selected.operator, selected.family, Encoding(False, b""), True)

    def of(*keys: str) -> Batch:
        rows = [{"key": {selected.family.key.fields[0].name: key}, "value": some(selected.family.value)} for key in keys]
        return encoder.checked(pa.RecordBatch.from_pylist(rows, encoder.schema))

    names = [f"k{n}" for n in range(40)]
    where = dict(zip(names, encoder.partitions(of(*names), 2).tolist(), strict=True))
    mine = [[name for name in names if where[name] == partition] for partition in (0, 1)]
    snapshots = []
    for partition in (0, 1):
        entries_of = encoder.encode(of(*mine[partition][:3]), numbers[partition]["count"].to_bytes(2, "little"))
        made = versions[partition].checkpoint([[(Change.PUT, *entry) for entry in zip(*entries_of, strict=True)]], 1).checkpoint
        (one,) = made.snapshots
        snapshots.append(replace(one, uid=f"u-{partition}", store=replace(one.store, partition=partition)))
    commit = b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [["u-0"], ["u-1"]]}}).encode()
    state = StateOfCheckpoint(storage, replace(made, snapshots=tuple(snapshots), files={**made.files, "commits/1": commit}))

    def exchanged(batch: Batch) -> Any:
        """The first row of each partition goes to the other one."""
        other = mine[1 - batch.column("partition_id")[0].as_py()][-1]
        return pa.concat_tables([pa.table(of(other)), pa.table(encoder.checked(batch.slice(1)))])

    target = open_storage(f"file://{tmp_path}/made")
    made = Editing(storage, state, selected, target).transform(exchanged)
    out = StateOfCheckpoint(target, made)

    def there(variable: str) -> set[tuple[str, int]]:
        batches = out.batches(out.select(None, variable), None, 1)
        return {(next(iter(row["key"].values())), row["partition_id"]) for batch in batches for row in batch.to_pylist()}

    assert there("count") == {(name, partition) for partition in (0, 1) for name in (*mine[partition][1:3], mine[partition][-1])}
    assert there("best") == there("parity") == set()


def some(spark: SparkType) -> Any:
    return {field.name: some(field.type) for field in spark.fields} if isinstance(spark, Struct) else 5


def test_a_key_that_is_there_already_is_refused(stream: str) -> None:
    with pytest.raises(ConflictError, match="are given more than once"):
        spark_ckpt.write_state(stream, 0, spark_ckpt.read_state(stream).to_table())
    assert savepoints(stream) == []


@pytest.mark.parametrize(
    ("name", "store", "why"),
    [
        ("ttl", "timers", "Spark keeps .* in two indexes, which have to agree; drop_keys"),
        ("outer", "left-keyToNumValues", "the other stores of a join count the rows of left-keyWithIndexToValue"),
    ],
)
def test_state_that_is_only_read_is_refused(state: Callable[[str], str], name: str, store: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        spark_ckpt.transform_state(state(name), None, lambda batch: batch, store=store)


VALUES = [
    ("ttl", "count", "value", ("value", "n")),
    ("ttl", "best", "list_element", ("value", "value")),
    ("ttl", "parity", "user_map_value", ("value", "n")),
    ("transform", "best", "list_element", ("value",)),
    ("outer", "left-keyWithIndexToValue", "value", ("lid",)),
]
"""Query, store, column, and the field of it that is changed."""


def with_field(column: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """A struct array with one of its fields changed."""
    at = column.type.get_field_index(path[0])
    fields = [column.field(n) for n in range(column.type.num_fields)]
    fields[at] = with_field(fields[at], path[1:], change) if path[1:] else change(fields[at])
    return pa.StructArray.from_arrays(fields, names=[field.name for field in column.type])


@pytest.mark.parametrize(("name", "store", "column", "path"), VALUES)
def test_values_can_be_other_ones_where_keys_have_to_stay(
    state: Callable[[str], str], name: str, store: str, column: str, path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    url = state(name)

    def more(by: int) -> Callable[[Batch], Batch]:
        def function(batch: Batch) -> Batch:
            at = batch.schema.get_field_index(column)
            changed = with_field(batch.column(at), path, lambda numbers: pc.cast(pc.add(numbers, by), numbers.type))
            return batch.set_column(at, column, changed)

        return function

    before = spark_ckpt.read_state(url, store=store).to_table()
    made = spark_ckpt.transform_state(url, None, more(7), store=store, name="more")
    after = spark_ckpt.read_state(made, store=store).to_table()
    assert after.equals(pa.Table.from_batches([more(7)(batch) for batch in before.to_batches()]).cast(before.schema))
    assert not after.equals(before)
    assert call(capsys, "verify", made, "--deep")[0] == 0
    assert entries(spark_ckpt.transform_state(made, None, more(-7), store=store)) == entries(url)


@pytest.mark.parametrize(("name", "store", "column", "path"), VALUES)
def test_keys_that_have_to_stay_stay(state: Callable[[str], str], name: str, store: str, column: str, path: tuple[str, ...]) -> None:
    url = state(name)
    for function in (lambda batch: batch.slice(1), lambda batch: batch.take(list(reversed(range(batch.num_rows))))):
        with pytest.raises(ConfigError, match=r"return the same rows in the same order, with other values, or use drop_keys"):
            spark_ckpt.transform_state(url, None, function, store=store)
    with pytest.raises(ConfigError, match="no rows can be put into"):
        spark_ckpt.write_state(url, None, spark_ckpt.read_state(url, store=store), store=store)


def test_the_time_at_which_state_expires_stays(state: Callable[[str], str]) -> None:
    def later(batch: Batch) -> Batch:
        return batch.set_column(1, "value", with_field(batch.column(1), ("ttlExpirationMs",), lambda at: pc.add(at, 1)))

    with pytest.raises(ConfigError, match="has a time to live, so that keys and ttlExpirationMs have to stay"):
        spark_ckpt.transform_state(state("ttl"), None, later, store="count")


@pytest.mark.parametrize("name", ["update", "outer", "sessions", "transform", "ttl"])
def test_all_that_is_kept_of_a_key_is_dropped(state: Callable[[str], str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In joins, state variables, timers and indexes: a key is among the bytes of all that belongs to it."""
    url = state(name)
    asked: list[str] = []

    def which(keys: Batch) -> Any:
        asked.extend(keys.schema.names)
        return pc.equal(keys.column(0), "k1")

    made = spark_ckpt.drop_keys(url, None, which, name="without")
    before, after = entries(url), entries(made)
    assert set(asked) == ({"field0"} if name == "outer" else {"key"})
    gone = {family: [one for one in there if b"k1\0" in one[0]] for family, there in before.items()}
    assert all(gone.values())
    assert {family: after.get(family, []) for family in before} == {
        family: [one for one in there if one not in gone[family]] for family, there in before.items()
    }
    assert [call(capsys, "verify", made, "--deep")[0], incomplete(stored(made))] == [0, []]
    own = {family for family in before if family[2].startswith("$")}
    counted = sum(s.num_keys or 0 for s in source(url).snapshots) - sum(len(n) for family, n in gone.items() if family not in own)
    assert sum(s.num_keys or 0 for s in stored(made).snapshots) == counted


@pytest.mark.parametrize("answer", [lambda _: None, lambda keys: [True] * keys.num_rows, lambda _: pa.array([True])])
def test_an_answer_that_is_none_is_named(stream: str, answer: Any) -> None:
    with pytest.raises(ConfigError, match="let it return an Arrow array of one boolean for each row"):
        spark_ckpt.drop_keys(stream, 0, answer)
    assert savepoints(stream) == []


def test_avro_is_only_read() -> None:
    family = Family("default", Struct(), Struct(), KeyLayout(KeyForm.PLAIN))
    with pytest.raises(ConfigError, match="is written as Avro"):
        EntryEncoder(Operator(0, "stateStoreSave", ()), family, Encoding(True, b""), False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"operator": "0"}, "operator is '0', and must be a whole number"),
        ({"name": "../x"}, "cannot be the name of a savepoint"),
        ({"target": "nowhere"}, "target 'nowhere' cannot be used"),
        ({"store": "other"}, "has no store 'other'"),
        ({"mode": "replace"}, "write append or overwrite"),
        ({"data": 7}, "int is no Arrow data"),
    ],
)
def test_arguments_that_cannot_be(stream: str, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        spark_ckpt.write_state(stream, **{"operator": 0, "data": [], **arguments})


def test_a_name_that_is_taken_is_refused(stream: str) -> None:
    spark_ckpt.transform_state(stream, 0, without("k0"), name="mine")
    with pytest.raises(ConflictError, match=r"there is a savepoint at .*mine already"):
        spark_ckpt.transform_state(stream, 0, without("k1"), name="mine")
    assert "k1" in read(f"{stream}/savepoints/mine")


def test_a_full_disk_is_told_as_that(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spark_ckpt.state.store_files.zipfile.ZipFile", full)
    with pytest.raises(StorageError, match=r"No space left on device.*set TMPDIR"):
        spark_ckpt.transform_state(stream, 0, without("k0"))
    assert savepoints(stream) == []


def test_a_storage_that_ends_in_the_middle_leaves_no_savepoint(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise StorageError("it is away")

    monkeypatch.setattr("spark_ckpt.state.saving.import_objects", cut)
    with pytest.raises(StorageError, match="it is away"):
        spark_ckpt.transform_state(stream, 0, without("k0"))
    assert savepoints(stream) == []


@pytest.mark.parametrize(
    ("folder", "name"), [("run-00000001", "mine"), ("run-00000001", "chk-99"), ("run-00000001/savepoints", "mine"), ("", "run-00000001")]
)
def test_no_savepoint_is_made_where_gc_takes_it_for_garbage(
    stream: str, folder: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{stream}/{folder}".rstrip("/")
    with pytest.raises(ConfigError, match=r"is the name of a run's folder or of a checkpoint's; choose another name or target"):
        spark_ckpt.transform_state(stream, 0, without("k0"), target=target, name=name)
    status, told = call(capsys, "rescale", stream, "--partitions", "3", "--target", target, "--name", name)
    assert status == 2, told
    assert not Path(stream.removeprefix("file://"), folder, name, "_metadata").exists()


@pytest.mark.parametrize("run", ["run-20261127", "run-00000001"])
def test_no_savepoint_is_made_in_a_run_of_another_stream(stream: str, tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is only called like a run's is as good as any."""
    base = spark_ckpt.transform_state(stream, 0, without("k0"), target=f"{tmp_path}/{run}", name="base")
    assert read(base)
    place("1", tmp_path / "other")
    target = f"{tmp_path}/other/{run}/mine"
    with pytest.raises(ConfigError, match=rf"lies in the folder of a run of the stream at file://{tmp_path}/other: `spark-ckpt gc`"):
        spark_ckpt.transform_state(base, 0, without("k1"), target=target)
    for verb in (["rescale", base, "--partitions", "3", "--target", target], ["export", base, target]):
        status, told = call(capsys, *verb)
        assert (status, "choose another place" in json.dumps(told)) == (2, True), told
    assert not Path(target).exists()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_are_not_added_to_state_that_is_not_where_the_hash_says(stream: str, mode: str) -> None:
    """Spark looks for rows where the query partitions them. Before Spark 3.3 that could be by some of the keys."""
    base = spark_ckpt.transform_state(stream, 0, lambda batch: batch, name="base")
    found = stored(base)
    of = {0: 1, 1: 0}
    exchanged = [replace(one, store=replace(one.store, partition=of[one.store.partition])) for one in reversed(found.snapshots)]
    metadata = Path(base.removeprefix("file://")) / "_metadata"
    metadata.chmod(0o600)
    metadata.write_bytes(encode_metadata(replace(found, snapshots=tuple(exchanged))))
    rows = spark_ckpt.read_state(base).to_table().drop_columns("partition_id")
    with pytest.raises(ConflictError, match="are not where Spark's hash of their keys says"):
        spark_ckpt.write_state(base, 0, rows, mode=mode, name="filled")
    assert not metadata.parent.with_name("filled").joinpath("_metadata").exists()
    spark_ckpt.transform_state(base, 0, without("k0"), name="less")


def test_a_savepoint_whose_answer_was_lost_is_its_own(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put of `_metadata` is stored, its answer is lost, and it is sent again."""
    with moto() as url, with_bucket(url, "lost") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        server.proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT \S*/_metadata"))
        target = f"s3://{server.bucket}/kept"
        made = spark_ckpt.transform_state(stream, 0, without("k1"), target=target, name="lost", conf=server.conf)
        assert sum(line.startswith("PUT") and "/_metadata" in line for line in server.proxy.requests) > 1
        assert spark_ckpt.read_state(made, conf=server.conf).to_table().num_rows == len(read(stream)) - 1


def test_another_savepoint_that_was_made_meanwhile_is_left_alone(stream: str) -> None:
    """Somebody makes one of the same name while the function runs."""

    def slow(batch: Batch) -> Batch:
        with suppress(ConflictError):
            spark_ckpt.transform_state(stream, 0, lambda other: other, name="one")
        return batch.slice(0, 1)

    with pytest.raises(ConflictError, match="which somebody has just made; choose another name"):
        spark_ckpt.transform_state(stream, 0, slow, name="one")
    assert read(f"{stream}/savepoints/one") == read(stream)
