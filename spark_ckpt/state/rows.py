"""From a store's entries to Arrow: the bytes of keys and values, as Spark's encoders have laid them out (Spark: `RocksDBStateEncoder`).

A key: the number of its column family (two bytes, little-endian) where its store has those; then its layout. PLAIN: one encoded row.
PREFIX and RANGE: the length of a row (four bytes, little-endian), that row with the columns in front, a row with all others. An encoded
row: a byte of version, 0; then `UnsafeRow`, or the number of its schema (two bytes, little-endian) and Avro. The ordered columns of RANGE
are binary: a byte that says whether the value is below 0, not, or null, and the value, big-endian; floating-point numbers below 0 have all
bits turned. Values of a list stand behind their length (four bytes, little-endian), one behind the other, with the delimiter between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.state.avro_rows import AvroReader, Room, range_fields
from spark_ckpt.state.schemas import Family, KeyForm, Variable
from spark_ckpt.state.spark_types import Atomic, Field, Struct, columns_of, to_arrow
from spark_ckpt.state.unsafe_rows import rows_of

_PLACES = 4 << 20
"""Of a batch, in all of its columns: a struct that is null has no bytes, but a place in the columns of its fields."""
_REPEATED = 16 << 20
"""Bytes of a list's key that are put beside its values before a batch ends."""
_VERSION = 0
_NEGATIVE, _NULL = 0, 2
_ORDERED = {"byte": ">i1", "short": ">i2", "integer": ">i4", "long": ">i8", "float": ">f4", "double": ">f8", "boolean": ">i1"}


@dataclass(frozen=True)
class Encoding:
    """How a stream writes its rows, as the configuration in its offset log says."""

    avro: bool
    delimiter: bytes

    def __post_init__(self) -> None:
        if len(self.delimiter) > 1:
            raise FormatError(f"values of lists are delimited by {self.delimiter!r}, which this spark-ckpt does not know; take a newer one")


