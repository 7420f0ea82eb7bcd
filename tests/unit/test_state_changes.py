"""The change feed: what it says between two checkpoints is what two full reads differ in, whichever way it was found."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_ckpt
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError
from spark_ckpt.model import CheckpointId, Content
from spark_ckpt.protocol.entries import Restored
from spark_ckpt.state import changes as changes_module
from spark_ckpt.state import contents
from spark_ckpt.state.changelogs import Change, Record
from spark_ckpt.state.changes import Changes, Counts, later_changelogs
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.state.schemas import Family, read_operators
from spark_ckpt.state.spark_types import Atomic, Field, SparkType, Struct
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.avro_states import evolved, schema, schema_file
from tests.drivers.command_line import call
from tests.drivers.planned_operators import a_count, a_deduplication, a_total
from tests.drivers.state_differences import checked_changes, rows
from tests.drivers.state_versions import StoreVersions
from tests.drivers.stored_stream import flip
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import HERE, place, totals


@dataclass(frozen=True)
class Kind:
    """A store or state variable of a query in `tests/stored/states`."""

    query: str
    store: str
    variable: str

    def files(self) -> Mapping[str, Content]:
        storage = open_storage(f"file://{HERE}/states/{self.query}")
        found = RestorePath.at(storage.url).read(storage).files
        return {name: content for name, content in found.items() if name.startswith("state/")}


KINDS = [
    Kind("update", "default", "default"),
    Kind("sessions", "default", "default"),
    Kind("outer", "left-keyToNumValues", "left-keyToNumValues"),
    Kind("outer", "right-keyWithIndexToValue", "right-keyWithIndexToValue"),
    Kind("transform", "default", "count"),
    Kind("transform", "default", "best"),
    Kind("transform", "default", "parity"),
    Kind("ttl", "default", "best"),
    Kind("ttl", "default", "timers"),
    Kind("ttl", "default", "$procTimers_timestampToKey"),
]


ORDERED = Struct((Field("t", Atomic("binary")),))


def some(spark: SparkType, number: int) -> Any:
    """A value of any type that these stores have; other numbers give other ones."""
    if isinstance(spark, Struct):
        return [some(field.type, number + n) for n, field in enumerate(spark.fields)]
    assert isinstance(spark, Atomic)
    known = {"string": "x" * number, "boolean": number % 2 == 1, "binary": bytes(number), "double": float(number), "void": None}
    return known.get(spark.name, number)


def encoded(family: Family, prefix: bytes, key: int, value: int) -> tuple[bytes, bytes]:
    fields = some(family.key, key)
    front = family.layout.prefix or len(family.layout.ordered)
    if family.layout.ordered:
        time = b"\1" + key.to_bytes(8, "big")
        first = b"\0" + row(ORDERED, [time])
    else:
        first = b"\0" + row(Struct(family.key.fields[:front]), fields[:front])
    plain = b"\0" + row(Struct(family.key.fields[front:]), fields[front:])
    packed = len(first).to_bytes(4, "little") + first + plain if front else plain
    found = b"\0" + row(family.value, some(family.value, value))
    return prefix + packed, (len(found).to_bytes(4, "little") + found if family.is_list else found)


OPERATIONS = st.tuples(st.sampled_from([Change.PUT, Change.PUT, Change.DELETE, Change.MERGE]), st.integers(0, 5), st.integers(0, 2))
VERSIONS = st.lists(st.lists(OPERATIONS, max_size=6), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.query}-{kind.variable}")
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_it_is_what_two_reads_differ_in(kind: Kind, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    files = kind.files()
    (operator,) = read_operators({name: content for name, content in files.items() if isinstance(content, bytes)})
    store = next(store for store in operator.stores if store.name == kind.store)
    families = {family.name: number for number, family in enumerate(store.families, 1)} if store.has_families else {}
    versions = StoreVersions(open_storage(f"file://{tmp_path_factory.mktemp('stream')}"), files, families, kind.store)

    selected = versions.checkpoint([[]], 1).select(0, kind.variable)
    prefix = families[selected.family.name].to_bytes(2, "little") if families else b""
    drawn: list[list[Record]] = []
    for operations in data.draw(VERSIONS):
        drawn.append([])
        for change, key, value in operations:
            merged = Change.PUT if change is Change.MERGE and not selected.family.is_list else change
            name, content = encoded(selected.family, prefix, key, value)
            drawn[-1].append((merged, name, b"" if change is Change.DELETE else content))
            if families:  # of another state variable
                drawn[-1].append((Change.PUT, b"\x7f\0" + bytes([key]), bytes([value])))
    since = data.draw(st.integers(1, len(drawn)))
    least = 1 if families else 0
    old_full = data.draw(st.integers(least, since))
    new_full = data.draw(st.sampled_from([old_full, data.draw(st.integers(least, len(drawn)))]))
    before = versions.checkpoint(drawn[:since], old_full)
    after = versions.checkpoint(drawn, new_full)

    assert_is_difference(before, after, kind.variable)


def assert_is_difference(before: StateOfCheckpoint, after: StateOfCheckpoint, name: str) -> None:
    found, types = checked_changes(before, after, 0, name)
    counts = Changes(before, after, after.select(0, name)).count(1)
    assert counts == Counts(types.count("insert"), types.count("update_postimage"), types.count("delete"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_module, "later_changelogs", lambda *_: None)
        patch.setattr(changes_module, "BATCH_BYTES", 1)
        assert checked_changes(before, after, 0, name) == (found, types)


def aggregation(tmp_path: Path) -> tuple[StoreVersions, Family]:
    files = KINDS[0].files()
    versions = StoreVersions(open_storage(f"file://{tmp_path}/versions"), files, {})
    return versions, versions.checkpoint([[]], 1).select(0, None).family


def puts(family: Family, *entries: tuple[int, int]) -> Sequence[Record]:
    return [(Change.PUT, *encoded(family, b"", key, value)) for key, value in entries]


def test_only_changelogs_behind_the_older_version_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two versions with one full snapshot no store is gone through."""
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1), (2, 2)), puts(family, (3, 3)), puts(family, (2, 5), (4, 4), (1, 1))]
    before, after = versions.checkpoint(told[:2], 1), versions.checkpoint(told, 1)
    later = later_changelogs(before.checkpoint.snapshots[0], after.checkpoint.snapshots[0])
    assert [handle.name for handle in later or ()] == ["3_u3.changelog"]
    monkeypatch.setattr(contents.Contents, "batches", None)
    found = rows(Changes(before, after, after.select(0, None)).batches(None, 1))
    assert [(one["key"]["key"], one["value"]["count"], one["_change_type"]) for one in found] == [
        ("xx", 2, "update_preimage"),
        ("xx", 5, "update_postimage"),
        ("xxxx", 4, "insert"),
    ]


