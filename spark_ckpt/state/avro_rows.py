"""Rows that Spark has written with Avro in the place of `UnsafeRow` (`spark.sql.streaming.stateStore.encodingFormat=avro`).

Avro has no places of fields, so that it is read value by value; Spark's schema for it (`SchemaConverters.toAvroTypeWithDefaults`): every
field and every struct, array and map is a union with null, elements of simple types are not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.state.spark_types import Array, Atomic, Map, SparkType, Struct, columns_of, to_arrow

_ZIGZAG = frozenset(("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"))
_Read = Callable[["_Cursor"], Any]


@dataclass
class Room:
    """What rows that become one batch may take together: places in the columns of structs, which have no bytes if they are null."""

    left: int = 32 << 20

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise DamagedError("an Avro array has so many structs of so many fields that its bytes cannot hold them, nor is it read")


class _Cursor:
    def __init__(self, data: bytes, at: int, room: Room) -> None:
        self.data, self.at, self.room = data, at, room

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise DamagedError("an Avro value ends behind its bytes")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise DamagedError("an Avro number has more than 64 bits")


class AvroReader:
    """Rows of one schema, written with another one maybe: fields are found by their names, those that the writer had not are null."""

    def __init__(self, written: Struct, schema: Struct) -> None:
        self._written = _record(written)
        self._names = [field.name for field in schema.fields]
        self._kinds = [to_arrow(field.type) for field in schema.fields]

    def read(self, data: bytes, at: int, room: Room) -> dict[str, Any]:
        """One row, as what Arrow makes columns of. Raises `DamagedError`."""
        cursor = _Cursor(data, at, room)
        found: dict[str, Any] = self._written(cursor)
        if cursor.at != len(data):
            raise DamagedError(f"an Avro row ends {len(data) - cursor.at} bytes before its bytes do")
        return found

    def columns(self, rows: list[dict[str, Any]]) -> list[pa.Array]:
        try:
            return [pa.array([row.get(n) for row in rows], kind) for n, kind in zip(self._names, self._kinds, strict=True)]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
            raise DamagedError(f"Avro rows do not fit their schema ({e})") from e


def range_fields(data: bytes, at: int, count: int) -> list[tuple[int, bytes]]:
    """The ordered fields of a range scan's key: of each a byte that says whether it is null or below 0, and its big-endian bytes."""
    cursor = _Cursor(data, at, Room())
    found = []
    for _ in range(count):
        marker, value = (cursor.take(cursor.number()) if cursor.number() == 1 else b"" for _ in range(2))
        if len(marker) != 1:
            raise DamagedError("an ordered field of a key has no mark")
        found.append((marker[0], value))
    return found


def _record(schema: Struct) -> _Read:
    fields = [(field.name, _nullable(field.type)) for field in schema.fields]

    def read(cursor: _Cursor) -> dict[str, Any]:
        return {name: value(cursor) for name, value in fields}

    return read


def _nullable(spark: SparkType) -> _Read:
    if spark == Atomic("void"):
        return lambda _: None
    inner = _plain(spark)

    def read(cursor: _Cursor) -> Any:
        branch = cursor.number()
        if branch not in (0, 1):
            raise DamagedError(f"an Avro union has no branch {branch}")
        return inner(cursor) if branch else None

    return read


def _plain(spark: SparkType) -> _Read:
    if isinstance(spark, Struct):
        return _record(spark)
    if isinstance(spark, Array):
        return _blocks(_element(spark.element), columns_of(spark.element))
    if isinstance(spark, Map):
        value = _element(spark.value)
        return _blocks(lambda cursor: (_text(cursor), value(cursor)), columns_of(spark.value))
    if spark.name in _ZIGZAG:
        return _Cursor.number
    known: dict[str, _Read] = {
        "boolean": lambda cursor: cursor.take(1) != b"\0",
        "float": lambda cursor: struct.unpack("<f", cursor.take(4))[0],
        "double": lambda cursor: struct.unpack("<d", cursor.take(8))[0],
        "string": _text,
        "binary": lambda cursor: cursor.take(cursor.number()),
    }
    if spark.name == "decimal":
        return _decimal(spark)
    if spark.name not in known:
        raise FormatError(f"Spark's Avro state has no values of the type {spark.name!r}; take a newer spark-ckpt")
    return known[spark.name]


def _element(spark: SparkType) -> _Read:
    return _plain(spark) if isinstance(spark, Atomic) else _nullable(spark)


def _text(cursor: _Cursor) -> str:
    return cursor.take(cursor.number()).decode(errors="replace")


def _decimal(spark: Atomic) -> _Read:
    from decimal import Context, Decimal

    size = next(n for n in range(1, 17) if 2 ** (8 * n - 1) > 10**spark.precision - 1)
    exact = Context(prec=60)

    def read(cursor: _Cursor) -> Any:
        return Decimal(int.from_bytes(cursor.take(size), "big", signed=True)).scaleb(-spark.scale, exact)

    return read


def _blocks(item: _Read, columns: int) -> _Read:
    """An array, or a map's entries: blocks with the number of their items, which is below 0 where their size in bytes follows.

    An item takes a byte at least, be it null, and then a place in each of its `columns`.
    """

    def read(cursor: _Cursor) -> list[Any]:
        found: list[Any] = []
        while count := cursor.number():
            if count < 0:
                count = -count
                cursor.number()
            if count > len(cursor.data) - cursor.at:
                raise DamagedError(f"an Avro array is said to have {count} items, more than its bytes can hold")
            if columns > 1:
                cursor.room.take(count * columns)
            found.extend(item(cursor) for _ in range(count))
        return found

    return read
