"""Strings that are no UTF-8, which Spark does not look for and Arrow has not: their bytes stay, or a sentence says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_ckpt
from spark_ckpt.errors import ConfigError
from spark_ckpt.state.changelogs import Change
from spark_ckpt.state.spark_types import Atomic, Field, Struct
from spark_ckpt.state.unsafe_encoder import encode
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.planned_operators import operator_files
from tests.drivers.state_entries import entries
from tests.drivers.state_versions import StoreVersions

Batch = Any
"""A `pyarrow.RecordBatch`."""
Row = tuple[bytes, bytes, int]
"""Key, text and number."""
TEXT, NUMBER = Field("text", Atomic("string")), Field("n", Atomic("long"))


def savepoint(folder: Path, rows: list[Row]) -> str:
    key, value = Struct((Field("key", Atomic("string")),)), Struct((TEXT, NUMBER))
    keys = encode(key, [pa.array([row[0] for row in rows])], len(rows)).slices(b"\0")
    texts = [pa.array([row[1] for row in rows]), pa.array([row[2] for row in rows])]
    values = encode(value, texts, len(rows)).slices(b"\0")
    files = operator_files(0, "stateStoreSave", [("key", "string")], [("text", "string"), ("n", "long")])
    with open_storage(f"file://{folder}") as storage:
        records = [(Change.PUT, k, v) for k, v in zip(keys, values, strict=True)]
        made = StoreVersions(storage, files, {}).checkpoint([records], 1).checkpoint
        ids = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[made.snapshots[0].uid]]}}
        commits = b"v2\n" + json.dumps(ids).encode()
        storage.put("_metadata", encode_metadata(replace(made, files={**made.files, "commits/1": commits})))
    return f"file://{folder}"


def one_more(batch: Batch) -> Batch:
    value = batch.column("value")
    made = pa.StructArray.from_arrays([value.field("text"), pc.add(value.field("n"), 1)], names=["text", "n"])
    return batch.set_column(1, "value", made)


def without(number: int) -> Any:
    return lambda batch: batch.filter(pc.not_equal(batch.column("value").field("n"), number))


def test_a_value_that_is_changed_beside_such_a_string_is_refused(tmp_path: Path) -> None:
    url = savepoint(tmp_path / "savepoints" / "one", [(b"a", b"\xfd", 1), (b"b", b"", 2)])
    with pytest.raises(ConfigError, match="a value of partition 0 has a string that is no UTF-8, whose bytes would be lost"):
        spark_ckpt.transform_state(url, 0, one_more)


def test_a_value_is_changed_beside_a_replacement_character(tmp_path: Path) -> None:
    """It is a character like others where it was written as one."""
    url = savepoint(tmp_path / "savepoints" / "one", [(b"a", "\N{REPLACEMENT CHARACTER}".encode(), 1), (b"\xfe", b"", 2)])
    made = spark_ckpt.transform_state(url, 0, one_more)
    assert [row["value"]["n"] for row in spark_ckpt.read_state(made).to_table().to_pylist()] == [2, 3]
    assert [key for key, _ in entries(made)[0, "default", ""]] == [key for key, _ in entries(url)[0, "default", ""]]


@pytest.mark.parametrize("gone", [1, 2])
def test_of_keys_that_read_alike_each_keeps_its_own_row(tmp_path: Path, gone: int) -> None:
    rows = [(b"\xfe", b"", 1), (b"\xff", b"", 2), (b"z", b"", 3)]
    url = savepoint(tmp_path / "savepoints" / "one", rows)
    kept = savepoint(tmp_path / "savepoints" / "kept", [row for row in rows if row[2] != gone])
    assert entries(spark_ckpt.transform_state(url, 0, without(gone))) == entries(kept)


@pytest.mark.parametrize("function", [one_more, without(2)])
def test_whose_row_one_is_of_keys_that_read_alike_is_not_guessed(tmp_path: Path, function: Any) -> None:
    """Changed, or one of two with the same value."""
    number = 1 if function is one_more else 3
    url = savepoint(tmp_path / "savepoints" / "one", [(b"\xfe", b"", number), (b"\xff", b"", number), (b"z", b"", 2)])
    with pytest.raises(ConfigError, match="partition 0 has 2 keys that read alike"):
        spark_ckpt.transform_state(url, 0, function)
