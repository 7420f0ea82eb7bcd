"""Spark's `UnsafeRow`, decoded column by column: many rows lie in one buffer, and each field of all of them is one operation of numpy.

A row: a bit for each null field, in words of 8 bytes; then a word for each field. Values that do not fit hold offset (high half) and size
of bytes further behind, relative to the row. Arrays (`UnsafeArrayData`): number, bits for nulls, elements of their own width. Maps: size
of the array of keys, that array, the array of values. Everything little-endian, as Spark writes it on all machines that it runs on today.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import DamagedError
from spark_ckpt.state.spark_types import Array, Atomic, Map, SparkType, Struct, to_arrow

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

WIDTHS = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "date": 4, "float": 4, "year_month": 4}
"""Bytes of an element in an array; all others take 8."""
_NUMBERS: dict[str, str] = {
    "byte": "i1",
    "short": "<i2",
    "integer": "<i4",
    "date": "<i4",
    "year_month": "<i4",
    "long": "<i8",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "time": "<i8",
    "day_time": "<i8",
    "float": "<f4",
    "double": "<f8",
}
FEW_BYTES = 64
"""Values that are longer on the average are copied one by one: copying bytes by their index takes eight bytes of memory for each."""
SHORT_DECIMAL = 18
ELEMENTS = 1 << 20
"""Of arrays, looked at together: each takes some fifty bytes while it is, be it a boolean."""
MAX_EMPTY = 32 << 20
"""Places that structs which are null may take in the columns of their fields, in a few rows: they have no bytes that would bound them."""


class Rows:
    """Many rows in one buffer: `starts` and `sizes` in bytes say where each of them is."""

    def __init__(self, data: bytes, starts: Ints, sizes: Ints) -> None:
        self._bytes = memoryview(data)
        self._data = np.frombuffer(data, np.uint8)
        words = len(data) // 8
        self._words = np.frombuffer(data, "<i8", words) if words and not np.any(starts & 7) else None
        self._starts, self._sizes = starts, sizes
        self._left, self._empty = len(data), 0

    def decode(self, schema: Struct) -> list[pa.Array]:
        """A column for each field. Raises `DamagedError` where the bytes are no rows of this schema."""
        return self._fields(schema, self._starts, self._sizes, np.ones(len(self._starts), np.bool_))

    def _fields(self, schema: Struct, starts: Ints, sizes: Ints, valid: Bools) -> list[pa.Array]:
        """`valid`: which of the rows there are at all; what is said of the others is not looked at."""
        bitset = (len(schema.fields) + 63) // 64 * 8
        least = bitset + 8 * len(schema.fields)
        if np.any(valid & (sizes < least)):
            raise DamagedError(f"a row of {int(sizes[valid].min())} bytes cannot hold the {len(schema.fields)} fields of its schema")
        there = int(np.count_nonzero(valid))
        self._take(there * least)
        self._empty += (len(valid) - there) * len(schema.fields)
        if self._empty > MAX_EMPTY:
            raise DamagedError(f"structs of {len(schema.fields)} fields are null {len(valid) - there} times, which takes more than is read")
        columns = []
        for number, field in enumerate(schema.fields):
            bits = self._numbers(starts + number // 64 * 8, valid, 8, "<i8")
            given = valid & ((bits >> (number % 64)) & 1 == 0)
            columns.append(self._column(field.type, starts + bitset + 8 * number, given, starts, sizes))
        return columns

    def _take(self, count: int) -> None:
        """Spark writes each value to bytes of its own: all together have no more than there are."""
        self._left -= count
        if self._left < 0:
            raise DamagedError("values of a row lie over each other")

    def _column(self, spark: SparkType, at: Ints, valid: Bools, base: Ints, limit: Ints) -> pa.Array:
        """Values at the places `at`. What lies further behind is relative to `base`, and within `limit` bytes from there."""
        if isinstance(spark, Atomic):
            if spark.name in _NUMBERS:
                return self._fixed(spark, at, valid)
            if spark.name == "boolean":
                found = self._numbers(at, valid, 1, "i1") != 0
                return pa.Array.from_buffers(pa.bool_(), len(at), [_bitmap(valid), pa.py_buffer(np.packbits(found, bitorder="little"))])
            if spark.name == "void":
                return pa.nulls(len(at))
            if spark.name == "decimal" and spark.precision <= SHORT_DECIMAL:
                low = self._numbers(at, valid, 8, "<i8")
                return _array(to_arrow(spark), valid, np.stack([low, low >> 63], axis=1))
        starts, sizes = self._places(at, valid, base, limit)
        if isinstance(spark, Struct):
            children = self._fields(spark, starts, sizes, valid)
            return pa.Array.from_buffers(to_arrow(spark), len(at), [_bitmap(valid)], children=children)
        if isinstance(spark, Array):
            offsets, values = self._elements(spark.element, starts, sizes, valid)
            return pa.Array.from_buffers(to_arrow(spark), len(at), [_bitmap(valid), pa.py_buffer(offsets)], children=[values])
        if isinstance(spark, Map):
            return self._map(spark, starts, sizes, valid)
        if spark.name == "decimal":
            return _array(to_arrow(spark), valid, self._long_decimals(starts, sizes, valid))
        if spark.name == "interval":
            return self._intervals(starts, sizes, valid)
        if spark.name == "variant":
            return self._variants(starts, sizes, valid)
        return self._texts(to_arrow(spark), starts, sizes, valid)

    def _fixed(self, spark: Atomic, at: Ints, valid: Bools) -> pa.Array:
        return _array(to_arrow(spark), valid, self._numbers(at, valid, WIDTHS.get(spark.name, 8), _NUMBERS[spark.name]))

    def _numbers(self, at: Ints, valid: Bools, width: int, kind: str) -> Any:
        """Where nothing is valid, 0 is read."""
        at = np.where(valid, at, 0) if not valid.all() else at
        if len(at) == 0 or not valid.any():
            return np.zeros(len(at), kind)
        if int(at.max()) + width > len(self._data) or int(at.min()) < 0:
            raise DamagedError("a row refers to bytes outside of what was stored with it")
        if width == 8 and self._words is not None and not np.any(at & 7) and int(at.max()) // 8 < len(self._words):
            return self._words[at >> 3].view(kind)
        found = self._data[at[:, None] + np.arange(width)]
        return np.ascontiguousarray(found).view(kind).reshape(-1)

    def _places(self, at: Ints, valid: Bools, base: Ints, limit: Ints) -> tuple[Ints, Ints]:
        word = self._numbers(at, valid, 8, "<i8")
        offsets, sizes = (word >> 32), (word & 0xFFFFFFFF)
        if np.any(valid & ((offsets < 0) | (offsets + sizes > limit))):
            raise DamagedError("a row refers to bytes outside of it")
        return np.where(valid, base + offsets, 0), np.where(valid, sizes, 0)

    def _elements(self, spark: SparkType, starts: Ints, sizes: Ints, valid: Bools) -> tuple[Any, pa.Array]:
        """Offsets of each array's elements in the column of all of them, and that column."""
        if np.any(valid & (sizes < 8)):
            raise DamagedError("an array has no room for its length")
        counts = np.where(valid, self._numbers(starts, valid, 8, "<i8"), 0)
        width = WIDTHS.get(spark.name, 8) if isinstance(spark, Atomic) else 8
        heads = 8 + (counts + 63) // 64 * 8
        if np.any((counts < 0) | (counts > np.maximum(sizes, 0)) | (valid & (heads + counts * width > sizes))):
            raise DamagedError("an array is said to be longer than its bytes")
        self._take(int(np.where(valid, heads + counts * width, 0).sum()))
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        pieces = []
        for first in range(0, max(total, 1), ELEMENTS):
            of_all = np.arange(first, min(total, first + ELEMENTS))
            rows = np.searchsorted(ends, of_all, side="right")
            index = of_all - (ends - counts)[rows]
            bits = self._numbers(starts[rows] + 8 + index // 64 * 8, np.ones(len(rows), np.bool_), 8, "<i8")
            there = (bits >> (index % 64)) & 1 == 0
            pieces.append(self._column(spark, starts[rows] + heads[rows] + index * width, there, starts[rows], sizes[rows]))
        return np.concatenate([[0], ends]).astype("<i4"), pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def _map(self, spark: Map, starts: Ints, sizes: Ints, valid: Bools) -> pa.Array:
        if np.any(valid & (sizes < 8)):
            raise DamagedError("a map has no room for its length")
        of_keys = np.where(valid, self._numbers(starts, valid, 8, "<i8"), 0)
        if np.any((of_keys < 0) | (of_keys > np.maximum(sizes - 8, 0))):
            raise DamagedError("a map's keys are said to be longer than its bytes")
        key_offsets, keys = self._elements(spark.key, starts + 8, of_keys, valid)
        offsets, values = self._elements(spark.value, starts + 8 + of_keys, sizes - 8 - of_keys, valid)
        if not np.array_equal(key_offsets, offsets) or keys.null_count:
            raise DamagedError("a map has not as many keys as values")
        kind = to_arrow(spark)
        if len(keys) == 0:
            keys = pa.array([], kind.key_type)
        entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(starts), [_bitmap(valid), pa.py_buffer(offsets)], children=[entries])

    def _long_decimals(self, starts: Ints, sizes: Ints, valid: Bools) -> Any:
        """Big-endian two's complement of up to 16 bytes, made little-endian of 16."""
        if np.any(valid & ((sizes < 1) | (sizes > 16))):
            raise DamagedError("a decimal has more than 16 bytes, or none")
        reach = np.arange(16)
        inside = (reach < sizes[:, None]) & valid[:, None]
        at = np.where(inside, starts[:, None] + sizes[:, None] - 1 - reach, 0)
        found = self._data[at] if len(self._data) else np.zeros(at.shape, np.uint8)
        negative = self._numbers(starts, valid, 1, "i1") < 0
        return np.where(inside, found, np.where(negative, 255, 0)[:, None]).astype(np.uint8)

    def _intervals(self, starts: Ints, sizes: Ints, valid: Bools) -> pa.Array:
        if np.any(valid & (sizes < 16)):
            raise DamagedError("an interval has fewer than 16 bytes")
        made = np.zeros(len(starts), [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
        made["months"] = self._numbers(starts, valid, 4, "<i4")
        made["days"] = self._numbers(starts + 4, valid, 4, "<i4")
        micros = self._numbers(starts + 8, valid, 8, "<i8")
        if np.any(np.abs(micros // 1000) > (2**63 - 1) // 1_000_000):
            raise DamagedError("an interval is longer than Arrow can say in nanoseconds")
        made["nanoseconds"] = micros * 1000
        return _array(pa.month_day_nano_interval(), valid, made)

    def _variants(self, starts: Ints, sizes: Ints, valid: Bools) -> pa.Array:
        if np.any(valid & (sizes < 4)):
            raise DamagedError("a variant has no room for its length")
        of_value = self._numbers(starts, valid, 4, "<i4").astype(np.int64)
        if np.any(valid & ((of_value < 0) | (of_value > sizes - 4))):
            raise DamagedError("a variant's value is said to be longer than its bytes")
        value = self._texts(pa.binary(), starts + 4, np.where(valid, of_value, 0), valid)
        metadata = self._texts(pa.binary(), starts + 4 + of_value, np.where(valid, sizes - 4 - of_value, 0), valid)
        kind = to_arrow(Atomic("variant"))
        return pa.Array.from_buffers(kind, len(starts), [_bitmap(valid)], children=[value, metadata])

    def _texts(self, kind: pa.DataType, starts: Ints, sizes: Ints, valid: Bools) -> pa.Array:
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        self._take(total)
        offsets = np.concatenate([[0], ends]).astype("<i4")
        if total > 2**31 - 1:
            raise DamagedError("values of a few rows are longer than Arrow takes")
        values = pa.py_buffer(self._cut(starts, sizes, total))
        made = pa.Array.from_buffers(kind, len(starts), [_bitmap(valid), pa.py_buffer(offsets), values])
        return _text(made) if pa.types.is_string(kind) else made

    def _cut(self, starts: Ints, sizes: Ints, total: int) -> Any:
        """These bytes, one behind the other."""
        alike = self._alike(starts, sizes)
        if alike is not None:
            return alike
        if total > FEW_BYTES * len(starts):
            return b"".join([self._bytes[at : at + size] for at, size in zip(starts.tolist(), sizes.tolist(), strict=True)])
        index = np.arange(total) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return self._data[index]


    def _alike(self, starts: Ints, sizes: Ints) -> Any | None:
        """The same for pieces of one size that lie as far from each other as the first two: texts of one length, in rows of one."""
        if len(starts) < 2 or np.any(sizes != sizes[0]):
            return None
        step = int(starts[1] - starts[0])
        if step < 0 or np.any(np.diff(starts) != step):
            return None
        pieces = np.ndarray((len(starts), int(sizes[0])), np.uint8, self._data, int(starts[0]), (step, 1))
        return np.ascontiguousarray(pieces).reshape(-1)


def rows_of(values: Sequence[bytes], skip: int, version: int | None = None) -> Rows:
    """One row in each value, behind `skip` bytes, the last of which is the row's version. None: any, or there is none.

    Between rows lie so many bytes that they begin where words do, as far as that can be. Raises `DamagedError`.
    """
    between = b"\0" * (-skip % 8)
    data = between + between.join(values) + b"\0" * 8
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    starts = len(between) + skip + np.concatenate([[0], np.cumsum(sizes + len(between))[:-1]]).astype(np.int64)
    if np.any(sizes < skip):
        raise DamagedError(f"a row of {int(sizes.min())} bytes is too short")
    starts = starts[: len(values)]
    if version is not None and np.any(np.frombuffer(data, np.uint8)[starts - 1] != version):
        raise DamagedError(f"a row has not Spark's version {version}; it was written by a newer Spark, or is damaged")
    return Rows(data, starts, sizes - skip)


def _array(kind: pa.DataType, valid: Bools, numbers: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(numbers))])


def _bitmap(valid: Bools) -> Any:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text(made: pa.Array) -> pa.Array:
    """Spark does not look whether a string is UTF-8; who takes Arrow's relies on it. What is not is replaced, as Java prints it."""
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        texts = [None if v is None else v.decode(errors="replace") for v in made.view(pa.binary()).to_pylist()]
        return pa.array(texts, pa.string())
    return made
