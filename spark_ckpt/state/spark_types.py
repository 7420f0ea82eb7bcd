"""Spark's types, as its JSON names them (`StructType.json`), and the Arrow types that they become."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_ckpt.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH = 64
"""Types within types."""
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(-?\d{1,2})\)")
_TEXT = re.compile(r"string|char\(\d+\)|varchar\(\d+\)|string collate .*")
_TIME = re.compile(r"time(\(\d\))?")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_YEAR_MONTH = re.compile(r"interval (year|month)( to month)?")
_PLAIN = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "binary", "date", "timestamp", "timestamp_ntz", "interval", "void")
)


@dataclass(frozen=True)
class Atomic:
    """`name`: of `_PLAIN`, or `string`, `decimal`, `time`, `day_time`, `year_month`, `variant`. The numbers are a decimal's."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Array:
    element: SparkType
    nullable: bool = True


@dataclass(frozen=True)
class Map:
    key: SparkType
    value: SparkType
    nullable: bool = True


@dataclass(frozen=True)
class Field:
    name: str
    type: SparkType
    nullable: bool = True


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...] = ()

    def field(self, name: str) -> Field:
        """Raises KeyError."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


SparkType = Atomic | Array | Map | Struct


def parse_struct(document: Any) -> Struct:
    """Raises `FormatError` for what is no schema, or has a type that this version does not know."""
    try:
        parsed = _parse(document, 0)
    except (KeyError, TypeError, AttributeError) as e:
        raise FormatError(f"a state schema cannot be read ({type(e).__name__}: {e}); it is damaged") from e
    if not isinstance(parsed, Struct):
        raise FormatError("a state schema is no struct; it is damaged")
    return parsed


def _parse(document: Any, depth: int) -> SparkType:
    if depth > MAX_DEPTH:
        raise FormatError(f"a state schema has more than {MAX_DEPTH} types within each other; it is damaged or forged")
    if isinstance(document, str):
        return _atomic(document)
    kind = document["type"]
    if kind == "struct":
        names = _distinct([str(f["name"]) for f in document["fields"]])
        types = [(_parse(f["type"], depth + 1), bool(f["nullable"])) for f in document["fields"]]
        return Struct(tuple(Field(name, *kind) for name, kind in zip(names, types, strict=True)))
    if kind == "array":
        return Array(_parse(document["elementType"], depth + 1), bool(document["containsNull"]))
    if kind == "map":
        return Map(_parse(document["keyType"], depth + 1), _parse(document["valueType"], depth + 1), bool(document["valueContainsNull"]))
    if kind == "udt":
        return _parse(document["sqlType"], depth + 1)
    raise FormatError(f"the type {str(kind)!r:.100} in a state schema is not known to this spark-ckpt; take a newer one")


def _distinct(names: list[str]) -> list[str]:
    """Spark has fields of one name, after a join say; here the second `id` is `id_1`, so that none hides another."""
    taken, seen = set(names), dict.fromkeys(names, 0)
    found = []
    for name in names:
        shown, seen[name] = name, seen[name] + 1
        if seen[name] > 1:
            while (shown := f"{name}_{seen[name] - 1}") in taken:
                seen[name] += 1
            taken.add(shown)
        found.append(shown)
    return found


def _atomic(name: str) -> Atomic:
    if name in _PLAIN:
        return Atomic(name)
    if _TEXT.fullmatch(name):
        return Atomic("string")
    if name == "variant":
        return Atomic("variant")
    for pattern, known in ((_TIME, "time"), (_DAY_TIME, "day_time"), (_YEAR_MONTH, "year_month")):
        if pattern.fullmatch(name):
            return Atomic(known)
    m = _DECIMAL.fullmatch(name)
    if m is not None and 1 <= int(m.group(1)) <= 38:
        return Atomic("decimal", int(m.group(1)), int(m.group(2)))
    raise FormatError(f"the type {name!r:.100} in a state schema is not known to this spark-ckpt; take a newer one")


def columns_of(spark: SparkType) -> int:
    """Arrow's columns that have a place for each such value, be it null: those of a struct's fields, and of their fields."""
    return 1 + sum(columns_of(field.type) for field in spark.fields) if isinstance(spark, Struct) else 1


def to_arrow(spark: SparkType) -> pa.DataType:
    """Timestamps are microseconds, in UTC where Spark's have a zone. Intervals: of days a duration in microseconds, of months an int32,
    of both Arrow's own; a variant is a struct of two binaries, as Spark's Parquet has it."""
    import pyarrow as pa

    if isinstance(spark, Struct):
        return pa.struct([pa.field(f.name, to_arrow(f.type)) for f in spark.fields])
    if isinstance(spark, Array):
        return pa.list_(to_arrow(spark.element))
    if isinstance(spark, Map):
        return pa.map_(to_arrow(key_of(spark)), to_arrow(spark.value))
    if spark.name == "decimal":
        return pa.decimal128(spark.precision, spark.scale)
    return _arrow_types()[spark.name]


def key_of(spark: Map) -> SparkType:
    """What keys of a map are in Arrow, which has none that are null: the empty map of Spark's `map()` has keys of type void."""
    return Atomic("string") if spark.key == Atomic("void") else spark.key


def _arrow_types() -> Mapping[str, pa.DataType]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "time": pa.time64("ns"),
        "day_time": pa.duration("us"),
        "year_month": pa.int32(),
        "interval": pa.month_day_nano_interval(),
        "variant": pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())]),
        "void": pa.null(),
    }


def to_text(spark: SparkType, names: bool = True) -> str:
    """As Spark's `simpleString`, for people. Without `names` those of fields are left out."""
    if isinstance(spark, Struct):
        return "struct<" + ",".join(f"{f.name}:" * names + to_text(f.type, names) for f in spark.fields) + ">"
    if isinstance(spark, Array):
        return f"array<{to_text(spark.element, names)}>"
    if isinstance(spark, Map):
        return f"map<{to_text(spark.key, names)},{to_text(spark.value, names)}>"
    if spark.name == "decimal":
        return f"decimal({spark.precision},{spark.scale})"
    return _SIMPLE.get(spark.name, spark.name)


_SIMPLE = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "day_time": "interval day to second",
    "year_month": "interval year to month",
}