def test_the_same_version_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions, family = aggregation(tmp_path)
    state = versions.checkpoint([puts(family, (1, 1))], 1)
    monkeypatch.setattr(StateOfCheckpoint, "contents", None)
    assert rows(Changes(state, state, state.select(0, None)).batches(None, 1)) == []


def test_a_newer_full_snapshot_hides_what_was_between(tmp_path: Path) -> None:
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1)), puts(family, (2, 2)), [(Change.DELETE, encoded(family, b"", 1, 0)[0], b"")]]
    before, after = versions.checkpoint(told[:1], 0), versions.checkpoint(told, 3)
    assert later_changelogs(before.checkpoint.snapshots[0], after.checkpoint.snapshots[0]) is None
    assert_is_difference(before, after, "default")
    assert_is_difference(versions.checkpoint(told[:1], 1), versions.checkpoint(told, 1), "default")


# --- of a stream


@pytest.fixture
def stream(tmp_path: Path) -> str:
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


def test_between_any_two_checkpoints_of_a_stream(stream: str) -> None:
    names = {"run-1/chk-3": 4, "run-1/chk-4": 5, f"{stream}/savepoints/kept": 5, f"{stream}/run-00000001/chk-3/": 4}
    for since, files in names.items():
        then, now = totals(files), totals(6)
        of: dict[str, dict[str, tuple[int, int]]] = {kind: {} for kind in ("insert", "update_preimage", "update_postimage", "delete")}
        for one in spark_ckpt.read_state(stream, since=since).to_table().to_pylist():
            of[one["_change_type"]][one["key"]["key"]] = (one["value"]["count"], one["value"]["sum"])
        changed = {key for key in then if then[key] != now[key]}
        assert of["update_preimage"] == {key: then[key] for key in changed}
        assert of["update_postimage"] == {key: now[key] for key in changed}
        assert not of["insert"]
        assert not of["delete"]
    assert spark_ckpt.read_state(stream, since="run-2/chk-5").to_table().num_rows == 0
    assert spark_ckpt.read_state(stream, partitions=[0], since="run-1/chk-3").to_table().num_rows == 6
    state = spark_ckpt.read_state(f"{stream}/savepoints/kept", since=Path(stream.removeprefix("file://")) / "run-00000001" / "chk-3")
    assert pa.table(state).num_rows == len(state.to_pandas()) > 0


