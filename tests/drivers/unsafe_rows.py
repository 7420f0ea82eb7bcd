"""Spark's `UnsafeRow` and `UnsafeArrayData`, written value by value from Spark's own description: what the reader is compared with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

from spark_ckpt.state.spark_types import Array, Atomic, Map, SparkType, Struct

EXACT = Context(prec=60)
"""For decimals of 38 digits: Python's own context rounds to 28."""
_FORMS = {
    "boolean": "<?",
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "date": "<i",
    "year_month": "<i",
    "float": "<f",
    "double": "<d",
    "long": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "time": "<q",
    "day_time": "<q",
}


def row(schema: Struct, values: Sequence[Any]) -> bytes:
    """Numbers of days, microseconds and so on stand for dates and times; an interval is (months, days, microseconds)."""
    head = (len(schema.fields) + 63) // 64 * 8
    fixed = bytearray(head + 8 * len(schema.fields))
    variable = bytearray()
    for number, (field, value) in enumerate(zip(schema.fields, values, strict=True)):
        at = head + 8 * number
        behind = len(variable)
        if value is None:
            _set_null(fixed, number)
        else:
            _put(fixed, at, 8, variable, len(fixed), field.type, value)
        if isinstance(field.type, Atomic) and (field.type.name == "interval" or field.type.precision > 18):
            # Spark takes 16 bytes for these, so that they can be changed in place, and says where even of null.
            variable += bytes(behind + 16 - len(variable))
            if value is None:
                fixed[at : at + 8] = struct.pack("<q", (len(fixed) + behind) << 32 | (16 if field.type.name == "interval" else 0))
    return bytes(fixed + variable)


def array(element: SparkType, values: Sequence[Any]) -> bytes:
    width = _width(element)
    head = 8 + (len(values) + 63) // 64 * 8
    fixed = bytearray(head + (len(values) * width + 7) // 8 * 8)
    fixed[:8] = struct.pack("<q", len(values))
    variable = bytearray()
    for number, value in enumerate(values):
        if value is None:
            _set_null(fixed, number, 8)
        else:
            _put(fixed, head + number * width, width, variable, len(fixed), element, value)
    return bytes(fixed + variable)


def _set_null(fixed: bytearray, number: int, begin: int = 0) -> None:
    fixed[begin + number // 8] |= 1 << number % 8


def _width(spark: SparkType) -> int:
    return struct.calcsize(_FORMS[spark.name]) if isinstance(spark, Atomic) and spark.name in _FORMS else 8


def _put(fixed: bytearray, at: int, width: int, variable: bytearray, behind: int, spark: SparkType, value: Any) -> None:
    if isinstance(spark, Atomic) and spark.name in _FORMS:
        packed = struct.pack(_FORMS[spark.name], value)
    elif isinstance(spark, Atomic) and spark.name == "decimal" and spark.precision <= 18:
        packed = struct.pack("<q", int(Decimal(value).scaleb(spark.scale, EXACT)))
    else:
        data = _bytes(spark, value)
        packed = struct.pack("<q", (behind + len(variable)) << 32 | len(data))
        variable += data + bytes(-len(data) % 8)
    fixed[at : at + len(packed)] = packed
    assert len(packed) <= width


def _bytes(spark: SparkType, value: Any) -> bytes:
    if isinstance(spark, Struct):
        return row(spark, value)
    if isinstance(spark, Array):
        return array(spark.element, value)
    if isinstance(spark, Map):
        keys = array(spark.key, [key for key, _ in value])
        return struct.pack("<q", len(keys)) + keys + array(spark.value, [item for _, item in value])
    if spark.name == "decimal":
        number = int(Decimal(value).scaleb(spark.scale, EXACT))
        return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    if spark.name == "interval":
        return struct.pack("<iiq", *value)
    if spark.name == "variant":
        return b"".join([struct.pack("<i", len(value[0])), *value])
    data: bytes = value.encode() if isinstance(value, str) else bytes(value)
    return data
