"""Spark's `hash`, by which rows find their partition: Murmur3 with 32 bits and seed 42, then the remainder that is not below 0.

Columns are hashed one after the other, each with the last one's result as its seed; nulls change nothing; structs and arrays are what they
hold (Spark: `Murmur3HashFunction`, `Murmur3_x86_32.hashUnsafeBytes`, which takes the bytes behind the last four one by one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.spark_types import Array, Atomic, Field, SparkType, Struct, to_text
from spark_ckpt.state.unsafe_encoder import Packed, decimal_bytes, fixed_values, is_fixed, offsets_of, texts

SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_INTS = frozenset(("boolean", "byte", "short", "integer", "date", "float", "year_month"))
_LONGS = frozenset(("long", "timestamp", "timestamp_ntz", "time", "double", "day_time", "decimal"))
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32}

Hashes = np.ndarray[Any, np.dtype[np.uint32]]


def partitions(fields: Sequence[Field], columns: Sequence[pa.Array], count: int, of: int) -> Any:
    """In which of `of` partitions each row is. Raises `ConfigError` for a type that Spark's hash is not known of."""
    return hashes(fields, columns, count).view(np.int32) % np.int32(of)


def hashes(fields: Sequence[Field], columns: Sequence[pa.Array], count: int) -> Hashes:
    """As Spark's function `hash` of all columns, in 32 bits."""
    found: Hashes = np.full(count, SEED, np.uint32)
    with np.errstate(over="ignore"):
        for field, column in zip(fields, columns, strict=True):
            found = _hash(field.type, column, found)
    return found


def _hash(spark: SparkType, column: pa.Array, seed: Hashes) -> Hashes:
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if isinstance(spark, Struct):
        found = seed
        for number, field in enumerate(spark.fields):
            found = _hash(field.type, column.field(number), found)
    elif isinstance(spark, Array):
        found = _elements(spark, column, seed, valid)
    elif isinstance(spark, Atomic) and spark.name == "void":
        return seed
    elif isinstance(spark, Atomic) and spark.name in _INTS:
        found = _end(_mixed(seed, _ints(spark, column)), 4)
    elif isinstance(spark, Atomic) and spark.name in _LONGS and is_fixed(spark):
        longs = _longs(spark, column)
        low, high = longs.astype(np.uint32), (longs >> np.uint64(32)).astype(np.uint32)
        found = _end(_mixed(_mixed(seed, low), high), 8)
    elif isinstance(spark, Atomic) and spark.name == "decimal":
        found = _bytes(decimal_bytes(column), seed, valid)
    elif isinstance(spark, Atomic) and spark.name in ("string", "binary"):
        found = _bytes(texts(column), seed, valid)
    else:
        raise ConfigError(f"Spark's hash of {to_text(spark)} is not known here, so no row with such a key can be given a partition")
    return np.where(valid, found, seed)


def _ints(spark: Atomic, column: pa.Array) -> Hashes:
    values = fixed_values(spark, column)
    if spark.name == "float":
        floats: Hashes = _floats(values.view("<f4"), np.uint32)
        return floats
    found: Hashes = values.view(_SIGNED[values.dtype.itemsize]).astype(np.int32).view(np.uint32)
    return found


def _longs(spark: Atomic, column: pa.Array) -> Any:
    values = fixed_values(spark, column)
    return _floats(values.view("<f8"), np.uint64) if spark.name == "double" else values.astype(np.uint64)


def _floats(values: Any, kind: Any) -> Any:
    """-0.0 is 0.0, and there is one NaN (Java: `floatToIntBits`)."""
    values = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(values), values.dtype.type("nan"), values).view(kind)


def _elements(spark: Array, column: pa.Array, seed: Hashes, valid: Any) -> Hashes:
    """One place after the other, of all arrays that reach so far."""
    firsts, counts = offsets_of(column, valid)
    found = seed.copy()
    for place in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > place)
        found[rows] = _hash(spark.element, column.values.take(pa.array(firsts[rows] + place)), found[rows])
    return found


def _bytes(values: Packed, seed: Hashes, valid: Any) -> Hashes:
    sizes = np.where(valid, values.sizes, 0)
    data = np.concatenate([values.data, np.zeros(4, np.uint8)])
    words = sizes >> 2
    found = seed.copy()
    for place in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > place)
        at = values.starts[rows] + 4 * place
        word = np.ascontiguousarray(data[at[:, None] + np.arange(4)]).view("<u4").reshape(-1)
        found[rows] = _mixed(found[rows], word)
    for place in range(3):
        rows = np.flatnonzero((sizes & 3) > place)
        byte = data[values.starts[rows] + (sizes[rows] & ~3) + place].view(np.int8).astype(np.int32).view(np.uint32)
        found[rows] = _mixed(found[rows], byte)
    return _end(found, sizes.astype(np.uint32))


def _turned(value: Hashes, by: int) -> Hashes:
    return value << np.uint32(by) | value >> np.uint32(32 - by)


def _mixed(seed: Hashes, value: Hashes) -> Hashes:
    return _turned(seed ^ _turned(value * _C1, 15) * _C2, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _end(found: Hashes, length: Any) -> Hashes:
    found = found ^ np.uint32(length) if isinstance(length, int) else found ^ length
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return found ^ found >> np.uint32(16)