@pytest.mark.parametrize(("since", "error", "said"), [
    ("run-1/chk-9", ObjectMissingError, "no checkpoint or savepoint at .*run-00000001/chk-9"),
    ("latest", ConfigError, "since names no checkpoint .*; write run-3/chk-42, or the URL"),
    (3, ConfigError, "since is 3, and must be text"),
    ("s3://key:secret/x", ConfigError, "since names no checkpoint"),
])
def test_a_checkpoint_that_there_is_not(stream: str, since: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as e:
        spark_ckpt.read_state(stream, since=since)
    assert "secret" not in str(e.value)


def test_what_cannot_be_compared_is_named(stream: str) -> None:
    with pytest.raises(ConfigError, match="run-2/chk-5 comes after run-1/chk-4; let since be the older one"):
        spark_ckpt.read_state(stream, checkpoint="run-1/chk-4", since="run-2/chk-5")
    with pytest.raises(ConfigError, match="operator 0, stateStoreSave at run-2/chk-5, was symmetricHashJoin at run-1/chk-"):
        spark_ckpt.read_state(stream, since=f"file://{HERE}/states/outer")


def test_damage_is_named_with_its_store(stream: str) -> None:
    storage = open_storage(stream)
    newest = StreamReader(storage).read(CheckpointId(2, 5))
    flip(storage, newest.snapshots[1].handles[-1].object, newest.snapshots[1].handles[-1].offset + 30)
    with pytest.raises(DamagedError, match=r"run-2/chk-5: operator 0, partition 1, store default: .*CRC-32"):
        spark_ckpt.read_state(stream, since="run-1/chk-3").to_table()


def test_the_command_counts_changes_and_writes_them(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "state", stream, "--since", "run-1/chk-4")
    assert (status, doc["since"], doc["checkpoint"]) == (0, "run-1/chk-4", "run-2/chk-5")
    (store,) = doc["stores"]
    assert store == {"operator": 0, "kind": "stateStoreSave", "store": "default", "inserted": 0, "updated": 4, "deleted": 0}
    target = tmp_path / "changes.parquet"
    status, doc = call(capsys, "state", stream, "--since", str(tmp_path / "stream" / "savepoints" / "kept"), "--to", str(target))
    assert (status, doc["rows"], doc["since"]) == (0, 8, "run-1/chk-4")
    assert pq.read_table(target).column("_change_type").to_pylist() == ["update_preimage", "update_postimage"] * 4
    assert run(["state", stream, "--since", "run-1/chk-4"]) == 0
    assert "OPERATOR  KIND            STORE    INSERTED  UPDATED  DELETED" in capsys.readouterr().out
    assert run(["state", stream, "--since", "run-1/chk-4", "--deep"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
    assert run(["state", stream, "--since", "run-2/chk-9"]) == 1


def test_more_than_memory_takes_is_read_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1), (2, 2)), puts(family, (2, 5)), [(Change.DELETE, encoded(family, b"", 1, 0)[0], b"")]]
    before, after = versions.checkpoint(told[:1], 1), versions.checkpoint(told, 1)
    monkeypatch.setattr(contents, "SPILL_BYTES", 1)
    assert_is_difference(before, after, "default")


# --- what the two have not in common


def test_values_of_an_older_avro_schema_have_nulls(tmp_path: Path) -> None:
    older = {"0_a": schema_file(0, schema(("n", "long")))}
    newer = {**older, "5_b": schema_file(1, schema(("n", "long"), ("name", "string")))}
    before = evolved(older, tmp_path / "before", [b"\0\0\0\2\x0e", b"\0\0\0\2\x0e", b"\0\0\0\2\x0e"])
    after = evolved(newer, tmp_path / "after", [b"\0\0\0\2\x0e", b"\0\1\0\2\x10\2\4ab"], epoch=2)
    found = rows(Changes(before, after, after.select(0, "count")).batches(None, 1))
    assert [(one["key"]["key"], one["value"]["n"], one["value"]["name"], one["_change_type"]) for one in found] == [
        ("B", 7, None, "update_preimage"),
        ("B", 8, "ab", "update_postimage"),
        ("C", 7, None, "delete"),
    ]