class Decoder:
    """Entries of one column family. `schema` is that of the batches: what Spark's own reader gives, less its nullability."""

    def __init__(self, family: Family, encoding: Encoding, has_families: bool) -> None:
        self._family, self._encoding = family, encoding
        self._skip = 2 if has_families else 0
        self._columns = _columns(family)
        self.schema = pa.schema([pa.field(name, kind) for name, kind in self._columns] + [pa.field("partition_id", pa.int32())])

    @property
    def rows_at_once(self) -> int:
        """Entries that may become one batch, however few bytes they have."""
        return max(1, _PLACES // (columns_of(self._family.key) + columns_of(self._family.value)))

    def batches(self, keys: Sequence[bytes], values: Sequence[bytes], partition: int) -> Iterator[pa.RecordBatch]:
        """One, or several of a list that has a large key beside very many values. Raises like `decode`."""
        if not self._family.is_list:
            yield self.decode(keys, values, partition)
            return
        key = self._keys(keys)
        counts, apart = self._apart(values)
        of = np.repeat(np.arange(len(keys)), counts)
        repeated = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys))[of])
        group = repeated // _REPEATED + np.arange(len(of)) // self.rows_at_once
        ends = [*(np.flatnonzero(np.diff(group)) + 1).tolist(), len(of)]
        for begin, end in zip([0, *ends], ends, strict=False):
            yield self._batch(key.take(_numbers(of[begin:end])), apart[begin:end], partition)

    def decode(self, keys: Sequence[bytes], values: Sequence[bytes], partition: int) -> pa.RecordBatch:
        """Raises `DamagedError` for what was not written with the family's schema."""
        key = self._keys(keys)
        if self._family.is_list:
            counts, values = self._apart(values)
            key = key.take(_numbers(np.repeat(np.arange(len(keys)), counts)))
        return self._batch(key, values, partition)

    def _batch(self, key: pa.StructArray, values: Sequence[bytes], partition: int) -> pa.RecordBatch:
        family = self._family
        if family.variable is Variable.TIMER:
            parts = [key.field("key"), key.field("expiryTimestampMs")]
        else:
            value = self._values(values)
            parts = [key.field("key"), key.field("userKey"), value] if family.variable is Variable.MAP else [key, value]
        ids = _numbers(np.full(len(key), partition, np.int32))
        return pa.RecordBatch.from_arrays([*parts, ids], schema=self.schema)

    def lengths(self, values: Sequence[bytes]) -> list[int]:
        """How many values each of these lists has. Raises `DamagedError`."""
        return self._apart(values)[0]

    def keys(self, keys: Sequence[bytes]) -> pa.StructArray:
        """With all columns of the family's key. Raises `DamagedError`."""
        return self._keys(keys)

    def values_of_list(self, value: bytes) -> list[bytes]:
        """Of one list. Raises `DamagedError`."""
        return self._apart([value])[1]

    def list_of(self, values: Sequence[bytes]) -> bytes:
        """These values as one list has them."""
        return self._encoding.delimiter.join(len(value).to_bytes(4, "little") + value for value in values)

    def key(self, key: bytes) -> Any:
        """One key, as Python's values. A date or time that Python has not, after the year 9999 say, is text."""
        return _python(self._keys([key])[0])

    def _apart(self, values: Sequence[bytes]) -> tuple[list[int], list[bytes]]:
        """How many values each list has, and the values of all."""
        counts: list[int] = []
        apart: list[bytes] = []
        between = len(self._encoding.delimiter)
        for value in values:
            before, at = len(apart), 0
            while at < len(value):
                begin = at + 4
                end = begin + int.from_bytes(value[at:begin], "little", signed=True)
                if end < begin or end > len(value):
                    raise DamagedError("a list's value is said to be longer than its bytes")
                apart.append(value[begin:end])
                at = end + between
            counts.append(len(apart) - before)
        return counts, apart

    def _keys(self, keys: Sequence[bytes]) -> pa.StructArray:
        schema, layout = self._family.key, self._family.layout
        if layout.form is KeyForm.PLAIN:
            return _struct(schema, len(keys), self._rows(schema, keys, self._skip, numbered=True))
        front, rest = _split(keys, self._skip)
        if layout.form is KeyForm.PREFIX:
            first, last = schema.fields[: layout.prefix], schema.fields[layout.prefix :]
            columns = self._rows(Struct(first), front, 0, numbered=False) + self._rows(Struct(last), rest, 0, numbered=True)
            return _struct(schema, len(keys), columns)
        ordered = [schema.fields[ordinal] for ordinal in layout.ordered]
        others = [n for n in range(len(schema.fields)) if n not in layout.ordered]
        found = dict(zip(layout.ordered, self._ordered(ordered, front), strict=True))
        if others:
            left = self._rows(Struct(tuple(schema.fields[n] for n in others)), rest, 0, numbered=True)
            found.update(zip(others, left, strict=True))
        return _struct(schema, len(keys), [found[n] for n in range(len(schema.fields))])

    def _values(self, values: Sequence[bytes]) -> pa.StructArray:
        schema = self._family.value
        return _struct(schema, len(values), self._rows(schema, values, 0, numbered=True, value=True))

    def _rows(self, schema: Struct, rows: Sequence[bytes], skip: int, *, numbered: bool, value: bool = False) -> list[pa.Array]:
        """`numbered`: an Avro row begins with the number of its schema."""
        if not self._encoding.avro:
            return rows_of(rows, skip + 1, _VERSION).decode(schema)
        return self._avro(schema, rows, skip + 1, numbered, value)

    def _avro(self, schema: Struct, rows: Sequence[bytes], skip: int, numbered: bool, value: bool) -> list[pa.Array]:
        readers: dict[int, AvroReader] = {}
        room = Room()
        found = []
        for row in rows:
            if row[skip - 1 : skip] != bytes([_VERSION]):
                raise DamagedError(f"a row has not Spark's version {_VERSION}; it was written by a newer Spark, or is damaged")
            number, at = (int.from_bytes(row[skip : skip + 2], "little", signed=True), skip + 2) if numbered else (0, skip)
            if number not in readers:
                readers[number] = AvroReader(self._written(number, schema, value), schema)
            found.append(readers[number].read(row, at, room))
        reader = next(iter(readers.values()), None) or AvroReader(schema, schema)
        return reader.columns(found)

    def _written(self, number: int, schema: Struct, value: bool) -> Struct:
        """Of a key Spark takes today's schema, whatever the number."""
        if not value or self._family.written is None:
            return schema
        if number not in self._family.written:
            raise DamagedError(f"a value of {self._family.name} names schema {number}, of which the checkpoint says nothing; it is damaged")
        return self._family.written[number]

    def _ordered(self, fields: Sequence[Field], rows: Sequence[bytes]) -> list[pa.Array]:
        if self._encoding.avro:
            read = [range_fields(row, 1, len(fields)) for row in rows]
            return [_turned_back(field, [row[n] for row in read]) for n, field in enumerate(fields)]
        binary = Struct(tuple(Field(field.name, Atomic("binary")) for field in fields))
        columns = self._rows(binary, rows, 0, numbered=False)
        return [
            _turned_back(field, [(value[0], value[1:]) if value else (_NULL, b"") for value in column.to_pylist()])
            for field, column in zip(fields, columns, strict=True)
        ]


