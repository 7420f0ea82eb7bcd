"""From Arrow back to a store's entries: what `rows.py` reads, written again. The forms are described there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.state.rows import Decoder, Encoding
from spark_ckpt.state.schemas import Family, KeyForm, Operator, Variable
from spark_ckpt.state.spark_hash import partitions
from spark_ckpt.state.spark_types import Array, Field, Map, SparkType, Struct
from spark_ckpt.state.unsafe_encoder import encode

_ROW = b"\0"
"""Version of an encoded row."""


class EntryEncoder:
    """Batches of one column family, with the columns of `schema`, as its keys and values. Raises `ConfigError` for a family that cannot be
    written here, and names why."""

    def __init__(self, operator: Operator, family: Family, encoding: Encoding, has_families: bool) -> None:
        why = _not_written(operator, family, encoding)
        if why is not None:
            raise ConfigError(f"operator {operator.id} ({operator.name}) cannot be changed: {why}")
        self._operator, self._family = operator, family
        columns = Decoder(family, encoding, has_families).schema
        self.schema = columns.remove(columns.get_field_index("partition_id"))

    def checked(self, batch: Any) -> pa.RecordBatch:
        """A batch or table that a user's function has returned, with the columns that there have to be. Raises `ConfigError`."""
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise ConfigError(f"{type(batch).__name__} is no Arrow batch; return a pyarrow.RecordBatch or Table")
        missing = [name for name in self.schema.names if name not in batch.schema.names]
        other = [name for name in batch.schema.names if name not in (*self.schema.names, "partition_id")]
        if missing or other:
            raise ConfigError(f"a batch has the columns {', '.join(batch.schema.names)}, and must have {', '.join(self.schema.names)}")
        try:
            table = pa.table([batch.column(name) for name in self.schema.names], names=self.schema.names).cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as e:
            raise ConfigError(f"a batch does not have the state's types: {e}") from e
        combined = table.combine_chunks().to_batches()
        made = combined[0] if combined else pa.RecordBatch.from_pylist([], self.schema)
        made.validate(full=True)
        for name, spark in zip(self.schema.names, self._types, strict=True):
            lacking = _null_where_none_may_be(spark, made.column(name), name)
            if lacking is not None:
                raise ConfigError(f"{lacking} is null in a batch, and Spark's schema of the state says that it never is")
        return made

    @property
    def _types(self) -> list[tuple[SparkType, bool]]:
        key, value = self._family.key, self._family.value
        if self._family.variable is Variable.MAP:
            return [(key.field("key").type, False), (key.field("userKey").type, False), (value, False)]
        return [(key, False), (value, False)]

    def encode(self, batch: pa.RecordBatch, prefix: bytes) -> tuple[list[bytes], list[bytes]]:
        """Keys and values. `prefix`: the number of the family, with which its keys begin."""
        count = batch.num_rows
        value = batch.column(self.schema.names[-1])
        values = encode(self._family.value, _children(value), count).slices(_ROW)
        return self._keys(self._key_columns(batch), count, prefix), values

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
    if "join" in operator.name.lower():
        return "the four stores of a join name each other's rows, and would have to be changed together"
    if family.is_internal or family.variable is Variable.TIMER or family.layout.form is KeyForm.RANGE:
        return f"Spark keeps {family.name} in two indexes, which would have to be changed together"
    if family.is_list:
        return f"of the list state {family.name} Spark keeps counts beside it, which would have to be changed together"
    if any(field.name == "ttlExpirationMs" for field in family.value.fields):
        return f"of {family.name}, which has a time to live, Spark keeps an index beside it, which would have to be changed together"
    return None


def _children(column: pa.Array) -> list[pa.Array]:
    return [column.field(number) for number in range(column.type.num_fields)]


def _null_where_none_may_be(spark: tuple[SparkType, bool], column: pa.Array, name: str) -> str | None:
    """The name of a field."""
    kind, nullable = spark
    if column.null_count and not nullable:
        return name
    if isinstance(kind, Struct):
        valid = column.is_valid() if column.null_count else None
        for number, field in enumerate(kind.fields):
            inner = column.field(number) if valid is None else column.field(number).filter(valid)
            found = _null_where_none_may_be((field.type, field.nullable), inner, f"{name}.{field.name}")
            if found is not None:
                return found
    if isinstance(kind, Array):
        return _null_where_none_may_be((kind.element, kind.nullable), column.flatten(), f"{name}.element")
    if isinstance(kind, Map):
        return _null_where_none_may_be((kind.value, kind.nullable), column.items, f"{name}.value")
    return None
