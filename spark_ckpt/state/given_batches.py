"""Batches that a person has made, with the columns and types that a state store has: nothing is left out, made up, or lost on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import ConfigError

_TYPES = pa.types
_NOT_TAKEN = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError)


def fitted(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, whose names the batch has. Raises `ConfigError` for a field that is missing or that the state has not, for
    values that are others in the state's types, and for what is no UTF-8."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as e:
            raise ConfigError(f"the column {field.name} of a batch is not valid: {e}; strings must be UTF-8") from e
        _check_fields(column.type, field.type, field.name)
        try:
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                _check_values(chunk, field.type, field.name)
            columns.append(column.cast(field.type))
        except _NOT_TAKEN as e:
            raise ConfigError(f"a batch does not have the state's types: {field.name}: {e}") from e
    combined = pa.table(columns, schema=schema).combine_chunks().to_batches()
    return combined[0] if combined else pa.RecordBatch.from_pylist([], schema)


def check_names(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises `ConfigError` where a column is missing, is not known, or is there twice."""
    others = set(names) - {*wanted, "partition_id"}
    if others or not set(names).issuperset(wanted):
        raise ConfigError(f"a batch has the columns {', '.join(names)}, and must have {', '.join(wanted)}")
    twice = _twice(names)
    if twice is not None:
        raise ConfigError(f"a batch has the column {twice} more than once; leave out the others")


def normalized(column: pa.Array) -> pa.Array:
    """Floating-point numbers as Spark has them in the keys that it groups by (`NormalizeFloatingNumbers`): -0.0 is 0.0, and there is one
    NaN. Maps stay as they are."""
    kind = column.type
    if _TYPES.is_floating(kind):
        found = pc.if_else(pc.equal(column, pa.scalar(0.0, kind)), pa.scalar(0.0, kind), column)
        return pc.if_else(pc.is_nan(found), pa.scalar(float("nan"), kind), found)
    if _TYPES.is_struct(kind) and _has_floats(kind):
        fields = [normalized(column.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null() if column.null_count else None)
    if _TYPES.is_list(kind) and _has_floats(kind):
        whole = _whole(column)
        mask = whole.is_null() if whole.null_count else None
        return pa.ListArray.from_arrays(whole.offsets, normalized(whole.values), type=kind, mask=mask)
    return column


def _whole(column: pa.Array) -> pa.Array:
    """Of a slice no more than itself: its values, and offsets that begin at 0."""
    return column.take(pa.array(np.arange(len(column))))


def _has_floats(kind: pa.DataType) -> bool:
    if _TYPES.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return _has_floats(kind.value_type) if _TYPES.is_list(kind) else _TYPES.is_floating(kind)


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_TYPES.is_list(kind) or _TYPES.is_large_list(kind) or _TYPES.is_fixed_size_list(kind))


def _check_fields(given: pa.DataType, wanted: pa.DataType, name: str) -> None:
    """Arrow's cast leaves out fields that are not wanted, and gives nulls for those that are not there."""
    if _TYPES.is_struct(wanted) and _TYPES.is_struct(given):
        names, known = [field.name for field in given], [field.name for field in wanted]
        twice = _twice(names)
        if twice is not None:
            raise ConfigError(f"{name} has the field {twice} more than once in a batch; leave out the others")
        wrong = [f"no field {one}, which the state has" for one in known if one not in names]
        wrong += [f"a field {one}, which the state has not" for one in names if one not in known]
        if wrong:
            raise ConfigError(f"{name} of a batch has {' and '.join(wrong)}; its fields are {', '.join(known) or 'none'}")
        for field in wanted:
            _check_fields(given.field(field.name).type, field.type, f"{name}.{field.name}")
    elif _TYPES.is_map(wanted) and _TYPES.is_map(given):
        _check_fields(given.key_type, wanted.key_type, f"{name}.key")
        _check_fields(given.item_type, wanted.item_type, f"{name}.value")
    elif _is_list(wanted) and _is_list(given):
        _check_fields(given.value_type, wanted.value_type, f"{name}.element")


def _check_values(column: pa.Array, wanted: pa.DataType, name: str) -> None:
    """Arrow's safe cast takes some values that it makes others of."""
    given = column.type
    if given == wanted:
        return
    if _TYPES.is_struct(wanted) and _TYPES.is_struct(given):
        flat = column.flatten()
        for field in wanted:
            _check_values(flat[given.get_field_index(field.name)], field.type, f"{name}.{field.name}")
    elif _TYPES.is_map(wanted) and _TYPES.is_map(given):
        whole = _whole(column)
        _check_values(whole.keys, wanted.key_type, f"{name}.key")
        _check_values(whole.items, wanted.item_type, f"{name}.value")
    elif _is_list(wanted) and _is_list(given):
        _check_values(column.flatten(), wanted.value_type, f"{name}.element")
    elif _TYPES.is_floating(given) and _TYPES.is_floating(wanted):
        if pc.any(pc.and_(pc.is_finite(column), pc.is_inf(column.cast(wanted)))).as_py():
            raise _loses(name, given, wanted)
    elif _TYPES.is_timestamp(given) and _TYPES.is_timestamp(wanted) and (given.tz is None) != (wanted.tz is None):
        raise ConfigError(
            f"{name} of a batch is {given}, and the state's is {wanted}: between a time with a zone and one without, say which zone you "
            "mean (pyarrow.compute.assume_timezone, local_timestamp)"
        )
    elif _may_lose(given, wanted) and not _comes_back(column, wanted):
        raise _loses(name, given, wanted)


def _may_lose(given: pa.DataType, wanted: pa.DataType) -> bool:
    if _TYPES.is_date(wanted) or _TYPES.is_time(wanted):
        return bool(_TYPES.is_timestamp(given) or _TYPES.is_date64(given))
    if _TYPES.is_boolean(wanted):
        return bool(_TYPES.is_integer(given) or _TYPES.is_floating(given) or _TYPES.is_decimal(given))
    return bool((_TYPES.is_decimal(given) and _TYPES.is_floating(wanted)) or (_TYPES.is_floating(given) and _TYPES.is_decimal(wanted)))


def _comes_back(column: pa.Array, wanted: pa.DataType) -> bool:
    made = column.cast(wanted)
    try:
        back = made.cast(column.type)
    except _NOT_TAKEN:
        return False
    return bool(pc.all(pc.equal(back, column), min_count=0).as_py())


def _loses(name: str, given: Any, wanted: Any) -> ConfigError:
    return ConfigError(f"{name} of a batch is {given}, and has values that the state's {wanted} does not hold; cast it as you mean it")
