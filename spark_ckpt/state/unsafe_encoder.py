"""Spark's `UnsafeRow`, written column by column: the way back of `unsafe_rows.py`, which says how a row is laid out.

Keys are found by their bytes, so that these are the very ones that Spark's own `UnsafeRowWriter` and `UnsafeArrayWriter` write: unused
bytes are 0; in a row, and not in an array, a decimal of more than 18 digits and an interval take 16 bytes, also when they are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.spark_types import Array, Atomic, Map, SparkType, Struct
from spark_ckpt.state.unsafe_rows import FEW_BYTES, SHORT_DECIMAL, WIDTHS, Bools, Ints

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_ALWAYS = 16
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Packed:
    """Many values in one buffer: `starts` and `sizes` in bytes say where each of them is."""

    data: Any
    starts: Ints
    sizes: Ints

    def slices(self, before: bytes = b"") -> list[bytes]:
        """Each of them, behind `before`."""
        data = self.data.tobytes()
        ends = self.starts + self.sizes
        return [before + data[at:end] for at, end in zip(self.starts.tolist(), ends.tolist(), strict=True)]


def encode(schema: Struct, columns: Sequence[pa.Array], count: int) -> Packed:
    """`count` rows of this schema; `columns` has an array for each field, of the type that `to_arrow` gives. Raises `ConfigError`."""
    fields = len(schema.fields)
    bits = (fields + 63) // 64
    fixed = 8 * (bits + fields)
    sizes = np.full(count, fixed, np.int64)
    words: list[Any] = []
    behind: list[tuple[Ints, Packed]] = []
    nulls = [np.zeros(count, np.uint64) for _ in range(bits)]
    for number, (field, column) in enumerate(zip(schema.fields, columns, strict=True)):
        valid = _valid(column)
        nulls[number // 64] |= np.where(valid, np.uint64(0), np.uint64(1 << number % 64))
        if is_fixed(field.type):
            words.append(_word(field.type, column, valid))
            continue
        packed = _variable(field.type, column, valid)
        word = sizes << 32 | packed.sizes
        if _takes_always(field.type):
            words.append(word)
            room: Ints = np.full(count, _ALWAYS, np.int64)
        else:
            words.append(np.where(valid, word, 0))
            room = (packed.sizes + 7) & ~7
        behind.append((sizes, packed))
        sizes = sizes + room
    starts = _starts(sizes)
    data = np.zeros(int(sizes.sum()), np.uint8)
    as_words, base = data.view("<u8"), starts >> 3
    for number, word in enumerate([*nulls, *words]):
        as_words[base + number] = word.view(np.uint64)
    for offsets, packed in behind:
        _copy(data, starts + offsets, packed)
    return Packed(data, starts, sizes)


def is_fixed(spark: SparkType) -> bool:
    """Whether a value lies in the word of its field."""
    if not isinstance(spark, Atomic):
        return False
    return spark.name not in ("string", "binary", "interval", "variant") and not (
        spark.name == "decimal" and spark.precision > SHORT_DECIMAL
    )


def fixed_values(spark: Atomic, column: pa.Array) -> Any:
    """As numpy numbers of the width that they have in an array, unsigned; what is said of nulls is not to be looked at."""
    if spark.name == "void":
        return np.zeros(len(column), np.uint64)
    if spark.name == "boolean":
        return np.asarray(column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False), np.uint8)
    if spark.name == "decimal":
        return _buffer(column, "<u8", 2)[:, 0]
    width = WIDTHS.get(spark.name, 8)
    return _buffer(column, np.dtype(_UNSIGNED[width]).newbyteorder("<"), 1)[:, 0]


def decimal_bytes(column: pa.Array) -> Packed:
    """Of decimals with more than 18 digits: the fewest bytes of two's complement, big-endian (Java: `BigInteger.toByteArray`)."""
    low, high = (_buffer(column, "<u8", 2)[:, n] for n in (0, 1))
    negative = high >> np.uint64(63) != 0
    turned = np.where(negative, np.uint64(2**64 - 1), np.uint64(0))
    data = np.stack([high, low], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)
    magnitude = np.stack([high ^ turned, low ^ turned], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)
    # The first byte that says anything; one more where its highest bit would be taken for the sign.
    first = np.where(magnitude.any(axis=1), (magnitude != 0).argmax(axis=1), 16)
    highest = np.where(first < 16, magnitude[np.arange(len(magnitude)), np.minimum(first, 15)] >= 128, True)
    sizes = 16 - first + highest
    starts = 16 * np.arange(len(magnitude)) + 16 - sizes
    return Packed(np.ascontiguousarray(data).reshape(-1), starts.astype(np.int64), sizes.astype(np.int64))