def test_a_state_variable_that_is_new_is_inserted_as_a_whole(tmp_path: Path) -> None:
    files = KINDS[4].files()
    old, new = (open_storage(f"file://{tmp_path}/{name}") for name in ("old", "new"))
    (operator,) = read_operators({name: content for name, content in files.items() if isinstance(content, bytes)})
    count = next(family for family in operator.stores[0].families if family.name == "count")
    records = [(Change.PUT, *encoded(count, b"\3\0", number, number)) for number in (1, 2)]
    before = StoreVersions(old, files, {"best": 1}).checkpoint([[]], 1)
    after = StoreVersions(new, files, {"best": 1, "count": 3}).checkpoint([[], records], 2)
    assert_is_difference(before, after, "count")
    assert Changes(before, after, after.select(0, "count")).count(1) == Counts(2, 0, 0)


def test_other_columns_and_other_partitions_are_refused(tmp_path: Path) -> None:
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1))]
    after = versions.checkpoint([*told, []], 1)
    schema_name = "state/0/0/_metadata/schema"
    content = KINDS[0].files()[schema_name]
    assert isinstance(content, bytes)
    assert b'"count","type":"long"' in content
    other = {**KINDS[0].files(), schema_name: content.replace(b'"count","type":"long"', b'"count","type":"date"')}
    before = StoreVersions(open_storage(f"file://{tmp_path}/other"), other, {}).checkpoint(told, 1)
    with pytest.raises(ConfigError, match=r"columns of store default were others at run-1/chk-1 .*count:date.* than at run-1/chk-2"):
        Changes(before, after, after.select(0, None))
    renamed = {**KINDS[0].files(), schema_name: content.replace(b'"count"', b'"Count"')}
    before = StoreVersions(open_storage(f"file://{tmp_path}/renamed"), renamed, {}).checkpoint(told, 1)
    with pytest.raises(ConfigError, match=r"columns of store default were others at run-1/chk-1 .*Count:bigint"):
        Changes(before, after, after.select(0, None))

    whole = versions.checkpoint(told, 1).checkpoint
    (one,) = whole.snapshots
    two = replace(whole, snapshots=(one, replace(one, store=replace(one.store, partition=1))))
    before = StateOfCheckpoint(after.storage, two)
    with pytest.raises(ConfigError, match="store default had 2 partitions at run-1/chk-1 and has 1 at run-1/chk-2; read both"):
        Changes(before, after, after.select(0, None))


