"""Batches that a person has made for `transform_state` and `write_state`: what is not just what the state holds is refused in words."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.entry_encoder import EntryEncoder
from spark_ckpt.state.rows import Encoding
from spark_ckpt.state.schemas import Family, KeyForm, KeyLayout, Operator
from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct

LONG = Atomic("long")


def encoder(value: SparkType, key: SparkType = LONG, kind: str = "stateStoreSave") -> EntryEncoder:
    family = Family("default", Struct((Field("k", key),)), Struct((Field("v", value),)), KeyLayout(KeyForm.PLAIN))
    return EntryEncoder(Operator(0, kind, ()), family, Encoding(False, b""), False)


def batch(value: pa.Array, key: pa.Array | None = None) -> pa.RecordBatch:
    keys = pa.array(range(len(value))) if key is None else key
    columns = [pa.StructArray.from_arrays([keys], names=["k"]), pa.StructArray.from_arrays([value], names=["v"])]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"])


INNER = Struct((Field("count", LONG), Field("sum", LONG)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": 1, "Sum": 2}, "value.v of a batch has no field sum, which the state has and a field Sum, which the state has not"),
        ({"count": 1}, "value.v of a batch has no field sum, which the state has; its fields are count, sum"),
        ({"count": 1, "sum": 2, "max": 3}, "value.v of a batch has a field max, which the state has not"),
    ],
)
def test_a_field_of_another_name_is_named(fields: dict[str, int], said: str) -> None:
    """Arrow alone would give null for the one, and leave out the other."""
    with pytest.raises(ConfigError, match=said):
        encoder(INNER).checked(batch(pa.array([fields])))


@pytest.mark.parametrize("spark", [Array(INNER), Map(Atomic("string"), INNER)])
def test_a_field_within_lists_and_maps_is_named(spark: SparkType) -> None:
    wrong = pa.struct([("count", pa.int64()), ("Sum", pa.int64())])
    made = pa.list_(wrong) if isinstance(spark, Array) else pa.map_(pa.string(), wrong)
    with pytest.raises(ConfigError, match=r"value.v.(element|value) of a batch has no field sum"):
        encoder(spark).checked(batch(pa.array([None], made)))


def test_fields_in_another_order_are_the_same_fields() -> None:
    made = encoder(INNER).checked(batch(pa.array([{"sum": 2, "count": 1}])))
    assert made.column("value").to_pylist() == [{"v": {"count": 1, "sum": 2}}]


def test_a_name_twice_is_named() -> None:
    one = batch(pa.array([1]))
    twice = pa.RecordBatch.from_arrays([*one.columns, one.column(1)], names=["key", "value", "value"])
    with pytest.raises(ConfigError, match="the column value more than once"):
        encoder(LONG).checked(twice)
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([1])], names=["count", "count"])
    with pytest.raises(ConfigError, match=r"value.v has the field count more than once"):
        encoder(INNER).checked(batch(inner))


NOON = 1704110400_000000
MIDNIGHT = NOON - 12 * 3600_000000
LOSSES: list[tuple[SparkType, pa.Array]] = [
    (Atomic("date"), pa.array([NOON], pa.timestamp("us"))),
    (Atomic("time"), pa.array([NOON], pa.timestamp("us"))),
    (Atomic("float"), pa.array([1.0, 1e300])),
    (Atomic("float"), pa.array([Decimal("0.1234567890123456789")])),
    (Atomic("double"), pa.array([None, Decimal("0.1234567890123456789")])),
    (Atomic("decimal", 10, 2), pa.array([0.126])),
    (Atomic("boolean"), pa.array([7])),
    (Array(Atomic("date")), pa.array([None, [NOON]], pa.list_(pa.timestamp("us")))),
    (Map(LONG, Atomic("date")), pa.array([[(1, NOON)]], pa.map_(pa.int64(), pa.timestamp("us")))),
    (Struct((Field("x", Atomic("date")),)), pa.array([{"x": NOON}], pa.struct([("x", pa.timestamp("us"))]))),
]


@pytest.mark.parametrize(("spark", "values"), LOSSES)
def test_what_a_cast_would_change_is_refused(spark: SparkType, values: pa.Array) -> None:
    with pytest.raises(ConfigError, match=r"value\.v.* of a batch is .*, and has values that the state's .* does not hold"):
        encoder(spark).checked(batch(values))


@pytest.mark.parametrize(
    ("spark", "values", "found"),
    [
        (Atomic("date"), pa.array([MIDNIGHT, None], pa.timestamp("us")), [dt.date(2024, 1, 1), None]),
        (Atomic("float"), pa.array([0.5, float("inf"), None]), [0.5, float("inf"), None]),
        (Atomic("double"), pa.array([Decimal("0.5")]), [0.5]),
        (Atomic("decimal", 10, 2), pa.array([0.1, None]), [Decimal("0.10"), None]),
        (Atomic("boolean"), pa.array([1, 0]), [True, False]),
        (Atomic("long"), pa.array([7], pa.int8()), [7]),
        (Atomic("string"), pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (Array(Atomic("float")), pa.array([[0.5], None, []], pa.list_(pa.float64())).slice(1), [None, []]),
        (Atomic("string"), pa.nulls(2), [None, None]),
    ],
)
def test_what_fits_is_cast(spark: SparkType, values: pa.Array, found: list[Any]) -> None:
    assert [one["v"] for one in encoder(spark).checked(batch(values)).column("value").to_pylist()] == found


def test_strings_are_utf8() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(ConfigError, match=r"the column value of a batch is not valid.*strings must be UTF-8"):
        encoder(Atomic("string")).checked(batch(bad))


def odd_nan() -> float:
    (found,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))
    return float(found)


FLOATS = [0.0, -0.0, float("nan"), odd_nan(), None, 1.5]


@pytest.mark.parametrize(
    ("spark", "values"),
    [
        (Atomic("double"), pa.array(FLOATS, from_pandas=False)),
        (Atomic("float"), pa.array(FLOATS, pa.float32(), from_pandas=False)),
        (Array(Atomic("double")), pa.array([[one] for one in [7.0, *FLOATS]]).slice(1)),
        (Struct((Field("x", Atomic("double")),)), pa.array([{"x": one} for one in FLOATS])),
    ],
)
def test_numbers_in_keys_are_those_that_spark_groups_by(spark: SparkType, values: pa.Array) -> None:
    """Of rows that are grouped. What Spark takes as it comes, `dropDuplicates` say, stays as it is."""
    rows = batch(pa.array([1] * len(values)), values)
    grouping, other = encoder(LONG, spark), encoder(LONG, spark, "dedupe")
    zero, minus, nan, odd, null, more = grouping.encode(grouping.normalized(grouping.checked(rows)), b"")[0]
    assert (zero, nan) == (minus, odd)
    assert len({zero, nan, null, more}) == 4
    kept = other.encode(other.normalized(other.checked(rows)), b"")[0]
    assert kept == other.encode(other.checked(rows), b"")[0]
    assert [kept[n] for n in (0, 2, 4, 5)] == [zero, nan, null, more]
    assert len(set(kept)) == 6


@pytest.mark.parametrize(("spark", "zone"), [("timestamp", None), ("timestamp_ntz", "America/New_York")])
def test_a_time_with_a_zone_and_one_without_are_two_things(spark: str, zone: str | None) -> None:
    """Arrow would take UTC for the zone, where Spark takes the session's."""
    noon = pa.array([0], pa.timestamp("us", zone))
    with pytest.raises(ConfigError, match=r"value\.v of a batch is timestamp.*say which zone you mean"):
        encoder(Atomic(spark)).checked(batch(noon))