def texts(column: pa.Array) -> Packed:
    """Of strings and binaries, as Arrow has them."""
    offsets = np.frombuffer(column.buffers()[1], "<i4", len(column) + 1, 4 * column.offset).astype(np.int64) if len(column) else _none()
    held = column.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None else np.zeros(0, np.uint8)
    return Packed(data, offsets[:-1], np.diff(offsets))


def offsets_of(column: pa.Array, valid: Bools) -> tuple[Ints, Ints]:
    """Of lists and maps: where each begins in the array of all elements, and how many it has."""
    offsets = np.frombuffer(column.buffers()[1], "<i4", len(column) + 1, 4 * column.offset).astype(np.int64) if len(column) else _none()
    return offsets[:-1], np.where(valid, np.diff(offsets), 0)


def _none() -> Ints:
    return np.zeros(1, np.int64)


def _takes_always(spark: SparkType) -> bool:
    return isinstance(spark, Atomic) and spark.name in ("decimal", "interval")


def _word(spark: SparkType, column: pa.Array, valid: Bools) -> Any:
    assert isinstance(spark, Atomic)
    return np.where(valid, fixed_values(spark, column).astype(np.uint64), np.uint64(0))


def _variable(spark: SparkType, column: pa.Array, valid: Bools) -> Packed:
    """The bytes of each value; none where it is null."""
    if isinstance(spark, Struct):
        made = encode(spark, [column.field(n) for n in range(len(spark.fields))], len(column))
    elif isinstance(spark, Array):
        made = _arrays(spark.element, column.values, *offsets_of(column, valid))
    elif isinstance(spark, Map):
        starts, counts = offsets_of(column, valid)
        made = _maps(_arrays(spark.key, column.keys, starts, counts), _arrays(spark.value, column.items, starts, counts))
    elif spark.name == "decimal":
        made = decimal_bytes(column)
    elif spark.name == "interval":
        made = _intervals(column)
        return Packed(np.where(valid.repeat(_ALWAYS), made.data, 0).astype(np.uint8), made.starts, made.sizes)
    elif spark.name == "variant":
        made = _variants(texts(column.field(0)), texts(column.field(1)))
    else:
        made = texts(column)
    return Packed(made.data, made.starts, np.where(valid, made.sizes, 0))


def _arrays(element: SparkType, values: pa.Array, firsts: Ints, counts: Ints) -> Packed:
    """`UnsafeArrayData`: number, bits for nulls, elements of their own width, what did not fit."""
    total = int(counts.sum())
    rows = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(total) - np.repeat(_starts(counts), counts)
    chosen = values.take(pa.array(firsts[rows] + index)) if total else values.slice(0, 0)
    valid = _valid(chosen)
    width = WIDTHS.get(element.name, 8) if isinstance(element, Atomic) else 8
    heads = 8 + (counts + 63) // 64 * 8
    fixed = heads + ((counts * width + 7) & ~7)
    packed = None if is_fixed(element) else _variable(element, chosen, valid)
    if packed is not None:
        packed = Packed(packed.data, packed.starts, np.where(valid, packed.sizes, 0))  # an interval takes 16 bytes of a row, be it null
    room = np.zeros(total, np.int64) if packed is None else (packed.sizes + 7) & ~7
    before = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    ends = np.cumsum(counts)
    sizes = fixed + before[ends] - before[ends - counts]
    starts = _starts(sizes)
    data = np.zeros(int(sizes.sum()), np.uint8)
    data.view("<i8")[starts >> 3] = counts
    lacking, at = rows[~valid], index[~valid]
    np.bitwise_or.at(data, starts[lacking] + 8 + (at >> 3), (1 << (at & 7)).astype(np.uint8))
    place = starts[rows] + heads[rows] + index * width
    if packed is None:
        assert isinstance(element, Atomic)
        numbers = np.where(valid, fixed_values(element, chosen), 0).astype(_UNSIGNED[width])
        _put(data, place, np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width))
    else:
        offsets = fixed[rows] + before[:-1] - before[ends - counts][rows]
        words = np.where(valid, offsets << 32 | packed.sizes, 0)
        _put(data, place, np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8))
        _copy(data, starts[rows] + offsets, packed)
    return Packed(data, starts, sizes)


