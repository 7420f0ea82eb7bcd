"""`UnsafeRow` and Spark's other encodings, against rows that were written value by value."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.state import unsafe_rows
from spark_ckpt.state.rows import Decoder, Encoding
from spark_ckpt.state.schemas import Family, KeyForm, KeyLayout, Variable
from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct, parse_struct, to_text
from spark_ckpt.state.unsafe_encoder import encode
from spark_ckpt.state.unsafe_rows import rows_of
from tests.drivers.spark_values import TYPES
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import HERE

LONG, TEXT = Atomic("long"), Atomic("string")


def _python(spark: SparkType, value: Any) -> Any:
    """What Arrow's `to_pylist` has for it."""
    if value is None:
        return None
    if isinstance(spark, Struct):
        return {field.name: _python(field.type, item) for field, item in zip(spark.fields, value, strict=True)}
    if isinstance(spark, Array):
        return [_python(spark.element, item) for item in value]
    if isinstance(spark, Map):
        return [(key, _python(spark.value, item)) for key, item in value]
    return value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_was_written_is_read(data: st.DataObject) -> None:
    many = data.draw(st.lists(TYPES, min_size=1, max_size=4))
    schema = Struct(tuple(Field(f"f{n}", one[0]) for n, one in enumerate(many)))
    values = data.draw(st.lists(st.tuples(*(st.none() | one[1] for one in many)), min_size=1, max_size=5))
    skip = data.draw(st.integers(0, 5))
    found = rows_of([bytes(skip) + row(schema, one) for one in values], skip).decode(schema)
    for column in found:
        column.validate(full=True)
    read = [dict(zip([f.name for f in schema.fields], one, strict=True)) for one in zip(*[c.to_pylist() for c in found], strict=True)]
    assert read == [_python(schema, one) for one in values]


@pytest.mark.parametrize(("name", "number", "shown"), [
    ("timestamp", -1, "1969-12-31 23:59:59.999999+00:00"),
    ("timestamp_ntz", 1_700_000_000_000_001, "2023-11-14 22:13:20.000001"),
    ("date", -1, "1969-12-31"),
    ("day_time", 90_061_000_001, "1 day, 1:01:01.000001"),
    ("year_month", 14, "14"),
    ("interval", (14, 3, 6_500_000), "MonthDayNano(months=14, days=3, nanoseconds=6500000000)"),
    ("variant", (b"\x0c\x2a", b"\x01\x00\x00"), "{'value': b'\\x0c*', 'metadata': b'\\x01\\x00\\x00'}"),
])
def test_times_and_variants(name: str, number: Any, shown: str) -> None:
    schema = Struct((Field("f", Atomic(name)),))
    (column,) = rows_of([row(schema, [None]), row(schema, [number])], 0).decode(schema)
    column.validate(full=True)
    assert [str(value) for value in column.to_pylist()] == ["None", shown]


def test_every_type_as_spark_itself_has_written_it() -> None:
    text = (HERE / "states" / "unsafe_rows.txt").read_text().splitlines()
    schema = parse_struct(json.loads(text[0]))
    found = {}
    for field, column in zip(schema.fields, rows_of([bytes.fromhex(one) for one in text[1:]], 0).decode(schema), strict=True):
        column.validate(full=True)
        assert column[0].as_py() is None
        found[field.name] = column[1].as_py()
    assert found == {
        "boolean": True,
        "byte": -3,
        "short": -300,
        "int": -70_000,
        "long": -5_000_000_000,
        "float": 1.5,
        "double": -2.25,
        "string": "zürich €",
        "binary": b"\0\1\xff",
        "date": date(1969, 12, 31),
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
        "ntz": datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - without a zone
        "small": Decimal("-12345678.90"),
        "large": Decimal("-1234567890123456789012345678901234.5678"),
        "day_time": timedelta(days=1, hours=1, minutes=1, seconds=1, microseconds=1),
        "year_month": 14,
        "interval": (14, 3, 6_500_000_000),
        "void": None,
        "bytes": [1, None, -1],
        "shorts": [1, -2, None],
        "ints": [1, None, 3],
        "flags": [True, None, False],
        "texts": ["a", None, "", "longer than eight bytes"],
        "decimals": [Decimal("12345678901234567890"), None, Decimal(-1)],
        "nested": [[{"a": 1, "b": "x"}, None], None, []],
        "map": [("k", [1, None]), ("longer than eight", None)],
        "struct": {"a": None, "b": {"c": Decimal("0.1"), "d": [(7, "seven"), (8, None)]}},
        "variant": {"value": b"\x0c\x2a", "metadata": b"\1\0\0"},
    }