def _numbers(values: Any) -> pa.Array:
    """NumPy's, as they lie in memory. For `pa.array` Arrow imports pandas, which takes longer than to read a small state."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _columns(family: Family) -> list[tuple[str, pa.DataType]]:
    if family.variable is Variable.TIMER:
        return [("key", to_arrow(family.key.field("key").type)), ("expiration_timestamp_ms", pa.int64())]
    if family.variable is Variable.MAP:
        key, of_map = (to_arrow(family.key.field(name).type) for name in ("key", "userKey"))
        return [("key", key), ("user_map_key", of_map), ("user_map_value", to_arrow(family.value))]
    return [("key", to_arrow(family.key)), ("list_element" if family.is_list else "value", to_arrow(family.value))]


def _split(keys: Sequence[bytes], skip: int) -> tuple[list[bytes], list[bytes]]:
    front, rest = [], []
    begin = skip + 4
    for key in keys:
        size = int.from_bytes(key[skip:begin], "little", signed=True)
        if not 0 < size <= len(key) - begin:
            raise DamagedError("a key's first columns are said to be longer than the key")
        front.append(key[begin : begin + size])
        rest.append(key[begin + size :])
    return front, rest


def _struct(schema: Struct, length: int, columns: Sequence[pa.Array]) -> pa.StructArray:
    """An aggregation without keys has a key without fields, of which there is one."""
    return pa.Array.from_buffers(to_arrow(schema), length, [None], children=list(columns))


def _turned_back(field: Field, values: Sequence[tuple[int, bytes]]) -> pa.Array:
    name = field.type.name if isinstance(field.type, Atomic) else ""
    if name not in _ORDERED:
        raise FormatError(f"keys are ordered by {field.name}, whose type this spark-ckpt does not know as ordered; take a newer one")
    form = np.dtype(_ORDERED[name])
    valid = np.array([mark != _NULL for mark, _ in values], np.bool_)
    if any(mark != _NULL and len(data) != form.itemsize for mark, data in values):
        raise DamagedError(f"a key's ordered column {field.name} has not the {form.itemsize} bytes of its type")
    joined = b"".join(data if mark != _NULL else bytes(form.itemsize) for mark, data in values)
    found: Any = np.frombuffer(joined, form)
    if form.kind == "f":
        bits = found.view(f">u{form.itemsize}")
        turned = np.array([mark == _NEGATIVE for mark, _ in values], np.bool_)
        found = np.where(turned, ~bits, bits).astype(f"=u{form.itemsize}").view(f"=f{form.itemsize}")
    else:
        found = found.astype(form.newbyteorder("="))
    return pa.array(found.astype(np.bool_) if name == "boolean" else found, to_arrow(field.type), mask=~valid)


def _python(one: Any) -> Any:
    """The Arrow scalar `one`."""
    if not one.is_valid:
        return None
    if pa.types.is_struct(one.type):
        return {name: _python(item) for name, item in one.items()}
    if pa.types.is_map(one.type):
        return [tuple(_python(item) for item in entry.values()) for entry in one.values]
    if pa.types.is_list(one.type):
        return [_python(item) for item in one.values]
    try:
        return one.as_py()
    except (OverflowError, ValueError):
        unit: Any = "D" if pa.types.is_date(one.type) else getattr(one.type, "unit", None)
        return str(one.value if unit is None or pa.types.is_time(one.type) else np.datetime64(one.value, unit))