def test_what_a_function_has_changed_is_seen_before_the_query_starts(stream: str) -> None:
    def without_k1_and_k3_as_0(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = [one for one in batch.to_pylist() if one["key"]["key"] != "k1"]
        changed = [one | {"value": {"count": 0, "sum": 0}} if one["key"]["key"] == "k3" else one for one in kept]
        return pa.RecordBatch.from_pylist(changed, schema=batch.schema)

    savepoint = spark_ckpt.transform_state(stream, 0, without_k1_and_k3_as_0)
    found = spark_ckpt.read_state(savepoint, since=f"{stream}/run-00000002/chk-5").to_table().to_pylist()
    now = totals(6)
    assert sorted((one["key"]["key"], one["_change_type"], one["value"]["count"]) for one in found) == [
        ("k1", "delete", now["k1"][0]),
        ("k3", "update_postimage", 0),
        ("k3", "update_preimage", now["k3"][0]),
    ]


def versions_of(tmp_path: Path, name: str, *operators: Mapping[str, bytes]) -> StateOfCheckpoint:
    """A query with these operators."""
    files = {path: content for operator in operators for path, content in operator.items()}
    return StoreVersions(open_storage(f"file://{tmp_path}/{name}"), files, {}).checkpoint([[]], 1)


def test_another_operator_of_the_same_types_is_refused(tmp_path: Path) -> None:
    """The query has got one more in front, or two of its operators have changed places: numbers and types say nothing of it."""
    before = versions_of(tmp_path, "before", a_total(0, "user"))
    for after in (
        versions_of(tmp_path, "front", a_total(0, "country"), a_total(1, "user")),
        versions_of(tmp_path, "other", a_count(0, "user")),
    ):
        with pytest.raises(ConfigError, match="the columns of store default were others at run-1/chk-1"):
            Changes(before, after, after.select(0, None))
    before = versions_of(tmp_path, "ids", a_deduplication(0, "id"))
    after = versions_of(tmp_path, "twice", a_deduplication(0, "id"), a_deduplication(1, "id"))
    with pytest.raises(ConfigError, match=r"operator 0 \(dedupe\) is one of several .* not known which goes on from which"):
        Changes(before, after, after.select(0, None))
    more = versions_of(tmp_path, "more", a_deduplication(0, "id"), a_total(1, "user"))
    Changes(before, more, more.select(0, None))


def of_stream(state: StateOfCheckpoint, name: str, query: str, run: int) -> StateOfCheckpoint:
    found = state.checkpoint
    return StateOfCheckpoint(state.storage, replace(found, id=CheckpointId(run, found.id.epoch), stream=name, query_id=query))


def test_another_stream_is_told_as_that(tmp_path: Path) -> None:
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1)), puts(family, (2, 2))]
    savepoint = of_stream(versions.checkpoint(told[:1], 1), "old", "query", 3)
    for after in (
        of_stream(versions.checkpoint(told, 2), "new", "query", 1),
        of_stream(versions.checkpoint(told, 2), "new", "another", 4),
        of_stream(versions.checkpoint(told, 2), "", "another", 4),
    ):
        with pytest.raises(ConfigError, match=r"run-3/chk-1 of another stream \(query query\), and it is not known that run-.* goes on"):
            Changes(savepoint, after, after.select(0, None))
    same = of_stream(versions.checkpoint(told, 2), "", "query", 3)
    assert Changes(savepoint, same, same.select(0, None)).count(1) == Counts(1, 0, 0)


def test_another_stream_that_goes_on_from_it_is_compared(tmp_path: Path) -> None:
    """A new stream begins with run 1 again; its changelogs stand on the very version that the savepoint has."""
    versions, family = aggregation(tmp_path)
    told = [puts(family, (1, 1)), puts(family, (2, 2))]
    savepoint = of_stream(versions.checkpoint(told[:1], 0), "old", "query", 3)
    after = of_stream(versions.checkpoint(told, 0), "new", "another", 1)
    assert checked_changes(savepoint, after, 0, "default")[1] == ["insert"]
    assert Changes(savepoint, after, after.select(0, None)).count(1) == Counts(1, 0, 0)
    with pytest.raises(ConfigError, match="of another stream"):
        Changes(after, savepoint, savepoint.select(0, None))


def test_what_the_stream_was_restored_from_is_compared(stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has become of its stores: the log says so."""
    place, reader = f"file://{tmp_path}/elsewhere", StreamReader(open_storage(stream))
    shutil.copytree(Path(stream.removeprefix("file://"), "savepoints", "kept"), tmp_path / "elsewhere")
    metadata = tmp_path / "elsewhere" / "_metadata"
    found = RestorePath.at(place).read(open_storage(place))
    metadata.chmod(0o600)
    metadata.write_bytes(encode_metadata(replace(found, stream="other", query_id="other", id=CheckpointId(7, found.id.epoch))))
    expected = spark_ckpt.read_state(stream, since=f"{stream}/savepoints/kept").to_table()
    assert expected.num_rows
    monkeypatch.setattr(changes_module, "later_changelogs", lambda *_: None)
    standing = reader.standing()
    assert standing is not None

    def restored(path: str, epoch: int) -> None:
        claim = replace(standing.claim, restored=Restored(path, CheckpointId(1, epoch)))
        monkeypatch.setattr(StreamReader, "standing", lambda *_: replace(standing, claim=claim))

    for path, epoch in ((place + "-2", 4), (place, 3)):
        restored(path, epoch)
        with pytest.raises(ConfigError, match=r"since names run-7/chk-4 of another stream \(query other\)"):
            spark_ckpt.read_state(stream, since=place)
    restored(place, 4)
    assert spark_ckpt.read_state(stream, since=place).to_table().equals(expected)