def test_more_than_64_fields() -> None:
    schema = Struct(tuple(Field(f"f{n}", LONG) for n in range(130)))
    values = [None if n % 3 == 0 else n for n in range(130)]
    columns = rows_of([row(schema, values)], 0).decode(schema)
    assert [column[0].as_py() for column in columns] == values


def test_large_values_are_read() -> None:
    schema = Struct((Field("f", TEXT), Field("g", LONG)))
    values = [("x" * 3_000_000, 1), (None, 2), ("", 3)]
    found = rows_of([row(schema, one) for one in values], 0).decode(schema)
    assert list(zip(*[c.to_pylist() for c in found], strict=True)) == values


@pytest.mark.parametrize("texts", [
    ["one", "two", "six"],
    ["one", "two", "eight", "six"],
    ["one", "two", None, "six"],
    ["eight columns wide", "nines columns wide", "three"],
    ["", "", ""],
    [None, None],
])
@pytest.mark.parametrize("before", ["same", "another length"])
def test_texts_of_one_length_and_of_others(texts: list[str | None], before: str) -> None:
    """Those of one length are copied together if they also lie at one distance: not so where what stands before them has another length."""
    schema = Struct((Field("f", TEXT), Field("g", TEXT)))
    values = [(before if number % 2 else "same", text) for number, text in enumerate(texts)]
    found = rows_of([b"!" + row(schema, one) for one in values], 1).decode(schema)
    assert list(zip(*[c.to_pylist() for c in found], strict=True)) == values


def test_a_string_that_is_no_utf8_is_read_with_its_bad_bytes_replaced() -> None:
    schema = Struct((Field("f", TEXT),))
    (column,) = rows_of([row(schema, [b"a\xffb"]), row(schema, [None])], 0).decode(schema)
    assert column.to_pylist() == ["a\ufffdb", None]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_bytes_that_are_no_row_are_refused_or_give_columns(data: st.DataObject) -> None:
    """Never an error of numpy or Arrow, never columns that point outside of what they have."""
    deep = Struct((Field("n", LONG), Field("texts", Array(TEXT))))
    types: list[SparkType] = [TEXT, deep, Map(TEXT, LONG), Atomic("decimal", 38, 0), Atomic("boolean")]
    schema = Struct(tuple(Field(f"f{n}", one) for n, one in enumerate(types)))
    whole = bytearray(row(schema, ["text", (1, ["a", None, "bcd"]), [("k", 1)], Decimal(10**30), True]))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))]) if data.draw(st.booleans()) else bytes(whole)
    good = row(schema, [None, None, None, None, None])
    try:
        found = rows_of([good, cut, good], 0).decode(schema)
    except DamagedError:
        return
    for column in found:
        column.validate(full=True)
        column.to_pylist()


KEY = Struct((Field("key", TEXT),))
VALUE = Struct((Field("n", LONG),))
ROWS = Encoding(avro=False, delimiter=b"")


def _version(data: bytes) -> bytes:
    return b"\0" + data


def test_a_plain_key_behind_its_family() -> None:
    family = Family("count", KEY, VALUE, KeyLayout(KeyForm.PLAIN), Variable.VALUE)
    batch = Decoder(family, ROWS, has_families=True).decode([b"\2\0" + _version(row(KEY, ["a"]))], [_version(row(VALUE, [7]))], 3)
    assert batch.to_pylist() == [{"key": {"key": "a"}, "value": {"n": 7}, "partition_id": 3}]


@pytest.mark.parametrize("delimiter", [b"", b","])
def test_a_list_has_a_row_for_each_value(delimiter: bytes) -> None:
    family = Family("best", KEY, VALUE, KeyLayout(KeyForm.PLAIN), Variable.LIST)
    values = [struct.pack("<i", 17) + _version(row(VALUE, [n])) for n in (3, 1, 2)]
    decoder = Decoder(family, Encoding(avro=False, delimiter=delimiter), has_families=False)
    batch = decoder.decode([_version(row(KEY, ["a"]))], [delimiter.join(values)], 0)
    assert [one["list_element"]["n"] for one in batch.to_pylist()] == [3, 1, 2]
    with pytest.raises(DamagedError, match="longer than its bytes"):
        decoder.decode([_version(row(KEY, ["a"]))], [delimiter.join(values)[:-1]], 0)


