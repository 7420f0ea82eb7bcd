"""`transform_state(like=…)`: the entries of a store get the columns that the changed query keeps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_ckpt
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import Checkpoint
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.opening import opened_stream
from tests.drivers.command_line import call
from tests.drivers.planned_operators import Columns, operator_files
from tests.stored.earlier import HERE, place, totals

Batch = Any
"""A `pyarrow.RecordBatch`."""
KEY = [("key", "string")]
MORE = [("count", "long"), ("sum", "long"), ("most", "long")]
"""The query has a maximum as well, from now on."""
Put = Callable[..., str]


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """An aggregation: changelogs and no full snapshot."""
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


@pytest.fixture
def like(stream: str, tmp_path: Path) -> Put:
    """A savepoint of the changed query, as its driver's files say."""

    def put(values: Columns = MORE, key: Columns = KEY, kind: str = "stateStoreSave", conf: tuple[bytes, bytes] = (b"", b"")) -> str:
        folder = tmp_path / "like"
        spark_ckpt.transform_state(stream, 0, lambda batch: batch.slice(0, 0), target=f"file://{tmp_path}", name="like")
        found = stored(f"file://{folder}")
        files = {name: content.replace(*conf) if isinstance(content, bytes) else content for name, content in found.files.items()}
        metadata = folder / "_metadata"
        metadata.chmod(0o600)
        metadata.write_bytes(encode_metadata(replace(found, files={**files, **operator_files(0, kind, key, values)})))
        return f"file://{folder}"

    return put


def stored(url: str) -> Checkpoint:
    with opened_stream(url, S3Options()) as (_, reader):
        return reader.read(reader.latest())


def with_most(batch: Batch) -> Batch:
    value = batch.column("value")
    fields = [value.field(0), value.field(1), pa.array([7] * batch.num_rows, pa.int64())]
    made = pa.StructArray.from_arrays(fields, names=[name for name, _ in MORE])
    return pa.RecordBatch.from_arrays([batch.column("key"), made], names=["key", "value"])


def test_a_column_is_added_with_its_default(stream: str, like: Put, capsys: pytest.CaptureFixture[str]) -> None:
    url = spark_ckpt.transform_state(stream, 0, with_most, like=like())
    table = spark_ckpt.read_state(url).to_table()
    assert [(f.name, str(f.type)) for f in table.schema.field("value").type] == [("count", "int64"), ("sum", "int64"), ("most", "int64")]
    rows = {row["key"]["key"]: tuple(row["value"].values()) for row in table.to_pylist()}
    assert rows == {key: (n, total, 7) for key, (n, total) in totals(6).items()}
    before, made = stored(stream), stored(url)
    assert (made.id, made.log, made.claim, made.job) == (before.id, before.log, before.claim, before.job)
    assert made.files.keys() == before.files.keys()
    assert [s.num_keys for s in made.snapshots] == [s.num_keys for s in before.snapshots]
    status, _ = call(capsys, "verify", url, "--deep")
    assert status == 0
    again = spark_ckpt.write_state(url, 0, table, mode="overwrite")
    assert spark_ckpt.read_state(again).to_table().equals(table)


def test_a_column_can_go_and_another_have_a_wider_type(stream: str, like: Put) -> None:
    def without_count(batch: Batch) -> Batch:
        total = batch.column("value").field(1).cast(pa.float64())
        value = pa.StructArray.from_arrays([total], names=["sum"])
        return pa.RecordBatch.from_arrays([batch.column("key"), value], names=["key", "value"])

    url = spark_ckpt.transform_state(stream, 0, without_count, like=like([("sum", "double")]))
    rows = {row["key"]["key"]: row["value"] for row in spark_ckpt.read_state(url).to_table().to_pylist()}
    assert rows == {key: {"sum": float(total)} for key, (_, total) in totals(6).items()}


def test_a_batch_without_the_column_is_refused(stream: str, like: Put) -> None:
    other = like()
    for function in (lambda batch: batch, lambda batch: batch.slice(0)):
        with pytest.raises(ConfigError, match="value of a batch has no field most, which the state has; its fields are count, sum, most"):
            spark_ckpt.transform_state(stream, 0, function, like=other, name="made")
    assert not Path(stream.removeprefix("file://"), "savepoints", "made").exists()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "dedupe"}, r"`like` has no operator 0 \(stateStoreSave\), its operators are 0 \(dedupe\)"),
    "key": ({"key": [("key", "long")]}, r"has the key struct<key:string>, and in `like` struct<key:bigint>"),
    "avro": ({"conf": (b'"unsaferow"', b'"avro"')}, "is written in another form in `like`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_changed_query_of_the_same_operator_is_refused(case: str, stream: str, like: Put) -> None:
    given, sentence = REFUSED[case]
    with pytest.raises(ConfigError, match=sentence):
        spark_ckpt.transform_state(stream, 0, with_most, like=like(**given))


def test_state_variables_are_left_to_spark(stream: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / "states" / "transform", tmp_path / "transform")
    with pytest.raises(ConfigError, match=r"has state variables, whose columns Spark itself changes with .*encodingFormat=avro"):
        spark_ckpt.transform_state(f"file://{tmp_path}/transform", 0, with_most, store="count", like=stream)


@pytest.mark.parametrize(("like", "said"), [("nothing", "like 'nothing' cannot be used; write"), (1, "like is 1, and must be text")])
def test_what_is_no_stream_is_named(stream: str, like: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        spark_ckpt.transform_state(stream, 0, with_most, like=like)


def test_another_format_of_state_is_refused(stream: str, like: Put) -> None:
    other = like(conf=(b'stateFormatVersion":"2"', b'stateFormatVersion":"1"'))
    with pytest.raises(ConfigError, match="is written in another form in `like`"):
        spark_ckpt.transform_state(stream, 0, with_most, like=other)


def test_a_string_that_is_no_utf8_is_kept_or_refused(stream: str, like: Put) -> None:
    """Arrow has no such strings: bytes that it was not given must not be lost without a word."""

    def as_bytes(batch: Batch) -> Batch:
        value = pa.StructArray.from_arrays([pa.array([b"a\xff"] * batch.num_rows, pa.binary())], names=["text"])
        return pa.RecordBatch.from_arrays([batch.column("key"), value], names=["key", "value"])

    def entries(url: str) -> list[Any]:
        return sorted((row["key"]["key"], row["value"]["text"]) for row in spark_ckpt.read_state(url).to_table().to_pylist())

    def typed(url: str, kind: str) -> None:
        """The same bytes, which Spark says are of that type."""
        found, metadata = stored(url), Path(url.removeprefix("file://"), "_metadata")
        files = {**found.files, **operator_files(0, "stateStoreSave", KEY, [("text", kind)])}
        metadata.chmod(0o600)
        metadata.write_bytes(encode_metadata(replace(found, files=files)))

    binary = like([("text", "binary")])
    made = spark_ckpt.transform_state(stream, 0, as_bytes, like=binary)
    typed(made, "string")
    assert {text for _, text in entries(made)} == {"a\ufffd"}
    same = spark_ckpt.transform_state(made, 0, lambda batch: batch.slice(0), like=made, name="same")
    typed(same, "binary")
    assert {text for _, text in entries(same)} == {b"a\xff"}
    with pytest.raises(ConfigError, match="has a string that is no UTF-8, whose bytes would be lost with other columns"):
        spark_ckpt.transform_state(made, 0, as_bytes, like=binary, name="lost")
