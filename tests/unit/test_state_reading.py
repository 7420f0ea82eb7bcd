"""`read_state` and `spark-ckpt state` over a stored stream: right, or a sentence, and nothing written half."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_ckpt
from spark_ckpt.cli.main import run
from spark_ckpt.errors import ConfigError, DamagedError, ObjectMissingError
from spark_ckpt.model import Checkpoint, CheckpointId, HandleKind
from spark_ckpt.paths import metadata_key
from spark_ckpt.state import reading
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.command_line import call
from tests.drivers.spark.inputs import write_events
from tests.drivers.stored_stream import flip
from tests.stored.earlier import HERE, place, totals


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """An aggregation: changelogs and no full snapshot."""
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


@pytest.fixture
def change(stream: str) -> Callable[[Callable[[Checkpoint], Checkpoint]], None]:
    """Puts another `_metadata` in the place of the latest."""
    newest = CheckpointId(2, 5)

    def put(changed: Callable[[Checkpoint], Checkpoint]) -> None:
        storage = open_storage(stream)
        storage.put(metadata_key(newest), encode_metadata(changed(StreamReader(storage).read(newest))))

    return put


def with_file(name: str, old: bytes, new: bytes) -> Callable[[Checkpoint], Checkpoint]:
    def changed(checkpoint: Checkpoint) -> Checkpoint:
        content = checkpoint.file(name)
        assert content is not None
        assert old in content
        return replace(checkpoint, files={**checkpoint.files, name: content.replace(old, new)})

    return changed


def read(url: str, **how: object) -> dict[str, tuple[int, int]]:
    rows = spark_ckpt.read_state(url, **how).to_table().to_pylist()  # type: ignore[arg-type]
    return {row["key"]["key"]: (row["value"]["count"], row["value"]["sum"]) for row in rows}


def test_the_latest_an_earlier_checkpoint_and_a_savepoint(stream: str) -> None:
    assert read(stream) == totals(6)
    assert read(stream, checkpoint="run-1/chk-3") == totals(4)
    assert read(f"{stream}/run-00000001/chk-4") == totals(5)
    assert read(f"{stream}/savepoints/kept") == totals(5)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Of each key in the input of the queries in `tests/stored/states`, in the order in which they came."""
    folder = tmp_path_factory.mktemp("input") / "events"
    write_events(folder, 0, 4)
    found: dict[str, list[int]] = {}
    for path in sorted(folder.iterdir()):
        for event in map(json.loads, path.read_text().splitlines()):
            found.setdefault(event["key"], []).append(event["value"])
    return found