def test_a_map_has_the_users_key() -> None:
    both = Struct((Field("key", KEY), Field("userKey", Struct((Field("odd", Atomic("boolean")),)))))
    family = Family("parity", both, VALUE, KeyLayout(KeyForm.PREFIX, prefix=1), Variable.MAP)
    front = _version(row(Struct(both.fields[:1]), [["a"]]))
    key = b"\5\0" + struct.pack("<i", len(front)) + front + _version(row(Struct(both.fields[1:]), [[True]]))
    batch = Decoder(family, ROWS, has_families=True).decode([key], [_version(row(VALUE, [7]))], 0)
    assert batch.to_pylist() == [{"key": {"key": "a"}, "user_map_key": {"odd": True}, "user_map_value": {"n": 7}, "partition_id": 0}]


@pytest.mark.parametrize(("name", "form", "values"), [
    ("long", ">q", [5, -5, 0, None]),
    ("integer", ">i", [-(2**31), 2**31 - 1, None]),
    ("short", ">h", [-300, 300]),
    ("byte", ">b", [-3, 3]),
    ("double", ">d", [1.5, -1.5, 0.0, None]),
    ("float", ">f", [1.5, -1.5]),
])
def test_ordered_columns_of_a_key(name: str, form: str, values: list[Any]) -> None:
    """Spark: `RangeKeyScanStateEncoderSpec`: here the second column is ordered."""
    schema = Struct((Field("key", TEXT), Field("at", Atomic(name))))
    family = Family("timers", schema, VALUE, KeyLayout(KeyForm.RANGE, ordered=(1,)))
    keys = []
    for value in values:
        packed = struct.pack(form, value) if value is not None else bytes(struct.calcsize(form))
        negative = value is not None and value < 0
        if negative and form in (">d", ">f"):
            packed = bytes(255 - byte for byte in packed)
        mark = b"\2" if value is None else b"\0" if negative else b"\1"
        front = _version(row(Struct((Field("at", Atomic("binary")),)), [mark + packed]))
        keys.append(struct.pack("<i", len(front)) + front + _version(row(KEY, ["a"])))
    batch = Decoder(family, ROWS, has_families=False).decode(keys, [_version(row(VALUE, [0]))] * len(keys), 0)
    assert [one["key"] for one in batch.to_pylist()] == [{"key": "a", "at": value} for value in values]


def test_an_aggregation_without_keys_has_one_key_without_fields() -> None:
    family = Family("default", Struct(), VALUE, KeyLayout(KeyForm.PLAIN))
    batch = Decoder(family, ROWS, has_families=False).decode([b"\0"], [_version(row(VALUE, [7]))], 0)
    assert batch.to_pylist() == [{"key": {}, "value": {"n": 7}, "partition_id": 0}]


def test_a_row_of_a_newer_version_is_refused() -> None:
    family = Family("default", KEY, VALUE, KeyLayout(KeyForm.PLAIN))
    with pytest.raises(DamagedError, match="newer Spark"):
        Decoder(family, ROWS, has_families=False).decode([b"\1" + row(KEY, ["a"])], [_version(row(VALUE, [7]))], 0)


