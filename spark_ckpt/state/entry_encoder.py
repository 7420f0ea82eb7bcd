"""From Arrow back to a store's entries: what `rows.py` reads, written again. The forms are described there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.given_batches import check_names, fitted, normalized
from spark_ckpt.state.rows import Decoder, Encoding
from spark_ckpt.state.schemas import Family, KeyForm, Operator, Variable
from spark_ckpt.state.spark_hash import partitions
from spark_ckpt.state.spark_types import Array, Field, Map, SparkType, Struct
from spark_ckpt.state.unsafe_encoder import encode

_EXPIRES = "ttlExpirationMs"
_ROW = b"\0"
"""Version of an encoded row."""


class EntryEncoder:
    """Batches of one column family, with the columns of `schema`, as its keys and values. Raises `ConfigError` for a family that cannot be
    written here, and names why."""

    def __init__(self, operator: Operator, family: Family, encoding: Encoding, has_families: bool) -> None:
        why = _not_written(operator, family, encoding)
        if why is not None:
            raise ConfigError(f"operator {operator.id} ({operator.name}) cannot be changed: {why}; drop_keys leaves out keys of any state")
        self._operator, self._family, self._between = operator, family, encoding.delimiter
        self.only_values = _only_values(operator, family)
        """Why its keys have to stay, and only values can be other ones; None: keys can be dropped, and be other ones, too."""
        columns = Decoder(family, encoding, has_families).schema
        self.schema = columns.remove(columns.get_field_index("partition_id"))

    def checked(self, batch: Any) -> pa.RecordBatch:
        """A batch or table that a user has made, with the columns that there have to be. Raises `ConfigError`."""
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise ConfigError(f"{type(batch).__name__} is no Arrow batch; return a pyarrow.RecordBatch or Table")
        check_names(batch.schema.names, self.schema.names)
        return fitted(batch, self.schema)

    def normalized(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With keys as Spark has them. Only in aggregations it changes what rows are grouped by (`StatefulAggregationStrategy`)."""
        if "statestoresave" not in self._operator.name.lower():
            return batch
        return batch.set_column(0, self.schema.field(0), normalized(batch.column(0)))

    def never_in_spark(self, batch: pa.RecordBatch) -> str | None:
        """What a batch has, and no row that Spark has made: a null where its schema says that there is none, or a key twice in one map
        (`spark.sql.mapKeyDedupPolicy`)."""
        for name, (spark, nullable) in zip(self.schema.names, self._types, strict=True):
            column = batch.column(name)
            if (field := _null_in((spark, nullable), column, name)) is not None:
                return f"{field} is null in a batch, and Spark's schema of the state says that it never is; give it a value"
            if (field := _twice_in(spark, column, name)) is not None:
                return f"{field} of a batch has a key more than once in one map; leave out the others"
        return None

    @property
    def _types(self) -> list[tuple[SparkType, bool]]:
        key, value = self._family.key, self._family.value
        if self._family.variable is Variable.MAP:
            return [(key.field("key").type, False), (key.field("userKey").type, False), (value, False)]
        return [(key, False), (value, False)]

    def encode(self, batch: pa.RecordBatch, prefix: bytes, lengths: Sequence[int] = ()) -> tuple[list[bytes], list[bytes]]:
        """Keys and values. `prefix`: the number of the family, with which its keys begin. `lengths`: of lists, how many rows each has."""
        count = batch.num_rows
        value = batch.column(self.schema.names[-1])
        values = encode(self._family.value, _children(value), count).slices(_ROW)
        if self._family.is_list:
            ends = np.cumsum(np.array(lengths, np.int64))
            firsts = batch.take(pa.array(ends - lengths))
            return self._keys(self._key_columns(firsts), len(lengths), prefix), self._together(values, lengths)
        return self._keys(self._key_columns(batch), count, prefix), values

    def _together(self, values: Sequence[bytes], lengths: Sequence[int]) -> list[bytes]:
        """Lists, each with its values behind their sizes."""
        each = iter(values)
        return [self._between.join([len(value).to_bytes(4, "little") + value for value in islice(each, length)]) for length in lengths]

    def check_keys(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """That they stay, where they have to. Raises `ConfigError`."""
        if self.only_values is None:
            return
        # Their bytes are compared: to Arrow NaN is not NaN, and -0.0 is 0.0.
        same = before.num_rows == after.num_rows and self._keys_of(before) == self._keys_of(after)
        if same and _EXPIRES in (field.name for field in self._family.value.fields):
            same = _expires(before).equals(_expires(after))
        if not same:
            raise ConfigError(
                f"operator {self._operator.id} ({self._operator.name}): {self.only_values}; return the same rows in the same order, with "
                "other values, or use drop_keys"
            )

    def _keys_of(self, batch: pa.RecordBatch) -> list[bytes]:
        return self._keys(self._key_columns(batch), batch.num_rows, b"")

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if self._family.variable is Variable.MAP:
            return [batch.column(0), batch.column(1)]
        return _children(batch.column(0))

    def _keys(self, columns: Sequence[pa.Array], count: int, prefix: bytes) -> list[bytes]:
        schema, layout = self._family.key, self._family.layout
        if layout.form is KeyForm.PLAIN:
            return encode(schema, columns, count).slices(prefix + _ROW)
        n = layout.prefix
        front = encode(Struct(schema.fields[:n]), columns[:n], count).slices(_ROW)
        rest = encode(Struct(schema.fields[n:]), columns[n:], count).slices(_ROW)
        return [prefix + len(f).to_bytes(4, "little") + f + r for f, r in zip(front, rest, strict=True)]

    def partitions(self, batch: pa.RecordBatch, of: int) -> Any:
        """In which of `of` partitions Spark looks for each row. Raises `ConfigError` for types whose hash is not known."""
        if self._operator.has_one_partition:
            return np.zeros(batch.num_rows, np.int32)
        fields, columns = self._grouping(batch)
        return partitions(fields, columns, batch.num_rows, of)

    def _grouping(self, batch: pa.RecordBatch) -> tuple[Sequence[Field], Sequence[pa.Array]]:
        """The columns by which Spark distributes rows: of a session not the time of its beginning, of a map not the user's key."""
        key = self._family.key
        if self._family.variable is Variable.MAP:
            inner = key.field("key").type
            assert isinstance(inner, Struct)
            return inner.fields, _children(batch.column(0))
        columns = _children(batch.column(0))
        if "session" in self._operator.name.lower():
            return key.fields[:-1], columns[:-1]
        return key.fields, columns


def _not_written(operator: Operator, family: Family, encoding: Encoding) -> str | None:
    """Why what is read of a family cannot be written back; None: it can."""
    if encoding.avro:
        return "its state is written as Avro (stateStore.encodingFormat), which is only read"
    if "join" in operator.name.lower() and (not family.key.fields or family.key.fields[-1].name != "index"):
        return "the other stores of a join count the rows of left-keyWithIndexToValue and right-keyWithIndexToValue"
    if family.is_internal or family.variable is Variable.TIMER or family.layout.form is KeyForm.RANGE:
        return f"Spark keeps {family.name} in two indexes, which have to agree"
    return None


def _only_values(operator: Operator, family: Family) -> str | None:
    if "join" in operator.name.lower():
        return "the stores of a join name each other's rows, so that its keys have to stay"
    if family.is_list:
        return f"Spark keeps counts beside the list state {family.name}, so that each has to keep its length"
    if any(field.name == _EXPIRES for field in family.value.fields):
        return f"Spark keeps an index beside {family.name}, which has a time to live, so that keys and {_EXPIRES} have to stay"
    return None


def _expires(batch: pa.RecordBatch) -> pa.Array:
    column = batch.column(batch.num_columns - 1)
    return column.field(column.type.get_field_index(_EXPIRES))


def _children(column: pa.Array) -> list[pa.Array]:
    return [column.field(number) for number in range(column.type.num_fields)]


def _null_in(spark: tuple[SparkType, bool], column: pa.Array, name: str) -> str | None:
    """The name of a field."""
    kind, nullable = spark
    if column.null_count and not nullable:
        return name
    if isinstance(kind, Struct):
        valid = column.is_valid() if column.null_count else None
        for number, field in enumerate(kind.fields):
            inner = column.field(number) if valid is None else column.field(number).filter(valid)
            found = _null_in((field.type, field.nullable), inner, f"{name}.{field.name}")
            if found is not None:
                return found
    if isinstance(kind, Array):
        return _null_in((kind.element, kind.nullable), column.flatten(), f"{name}.element")
    if isinstance(kind, Map):
        return _null_in((kind.value, kind.nullable), column.items, f"{name}.value")
    return None


def _twice_in(kind: SparkType, column: pa.Array, name: str) -> str | None:
    """The name of a map that has a key more than once in one row."""
    if isinstance(kind, Struct):
        inner = (_twice_in(f.type, column.field(number), f"{name}.{f.name}") for number, f in enumerate(kind.fields) if _has_map(f.type))
        return next((one for one in inner if one is not None), None)
    if isinstance(kind, Array):
        return _twice_in(kind.element, column.flatten(), f"{name}.element") if _has_map(kind.element) else None
    if isinstance(kind, Map):
        whole = column.drop_null().take(pa.array(np.arange(len(column) - column.null_count)))
        keys = encode(Struct((Field("key", kind.key, False),)), [normalized(whole.keys)], len(whole.keys)).slices()
        rows = np.repeat(np.arange(len(whole)), np.diff(whole.offsets.to_numpy())).tolist()
        if len(set(zip(rows, keys, strict=True))) < len(keys):
            return name
        return _twice_in(kind.value, whole.items, f"{name}.value") if _has_map(kind.value) else None
    return None


def _has_map(kind: SparkType) -> bool:
    if isinstance(kind, Struct):
        return any(_has_map(field.type) for field in kind.fields)
    return _has_map(kind.element) if isinstance(kind, Array) else isinstance(kind, Map)
