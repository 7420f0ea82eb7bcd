"""State that is damaged, empty, evolved, too large, or of another Spark: right, or a sentence, and nothing written half."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import spark_ckpt
from spark_ckpt.cli.main import run
from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError
from spark_ckpt.model import Content, Handle, HandleKind
from spark_ckpt.state.changelogs import Change, Record
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.avro_states import evolved, schema, schema_file
from tests.drivers.command_line import call
from tests.drivers.state_differences import rows
from tests.drivers.state_versions import StoreVersions
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import HERE, place


def driver_files(query: str) -> dict[str, Content]:
    storage = open_storage(f"file://{HERE}/states/{query}")
    found = RestorePath.at(storage.url).read(storage).files
    return {name: content for name, content in found.items() if name.startswith("state/")}


class Aggregation:
    """Checkpoints of the query `update` with other state, each in a savepoint's folder."""

    def __init__(self, folder: Path) -> None:
        self.storage: Storage = open_storage(f"file://{folder}")
        self._versions = StoreVersions(self.storage, driver_files("update"), {})
        self.family = self._versions.checkpoint([[]], 1).select(0, None).family

    def entries(self, numbers: Sequence[int]) -> list[Record]:
        return [(Change.PUT, b"\0" + row(self.family.key, [f"key{n:06d}"]), b"\0" + row(self.family.value, [n, n])) for n in numbers]

    def save(self, versions: Sequence[Sequence[Record]], snapshot: int, changed: Callable[[Handle], Handle] = lambda handle: handle) -> str:
        checkpoint = self._versions.checkpoint(versions, snapshot).checkpoint
        stored = tuple(replace(s, handles=tuple(map(changed, s.handles))) for s in checkpoint.snapshots)
        files = {**checkpoint.files, f"commits/{checkpoint.id.epoch}": b"v2\n{}"}
        self.storage.put("_metadata", encode_metadata(replace(checkpoint, snapshots=stored, files=files)))
        return self.storage.url

    def damage(self, handle: Handle, at: int) -> Handle:
        """Stored damaged, with the checksum of the damaged bytes."""
        whole = bytearray(self.storage.get(handle.object))
        whole[handle.offset + at] ^= 255
        self.storage.put(handle.object, bytes(whole))
        return replace(handle, checksum=zlib.crc32(whole[handle.offset : handle.offset + handle.length]))


@pytest.fixture
def aggregation(tmp_path: Path) -> Aggregation:
    return Aggregation(tmp_path / "kept")