def _zigzag(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_avro_of_every_layout_as_spark_itself_has_written_it() -> None:
    text = (HERE / "states" / "avro_rows.txt").read_text().splitlines()
    value, key = (parse_struct(json.loads(one)) for one in text[:2])
    nulls, full, *keys = (bytes.fromhex(one.split()[1]) for one in text[2:])
    layouts = (KeyLayout(KeyForm.PLAIN), KeyLayout(KeyForm.PREFIX, prefix=1), KeyLayout(KeyForm.RANGE, ordered=(1,)))
    for layout, one in zip(layouts, keys, strict=True):
        family = Family("f", key, value, layout, written={5: value})
        batch = Decoder(family, Encoding(avro=True, delimiter=b""), has_families=False).decode([one, one], [nulls, full], 0)
        batch.validate(full=True)
        assert [found["key"] for found in batch.to_pylist()] == [{"key": {"key": "a"}, "at": -7}] * 2
        first, second = (found["value"] for found in batch.to_pylist())
        assert set(first.values()) == {None}
        assert second | {"map": dict(second["map"])} == {
            "boolean": True,
            "int": -70_000,
            "long": -5_000_000_000,
            "float": 1.5,
            "double": -2.25,
            "string": "zürich €",
            "binary": b"\0\1\xff",
            "date": date(1969, 12, 31),
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
            "ntz": datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - without a zone
            "small": Decimal("-12345678.90"),
            "large": Decimal("-1234567890123456789012345678901234.5678"),
            "ints": [1, 2, 3],
            "nested": [[{"a": 1, "b": "x"}, None], None, []],
            "map": {"k": 1, "other": -2},
            "struct": {"a": None, "b": {"c": 0.5}},
        }


def test_avro_of_an_older_schema_has_null_for_what_it_had_not() -> None:
    new = Struct((Field("n", LONG), Field("name", TEXT)))
    family = Family("count", KEY, new, KeyLayout(KeyForm.PLAIN), Variable.VALUE, {0: VALUE, 1: new})
    decoder = Decoder(family, Encoding(avro=True, delimiter=b""), has_families=False)
    key = b"\0\0\0" + _zigzag(1) + _zigzag(1) + b"a"
    values = [b"\0\0\0" + _zigzag(1) + _zigzag(-7), b"\0\1\0" + _zigzag(1) + _zigzag(300) + _zigzag(1) + _zigzag(3) + b"abc"]
    found = [one["value"] for one in decoder.decode([key, key], values, 0).to_pylist()]
    assert found == [{"n": -7, "name": None}, {"n": 300, "name": "abc"}]
    with pytest.raises(DamagedError, match="names schema 2"):
        decoder.decode([key], [b"\0\2\0\0"], 0)
    with pytest.raises(DamagedError, match="behind its bytes"):
        decoder.decode([key], [b"\0\0\0\2"], 0)


def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(FormatError, match="'hyperlong'"):
        parse_struct({"type": "struct", "fields": [{"name": "f", "type": "hyperlong", "nullable": True, "metadata": {}}]})


def test_dates_and_times_that_python_has_not_are_text() -> None:
    times = Struct((Field("day", Atomic("date")), Field("at", Atomic("timestamp_ntz")), Field("zoned", Atomic("timestamp"))))
    nested = Struct((Field("one", times), Field("days", Array(Atomic("date"))), Field("map", Map(TEXT, LONG))))
    family = Family("default", nested, VALUE, KeyLayout(KeyForm.PLAIN))
    key = _version(row(nested, [[10_000_000, 2**62, 0], [10_000_000, None, 0], [("a", 1)]]))
    assert Decoder(family, ROWS, has_families=False).key(key) == {
        "one": {"day": "29349-01-26", "at": "148108-07-06T14:00:27.387904", "zoned": datetime(1970, 1, 1, tzinfo=UTC)},
        "days": ["29349-01-26", None, date(1970, 1, 1)],
        "map": [("a", 1)],
    }


def test_fields_of_one_name_are_numbered() -> None:
    """Spark has them after a join: `groupBy(a.id, b.id)`."""
    names = ["id", "id_1", "id", "n", "id"]
    document = {"type": "struct", "fields": [{"name": name, "type": "long", "nullable": True} for name in names]}
    schema = parse_struct(document)
    family = Family("default", schema, schema, KeyLayout(KeyForm.PLAIN))
    one = _version(row(schema, [1, 2, 3, 4, 5]))
    decoder = Decoder(family, ROWS, has_families=False)
    assert decoder.key(one) == {"id": 1, "id_1": 2, "id_2": 3, "n": 4, "id_3": 5}
    (found,) = pa.Table.from_batches([decoder.decode([one], [one], 0)]).to_pandas()["key"]
    assert found == decoder.key(one)


def test_types_as_spark_prints_them() -> None:
    fields = [("a", "integer"), ("b", {"type": "map", "keyType": "string", "valueType": "decimal(10,2)", "valueContainsNull": True})]
    document = {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]}
    assert to_text(parse_struct(document)) == "struct<a:int,b:map<string,decimal(10,2)>>"


@pytest.mark.parametrize("elements", [1, 3, 64])
def test_elements_are_looked_at_some_at_a_time(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long an array is, the memory that its places take is bounded."""
    schema = Struct((Field("f", Array(Array(Atomic("byte")))), Field("g", Map(TEXT, Array(Atomic("boolean"))))))
    values = [([[1, None], [], None, [3] * 70], [("k", [True, None]), ("l", [])]), (None, None), ([], []), ([[7]], [("m", None)])]
    whole = [column.to_pylist() for column in rows_of([row(schema, one) for one in values], 0).decode(schema)]
    monkeypatch.setattr(unsafe_rows, "ELEMENTS", elements)
    assert [column.to_pylist() for column in rows_of([row(schema, one) for one in values], 0).decode(schema)] == whole
    assert list(zip(*whole, strict=True)) == values


def test_a_map_that_can_only_be_empty() -> None:
    """Spark's `map()` has keys of type void, which no map of Arrow's can have."""
    void = Map(Atomic("void"), Atomic("void"))
    schema = Struct((Field("f", void), Field("g", LONG)))
    found = rows_of([row(schema, ([], 1)), row(schema, (None, 2))], 0).decode(schema)
    assert [column.to_pylist() for column in found] == [[[], None], [1, 2]]
    found[0].validate(full=True)
    encoded = encode(schema, found, 2).slices(b"")
    assert [bytes(one) for one in encoded] == [row(schema, ([], 1)), row(schema, (None, 2))]