def entries(query: str, store: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spark_ckpt.read_state(f"file://{HERE}/states/{query}", store=store).to_table().to_pylist()
    return found


def by_key(query: str, store: str, column: str = "value") -> dict[str, Any]:
    rows = entries(query, store)
    assert len({row["key"]["key"] for row in rows}) == len(rows)
    return {row["key"]["key"]: row[column] for row in rows}


def lists(query: str, store: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in entries(query, store):
        found.setdefault(row["key"]["key"], []).append(row["list_element"])
    return found


def test_changelogs_over_a_full_snapshot(values: dict[str, list[int]]) -> None:
    assert by_key("update", "default") == {key: {"count": len(came), "sum": sum(came)} for key, came in values.items()}


def test_state_variables(values: dict[str, list[int]]) -> None:
    assert by_key("transform", "count") == {key: {"n": len(came), "total": sum(came)} for key, came in values.items()}
    assert lists("transform", "best") == {key: [{"value": value} for value in sorted(came)[-3:]] for key, came in values.items()}
    parity = {(row["key"]["key"], row["user_map_key"]["odd"]): row["user_map_value"]["n"] for row in entries("transform", "parity")}
    odd = {key: sum(value % 2 for value in came) for key, came in values.items()}
    assert parity == {(key, is_odd): odd[key] if is_odd else len(values[key]) - odd[key] for key in values for is_odd in (True, False)}


def test_state_with_a_time_to_live(values: dict[str, list[int]]) -> None:
    """The list was appended to: its values are RocksDB's merge operands."""
    count = by_key("ttl", "count")
    assert {key: value["value"] for key, value in count.items()} == {key: {"n": len(came), "name": key} for key, came in values.items()}
    assert all(value["ttlExpirationMs"] > 1_800_000_000_000 for value in count.values())
    best = lists("ttl", "best")
    assert {key: sorted(one["value"]["value"] for one in found) for key, found in best.items()} == {k: sorted(v) for k, v in values.items()}
    assert by_key("ttl", "forever") == {key: {"n": len(came)} for key, came in values.items()}


def test_timers(values: dict[str, list[int]]) -> None:
    timers = entries("ttl", "timers")
    assert {row["key"]["key"] for row in timers} == values.keys()
    indexed = entries("ttl", "$procTimers_timestampToKey")
    assert sorted((row["key"]["key"]["key"], row["key"]["expiryTimestampMs"]) for row in indexed) == sorted(
        (row["key"]["key"], row["expiration_timestamp_ms"]) for row in timers
    )
    assert {name for name, row in by_key("ttl", "$count_best").items() if row["count"] == len(values[name])} == values.keys()


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".arrow") for path in (HERE / "states").glob("*.arrow")))
def test_what_sparks_own_reader_has_found(name: str) -> None:
    """The four stores of a join, and session windows, whose keys have a prefix."""
    query, operator, store = name.split(".")
    with pa.OSFile(str(HERE / "states" / f"{name}.arrow")) as file:
        theirs = pa.ipc.open_file(file).read_all()
    ours = spark_ckpt.read_state(f"file://{HERE}/states/{query}", int(operator), store).to_table()
    assert ours.schema.names == theirs.schema.names
    assert theirs.num_rows > 0
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist()))


def test_several_stores_have_to_be_chosen_from() -> None:
    with pytest.raises(ConfigError, match="has 5 stores; choose one of timers, best, count, forever, parity"):
        entries("ttl")