def nothing_is_written(url: str, folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What the command says."""
    folder.mkdir(exist_ok=True)
    (folder / "state.parquet").write_text("before")
    status, doc = call(capsys, "state", url, "--to", str(folder / "state.parquet"), *arguments)
    assert status == 1
    assert (folder / "state.parquet").read_text() == "before"
    assert [path.name for path in folder.iterdir()] == ["state.parquet"]
    found: dict[str, Any] = doc["error"]
    return found


@pytest.mark.parametrize("where", [0.3, 0.5, 0.8])
def test_an_sst_that_is_damaged_in_the_middle_does_not_end_there(
    aggregation: Aggregation, where: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RocksDB's iterator ends at a bad block as it does at the end: rows before it come, and an error, never fewer rows."""

    def damaged(handle: Handle) -> Handle:
        return aggregation.damage(handle, int(handle.length * where)) if handle.kind is HandleKind.SST else handle

    url = aggregation.save([aggregation.entries(range(20_000))], 1, damaged)
    said = r"run-1/chk-1: operator 0, partition 0, store default: RocksDB cannot read 1_u1\.zip: Corruption"
    with pytest.raises(DamagedError, match=said):
        spark_ckpt.read_state(url).to_table()
    error = nothing_is_written(url, tmp_path / "out", capsys)
    assert (error["kind"], "Corruption" in error["message"]) == ("DAMAGED", True)
    assert run(["state", url, "--deep"]) == 1
    assert "operator 0, partition 0" in capsys.readouterr().err


def test_an_sst_that_is_shorter_than_it_was_is_named(aggregation: Aggregation) -> None:

    def shorter(handle: Handle) -> Handle:
        return replace(handle, length=handle.length - 1) if handle.kind is HandleKind.SST else handle

    url = aggregation.save([aggregation.entries(range(100))], 1, shorter)
    with pytest.raises(DamagedError, match=r"operator 0, partition 0, store default: .*the checkpoint says"):
        spark_ckpt.read_state(url).to_table()


@pytest.mark.parametrize("snapshot", [0, 1], ids=["changelog", "full snapshot"])
def test_a_value_that_is_too_large_is_told_from_damage(
    aggregation: Aggregation, snapshot: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 GB is what Java can have in a value."""
    key = aggregation.entries([1])[0][1]
    url = aggregation.save([[*aggregation.entries([7]), (Change.PUT, key, bytes(20 << 20))]], snapshot)
    monkeypatch.setattr("spark_ckpt.state.changelogs.MAX_BYTES", 10 << 20)
    monkeypatch.setattr("spark_ckpt.state.contents.MAX_BYTES", 10 << 20)
    with pytest.raises(FormatError, match=r"store default: .* has a key or value of 20971520 bytes, and up to 10485760 are read"):
        spark_ckpt.read_state(url).to_table()
    assert "spark-ckpt export" in nothing_is_written(url, tmp_path / "out", capsys)["message"]


def test_a_large_value_is_read(tmp_path: Path) -> None:
    """Of a state variable with a text."""
    files = driver_files("ttl")
    families = {"count": 1}
    versions = StoreVersions(open_storage(f"file://{tmp_path}/kept"), files, families)
    family = versions.checkpoint([[]], 1).select(0, "count").family
    text = "0123456789" * 3_000_000
    value = b"\0" + row(family.value, [[7, text], 1])
    state = versions.checkpoint([[(Change.PUT, b"\1\0\0" + row(family.key, ["a"]), value)]], 1)
    (batch,) = state.batches(state.select(0, "count"), None, 1)
    found = batch.column("value").field("value").field("name")[0]
    assert (len(found.as_py()), found.as_py()[-10:]) == (30_000_000, "0123456789")


@pytest.mark.parametrize(("versions", "snapshot"), [
    ([[]], 0),
    ([[]], 1),
    ([[], []], 1),
    ([["put"], ["delete"]], 0),
    ([["put"], ["delete"]], 1),
    ([["put"], ["delete"]], 2),
])
def test_an_empty_store_has_no_rows(
    aggregation: Aggregation, versions: list[list[str]], snapshot: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = aggregation.entries([1])[0]
    records = {"put": entry, "delete": (Change.DELETE, entry[1], b"")}
    url = aggregation.save([[records[name] for name in version] for version in versions], snapshot)
    table = spark_ckpt.read_state(url).to_table()
    assert (table.num_rows, table.column_names) == (0, ["key", "value", "partition_id"])
    assert spark_ckpt.read_state(url, since=url).to_table().num_rows == 0
    status, doc = call(capsys, "state", url, "--deep")
    assert (status, doc["stores"][0]["entries"], doc["stores"][0]["biggest_keys"]) == (0, 0, [])
    assert call(capsys, "state", url, "--to", str(tmp_path / "state.parquet"))[1]["rows"] == 0
    assert pq.read_table(tmp_path / "state.parquet").schema.names == ["key", "value", "partition_id"]


def test_a_store_with_nothing_but_changelogs(aggregation: Aggregation) -> None:
    url = aggregation.save([aggregation.entries([n, n + 1]) for n in range(30)], 0)
    assert [one["value"]["count"] for one in spark_ckpt.read_state(url).to_table().to_pylist()] == list(range(31))


def test_state_variables_without_a_full_snapshot_are_refused(tmp_path: Path) -> None:
    versions = StoreVersions(open_storage(f"file://{tmp_path}/kept"), driver_files("transform"), {"count": 1})
    state = versions.checkpoint([[(Change.PUT, b"\1\0a", b"b")]], 0)
    with pytest.raises(FormatError, match=r"operator 0, partition 0, store default: the store has no full snapshot.*a later checkpoint"):
        rows(state.batches(state.select(0, "count"), None, 1))


# --- a schema that has evolved


def test_values_of_every_schema_that_a_stream_has_had(tmp_path: Path) -> None:
    """A field came, then the first one went; each value names the schema that it was written with."""
    files = {
        "0_a": schema_file(0, schema(("n", "long"))),
        "5_b": schema_file(1, schema(("n", "long"), ("name", "string"))),
        "9_c": schema_file(2, schema(("name", "string"), ("total", "double"))),
    }
    values = [b"\0\0\0\2\x0e", b"\0\1\0\2\x0e\2\4ab", b"\0\2\0\2\4cd\2" + struct.pack("<d", 1.5)]
    state = evolved(files, tmp_path, values)
    found = rows(state.batches(state.select(0, "count"), None, 1))
    assert [(one["key"]["key"], one["value"]) for one in found] == [
        ("A", {"name": None, "total": None}),
        ("B", {"name": "ab", "total": None}),
        ("C", {"name": "cd", "total": 1.5}),
    ]
    unknown = evolved(files, tmp_path, [*values, b"\0\7\0\0\0"])
    with pytest.raises(DamagedError, match="operator 0, partition 0, store default: a value of count names schema 7"):
        rows(unknown.batches(unknown.select(0, "count"), None, 1))


def test_a_schema_file_of_a_newer_spark_is_named(tmp_path: Path) -> None:
    files = {"0_a": schema_file(0, schema(("n", "long"))), "5_b": schema_file(1, schema(("n", "long")), b"v4")}
    with pytest.raises(FormatError, match=r"_stateSchema/default/5_b has the form 'v4', known are v1, v2 and v3; take a newer spark-ckpt"):
        evolved(files, tmp_path, [])


# --- of another Spark, and what is no checkpoint


def test_state_of_which_no_driver_says_anything(aggregation: Aggregation) -> None:
    """Sparks before 3.5 wrote nothing about operators; `spark-ckpt import` takes their state all the same."""
    aggregation.save([aggregation.entries([1])], 1)
    checkpoint = RestorePath.at(aggregation.storage.url).read(aggregation.storage)
    without = {name: content for name, content in checkpoint.files.items() if not name.startswith("state/")}
    aggregation.storage.put("_metadata", encode_metadata(replace(checkpoint, files=without)))
    with pytest.raises(FormatError, match=r"run-1/chk-1 has state, and no file of the driver's says of what kind.*Spark before 3\.5"):
        spark_ckpt.read_state(aggregation.storage.url)


def test_a_checkpoint_location_is_told_from_a_stream(tmp_path: Path) -> None:
    place("1", tmp_path / "stream")
    assert run(["export", str(tmp_path / "stream"), str(tmp_path / "location")]) == 0
    with pytest.raises(ObjectMissingError, match=r"which is a query's checkpointLocation.*`spark-ckpt import` makes a savepoint of it"):
        spark_ckpt.read_state(tmp_path / "location")


@pytest.mark.parametrize(("content", "said"), [(b"", "_metadata"), (b"{}", "_metadata"), (b"PAR1" * 9, "_metadata")])
def test_a_folder_whose_metadata_is_none(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(content)
    with pytest.raises(DamagedError, match=said):
        spark_ckpt.read_state(tmp_path)