def _put(data: Any, place: Ints, values: Any) -> None:
    if len(place):
        data[place[:, None] + np.arange(values.shape[1])] = values


def _maps(keys: Packed, values: Packed) -> Packed:
    sizes = 8 + keys.sizes + values.sizes
    starts = _starts(sizes)
    data = np.zeros(int(sizes.sum()), np.uint8)
    data.view("<i8")[starts >> 3] = keys.sizes
    _copy(data, starts + 8, keys)
    _copy(data, starts + 8 + keys.sizes, values)
    return Packed(data, starts, sizes)


def _intervals(column: pa.Array) -> Packed:
    held = _buffer(column, np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")]), 1)[:, 0]
    if np.any(_valid(column) & (held["nanoseconds"] % 1000 != 0)):
        raise ConfigError("an interval has nanoseconds, and Spark's have microseconds; round it")
    made = np.zeros(len(column), [("months", "<i4"), ("days", "<i4"), ("microseconds", "<i8")])
    made["months"], made["days"], made["microseconds"] = held["months"], held["days"], held["nanoseconds"] // 1000
    return Packed(made.view(np.uint8), 16 * np.arange(len(column)), np.full(len(column), 16, np.int64))


def _variants(value: Packed, metadata: Packed) -> Packed:
    sizes = 4 + value.sizes + metadata.sizes
    starts = _starts(sizes)
    data = np.zeros(int(sizes.sum()), np.uint8)
    _put(data, starts, np.ascontiguousarray(value.sizes.astype("<i4")).view(np.uint8).reshape(-1, 4))
    _copy(data, starts + 4, value)
    _copy(data, starts + 4 + value.sizes, metadata)
    return Packed(data, starts, sizes)


def _copy(data: Any, at: Ints, values: Packed) -> None:
    """Each value's bytes to its place."""
    total = int(values.sizes.sum())
    if total > FEW_BYTES * len(values.sizes):
        for to, begin, size in zip(at.tolist(), values.starts.tolist(), values.sizes.tolist(), strict=True):
            data[to : to + size] = values.data[begin : begin + size]
    elif total:
        index = np.arange(total) - np.repeat(_starts(values.sizes), values.sizes)
        data[np.repeat(at, values.sizes) + index] = values.data[np.repeat(values.starts, values.sizes) + index]


def _starts(sizes: Ints) -> Ints:
    """Where each begins, one behind the other. Raises `ConfigError` for more than Spark takes in one row."""
    if len(sizes) and int(sizes.max()) > _MOST:
        raise ConfigError("a row has more than 2 GiB, which Spark does not hold; make it smaller")
    return np.cumsum(sizes) - sizes


def _valid(column: pa.Array) -> Bools:
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _buffer(column: pa.Array, kind: Any, each: int) -> Any:
    """The numbers of a column, `each` of them a value."""
    size = np.dtype(kind).itemsize * each
    if len(column) == 0:
        return np.zeros((0, each), kind)
    return np.frombuffer(column.buffers()[1], kind, len(column) * each, size * column.offset).reshape(-1, each)