def test_the_command_counts_each_variable(values: dict[str, list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "state", f"file://{HERE}/states/transform", "--deep")
    assert status == 0
    assert {store["store"]: (store["variable"], store["entries"]) for store in doc["stores"]} == {
        "best": ("ListState", 5),
        "count": ("ValueState", 5),
        "parity": ("MapState", 10),
    }


def test_partitions_are_chosen_and_told(stream: str) -> None:
    one, other = read(stream, partitions=[0]), read(stream, partitions=(1,))
    assert one | other == totals(6)
    assert one
    assert not one.keys() & other.keys()
    table = spark_ckpt.read_state(stream, partitions=[1]).to_table()
    assert set(table.column("partition_id").to_pylist()) == {1}


def test_many_batches_of_many_partitions_come_in_order(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)
    batches = list(spark_ckpt.read_state(stream))
    assert [batch.num_rows for batch in batches] == [1] * 5
    assert [batch.column("partition_id")[0].as_py() for batch in batches] == [0, 0, 0, 1, 1]


def test_who_stops_reading_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    batches = iter(spark_ckpt.read_state(f"file://{HERE}/states/update"))
    assert next(batches).num_rows == 1
    assert list((tmp_path / "temporary").iterdir()) != []
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert list((tmp_path / "temporary").iterdir()) == []


def test_who_takes_arrow_takes_it_more_than_once(stream: str) -> None:
    state = spark_ckpt.read_state(stream)
    assert state.schema.names == ["key", "value", "partition_id"]
    assert pa.table(state).num_rows == sum(batch.num_rows for batch in state) == len(state.to_pandas()) == 5
    with pa.RecordBatchReader.from_stream(state) as reader:
        assert reader.schema == state.schema


def test_names_that_there_are_not_are_told_with_those_that_there_are(stream: str) -> None:
    for how, said in (
        ({"operator": 3}, "no operator 3; choose one of 0 \\(stateStoreSave\\)"),
        ({"store": "left"}, "no store 'left'; choose one of default"),
        ({"partitions": [0, 7]}, "no partition 7; they are 0 to 1"),
        ({"checkpoint": "5"}, "write it as run-3/chk-42"),
        ({"conf": {"spark.ckpt.s3.endpiont": "x"}}, "s3.endpoint"),
    ):
        with pytest.raises(ConfigError, match=said):
            spark_ckpt.read_state(stream, **how)


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(ObjectMissingError, match="there is no stream at"):
        spark_ckpt.read_state(f"file://{tmp_path}/other")


def test_what_is_damaged_is_named_with_its_store(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = open_storage(stream)
    newest = StreamReader(storage).read(CheckpointId(2, 5))
    flip(storage, newest.snapshots[1].handles[-1].object, newest.snapshots[1].handles[-1].offset + 30)
    with pytest.raises(DamagedError, match=r"run-2/chk-5: operator 0, partition 1, store default: .*CRC-32"):
        spark_ckpt.read_state(stream).to_table()
    assert len(spark_ckpt.read_state(stream, partitions=[0]).to_table()) == 3
    (tmp_path / "state.parquet").write_text("before")
    status, doc = call(capsys, "state", stream, "--to", str(tmp_path / "state.parquet"))
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert (tmp_path / "state.parquet").read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.parquet", "stream"]


def test_an_sst_that_was_stored_damaged_is_found(tmp_path: Path) -> None:
    """With the checksum of the damaged bytes, so that RocksDB's own is the one that tells."""
    shutil.copytree(HERE / "states" / "update", tmp_path / "kept")
    storage = open_storage(f"file://{tmp_path}/kept")
    checkpoint = RestorePath.at(storage.url).read(storage)
    changed = []
    for snapshot in checkpoint.snapshots:
        sst = next(h for h in snapshot.handles if h.kind is HandleKind.SST)
        flip(storage, sst.object, sst.offset + 40)
        damaged = replace(sst, checksum=zlib.crc32(storage.get(sst.object, sst.offset, sst.length)))
        changed.append(replace(snapshot, handles=tuple(damaged if h == sst else h for h in snapshot.handles)))
    storage.put("_metadata", encode_metadata(replace(checkpoint, snapshots=tuple(changed))))
    with pytest.raises(DamagedError, match=r"operator 0, partition 0, store default: RocksDB cannot read 2_.*\.zip: Corruption"):
        spark_ckpt.read_state(storage.url).to_table()


def test_an_object_that_is_gone_is_named(stream: str) -> None:
    storage = open_storage(stream)
    state = spark_ckpt.read_state(stream)
    storage.delete(sorted(StreamReader(storage).read(CheckpointId(2, 5)).objects))
    with pytest.raises(ObjectMissingError, match=r"run-2/chk-5: operator 0, partition 0, .*; a running query deletes its older"):
        state.to_table()


@pytest.mark.parametrize(("file", "old", "new", "said"), [
    ("state/0/0/_metadata/schema", b"\0\2v2", b"\0\2v7", "state/0/0/_metadata/schema has the form 'v7', known are v1, v2 and v3"),
    ("state/0/0/_metadata/schema", b'"long"', b'"huge"', "the type 'huge' in a state schema is not known"),
    ("state/0/0/_metadata/schema", b'"type":"struct"', b'"type":"struct;', "holds no schema"),
    ("state/0/0/_metadata/schema", b'"nullable"', b'"nullible"', "KeyError: 'nullable'"),
    ("state/0/_metadata/metadata", b"v1\n", b"v9\n", "has the form 'v9', known are v1 and v2"),
    ("state/0/_metadata/metadata", b"storeName", b"storeNome", "KeyError: 'storeName'"),
    ("offsets/5", b'mergeOperatorVersion":"2"', b'mergeOperatorVersion":"9"', "merge operator has the version '9', known are 1 and 2"),
    ("offsets/5", b'encodingFormat":"unsaferow"', b'encodingFormat":"protobuff"', "'protobuff'; unsaferow and avro are known"),
    ("offsets/5", b'codec":"lz4"', b'codec":"lzf"', "compressed with 'lzf', and lz4, zstd and snappy are read"),
    ("offsets/5", b'rowChecksum.enabled":"false"', b'rowChecksum.enabled":"true"', "a checksum with each row"),
    ("offsets/5", b"state.ckpt.BarrierStateStoreProvider", b"state.HDFSBackedStateStoreProvider", "not by RocksDB"),
])
def test_what_another_spark_has_written_is_refused_by_name(
    stream: str, change: Callable[[Callable[[Checkpoint], Checkpoint]], None], file: str, old: bytes, new: bytes, said: str
) -> None:
    change(with_file(file, old, new))
    with pytest.raises(DamagedError, match=said):
        spark_ckpt.read_state(stream).to_table()


def test_rows_that_do_not_fit_their_schema_are_refused(stream: str, change: Callable[[Callable[[Checkpoint], Checkpoint]], None]) -> None:
    change(with_file("state/0/0/_metadata/schema", b'"sum","type":"long","nullable":true', b'"sum","type":"string","nullable":1 '))
    with pytest.raises(DamagedError, match="operator 0, partition 0, store default: a row refers to bytes outside of it"):
        spark_ckpt.read_state(stream).to_table()


def test_a_store_of_its_first_changelog_alone(stream: str, change: Callable[[Callable[[Checkpoint], Checkpoint]], None]) -> None:
    """Of an epoch in which not all keys had come."""

    def begun(checkpoint: Checkpoint) -> Checkpoint:
        return replace(checkpoint, snapshots=tuple(replace(s, handles=s.handles[:1]) for s in checkpoint.snapshots))

    change(begun)
    state = spark_ckpt.read_state(stream)
    assert 0 < state.to_table().num_rows < 5


def test_the_command_shows_stores_and_counts(stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "state", stream, "--deep")
    assert (status, doc["checkpoint"]) == (0, "run-2/chk-5")
    (store,) = doc["stores"]
    assert (store["operator"], store["kind"], store["store"], store["partitions"]) == (0, "stateStoreSave", "default", 2)
    assert (store["keys"], store["entries"], len(store["biggest_keys"])) == (5, 5, 5)
    assert store["schema"] == {"key": "struct<key:string>", "value": "struct<count:bigint,sum:bigint>"}
    assert [p["keys"] for p in store["biggest_partitions"]] == [3, 2]
    assert store["size"] == sum(p["size"] for p in store["biggest_partitions"])
    status, shallow = call(capsys, "state", stream)
    assert "entries" not in shallow["stores"][0]
    assert shallow["stores"][0]["keys"] == 5


def test_the_command_for_people(stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", stream, "--deep"]) == 0
    out = capsys.readouterr().out
    assert "OPERATOR  KIND            STORE    PARTITIONS  KEYS     SIZE  ENTRIES  BYTES" in out
    assert "  value: struct<count:bigint,sum:bigint>" in out
    assert "in partition 1: key=k2" in out


def test_the_command_writes_parquet(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "state.parquet"
    status, doc = call(capsys, "state", stream, "--checkpoint", "run-1/chk-4", "--to", str(target))
    assert (status, doc["rows"], doc["size"]) == (0, 5, target.stat().st_size)
    assert {r["key"]["key"]: (r["value"]["count"], r["value"]["sum"]) for r in pq.read_table(target).to_pylist()} == totals(5)
    status, doc = call(capsys, "state", stream, "--partition", "0", "--to", str(target))
    assert (status, doc["rows"], pq.read_metadata(target).num_rows) == (0, 3, 3)
    assert run(["state", stream, "--to", str(tmp_path / "no" / "state.parquet")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run(["state", stream, "--partition", "0"]) == 2
