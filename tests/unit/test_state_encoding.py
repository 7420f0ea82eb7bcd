"""`UnsafeRow`s that are written here: the very bytes that were read, and those of Spark's own writers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.spark_hash import hashes, partitions
from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct, parse_struct, to_arrow
from spark_ckpt.state.unsafe_encoder import encode
from spark_ckpt.state.unsafe_rows import rows_of
from tests.drivers.spark_values import TEXT, TYPES
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import HERE


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_was_read_is_written_as_it_was(data: st.DataObject) -> None:
    many = data.draw(st.lists(TYPES, min_size=1, max_size=4))
    schema = Struct(tuple(Field(f"f{n}", one[0]) for n, one in enumerate(many)))
    values = data.draw(st.lists(st.tuples(*(st.none() | one[1] for one in many)), min_size=1, max_size=5))
    written = [row(schema, one) for one in values]
    read = rows_of(written, 0).decode(schema)
    assert encode(schema, read, len(values)).slices() == written
    first = data.draw(st.integers(0, len(values) - 1))
    behind = encode(schema, [column.slice(first) for column in read], len(values) - first)
    assert behind.slices(b"\0") == [b"\0" + one for one in written[first:]]


@pytest.mark.parametrize("kind", [Array(Atomic("interval")), Map(TEXT, Atomic("interval"))], ids=str)
def test_an_interval_that_is_null_takes_no_bytes_in_an_array(kind: SparkType) -> None:
    """Else it would lie over what follows: the next array would be empty."""
    schema = Struct((Field("f", kind),))
    one, other = (1, 2, 3000), (-4, 5, -6000)
    arrays: list[list[tuple[int, int, int] | None]] = [[one, None], [other, one], [None], [None, other], [one]]
    written = [row(schema, (array if isinstance(kind, Array) else [(str(n), v) for n, v in enumerate(array)],)) for array in arrays]
    read = rows_of(written, 0).decode(schema)
    made = encode(schema, read, len(arrays)).slices()
    assert [value.hex() for value in made] == [value.hex() for value in written]


def test_rows_are_written_as_spark_itself_has_written_them() -> None:
    text = (HERE / "states" / "unsafe_rows.txt").read_text().splitlines()
    schema = parse_struct(json.loads(text[0]))
    written = [bytes.fromhex(one) for one in text[1:]]
    made = encode(schema, rows_of(written, 0).decode(schema), len(written)).slices()
    assert [one.hex() for one in made] == [one.hex() for one in written]


def test_hashes_are_those_of_spark_itself() -> None:
    """Of random values: what Spark's function `hash` has given for each column, and for all of them together."""
    with pa.OSFile(str(HERE / "states" / "hashes.ipc")) as file:
        table = pa.ipc.open_file(file).read_all().combine_chunks()
    schema = parse_struct(json.loads(table.schema.metadata[b"schema"]))
    columns = [table.column(field.name).cast(to_arrow(field.type)).combine_chunks() for field in schema.fields]
    for field, column in zip(schema.fields, columns, strict=True):
        found = hashes([field], [column], table.num_rows).view(np.int32)
        assert found.tolist() == table.column(f"hash_{field.name}").to_pylist(), field.name
    assert hashes(schema.fields, columns, table.num_rows).view(np.int32).tolist() == table.column("hash_all").to_pylist()
    chosen = [(field, column) for field, column in zip(schema.fields, columns, strict=True) if field.name in ("string", "long")]
    chosen.sort(key=lambda one: one[0].name, reverse=True)
    found = partitions([field for field, _ in chosen], [column for _, column in chosen], table.num_rows, 200)
    assert found.tolist() == table.column("partition").to_pylist()


@pytest.mark.parametrize("spark", [Map(TEXT, TEXT), Atomic("interval"), Atomic("variant")], ids=str)
def test_what_spark_does_not_group_by_has_no_hash(spark: SparkType) -> None:
    with pytest.raises(ConfigError, match="is not known here"):
        hashes([Field("f", spark)], [pa.nulls(1, to_arrow(spark))], 1)
