"""The rows of `_metadata` as columns: a row is a handle, and what belongs to a snapshot is the same in all rows of its handles.

There may be a million rows, so nothing here takes a step of Python per value where a step per column does, and what belongs to a snapshot
is looked at once per snapshot and then repeated as bytes.
"""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, count, pairwise, repeat
from operator import mul
from typing import Any

from spark_ckpt import paths
from spark_ckpt.errors import DamagedError
from spark_ckpt.model import Handle, HandleKind, Snapshot, StoreId

COLUMNS = ("operator", "partition", "store", "version", "uid", "kind", "name", "object", "offset", "length", "checksum", "num_keys")
STRINGS = ("store", "uid", "kind", "name", "object")
OF_SNAPSHOTS = ("operator", "partition", "store", "version", "uid", "num_keys")
_MAX_FIELD = {"operator": 2**31, "partition": 2**31, "checksum": 2**32}

DICTIONARY = ("operator", "store", "version", "uid", "kind", "object", "num_keys")
"""Columns whose values repeat: written as Parquet's dictionaries."""

_AT_ONCE = 1024
"""Strings that are put together at once. What is much larger is new memory each time, which the system has to clear before it is used."""

Columns = Sequence[Sequence[Any]]
"""In the order of `COLUMNS`."""


def columns_of(snapshots: Sequence[Snapshot]) -> Columns:
    """What belongs to a snapshot has a value for each (`OF_SNAPSHOTS`), all else for each handle.

    Rows of one snapshot are adjacent and in the order in which its files are put in place.
    """
    handles = [h for s in snapshots for h in s.handles]
    return (
        [s.store.operator for s in snapshots],
        [s.store.partition for s in snapshots],
        [s.store.store for s in snapshots],
        [s.version for s in snapshots],
        [s.uid for s in snapshots],
        [h.kind._value_ for h in handles],
        [h.name for h in handles],
        [h.object for h in handles],
        [h.offset for h in handles],
        [h.length for h in handles],
        [h.checksum for h in handles],
        [s.num_keys for s in snapshots],
    )


def snapshots_of(columns: Columns) -> tuple[Snapshot, ...]:
    """From a value for each handle everywhere. Raises DamagedError for a store that appears twice."""
    operators, partitions, stores, versions, uids, kinds, names, objects, offsets, lengths, checksums, num_keys = columns
    rows = list(zip(operators, partitions, stores, versions, uids, num_keys, strict=True))
    handles = list(map(Handle, map(_kind, kinds), names, objects, offsets, lengths, checksums))
    starts = [at for at, (row, before) in enumerate(zip(rows, [None, *rows], strict=False)) if row != before]
    found: list[Snapshot] = []
    for start, end in pairwise([*starts, len(rows)]):
        operator, partition, store, version, uid, keys = rows[start]
        found.append(Snapshot(StoreId(operator, partition, store), version, uid, tuple(handles[start:end]), keys))
    if len({s.store for s in found}) != len(found):
        raise DamagedError("a store appears twice in a checkpoint's metadata; the metadata is damaged")
    return tuple(found)


_kind = {kind.value: kind for kind in HandleKind if kind.is_state}.__getitem__
_KINDS = {kind.value for kind in HandleKind if kind.is_state}


def check_columns(columns: Columns) -> None:
    """Raises FormatError for a name or object that points elsewhere, DamagedError for a number out of range."""
    for column, values in zip(COLUMNS, columns, strict=True):
        if column == "name":
            for names in _parts(values):
                paths.check_files(names)
        elif column == "kind":
            strange = sorted(set(values) - _KINDS)
            if strange:
                raise DamagedError(f"a checkpoint's metadata has files of the kind {strange[0]!r:.40} in it; the metadata is damaged")
        elif column == "object":
            for text in set(values):
                paths.check_object(text)
        elif column not in STRINGS:
            numbers = [v for v in values if v is not None] if column == "num_keys" else values
            low, high = min(numbers, default=0), max(numbers, default=0)
            if low < 0 or high >= _MAX_FIELD.get(column, 2**63):
                wrong = low if low < 0 else high
                raise DamagedError(f"{column}={wrong!r} in a checkpoint's metadata is out of range; the metadata is damaged")


def crc_of(columns: Columns) -> int:
    """The checksum of the rows (docs/format.md), from a value for each handle everywhere."""
    crc = 0
    for column, values in zip(COLUMNS, columns, strict=True):
        crc = _crc_of_strings(values, None, crc) if column in STRINGS else zlib.crc32(_numbers(column, values), crc)
    return crc


def to_arrow(columns: Columns, lengths: Sequence[int]) -> tuple[Any, int]:
    """From `columns_of`: a table with a value for each handle everywhere, and its checksum. `lengths`: of each snapshot, in handles."""
    import pyarrow as pa

    found: list[Any] = []
    crc = 0
    for column, values in zip(COLUMNS, columns, strict=True):
        times = lengths if column in OF_SNAPSHOTS else None
        if column not in STRINGS:
            numbers = _numbers(column, values, times)
            crc = zlib.crc32(numbers, crc)
            found.append(_array(pa.int64(), numbers, _known(values, lengths) if column == "num_keys" and None in values else None))
            continue
        crc = _crc_of_strings(values, times, crc)
        if column in DICTIONARY:
            found.append(_dictionary(values, times))
        else:
            found.append(pa.chunked_array([_strings(part) for part in _parts(values)], pa.string()))
    fields = [pa.field(name, values.type, nullable=name == "num_keys") for name, values in zip(COLUMNS, found, strict=True)]
    return pa.Table.from_arrays(found, schema=pa.schema(fields)), crc


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE))


# --- bytes, of which the checksum is; `times`: how often each value is there


def _crc_of_strings(values: Sequence[str], times: Sequence[int] | None, crc: int) -> int:
    """UTF-8 with a newline between."""
    between = ""
    for at in range(0, len(values), _AT_ONCE):
        part = values[at : at + _AT_ONCE]
        lines = part if times is None else chain.from_iterable(map(repeat, part, times[at : at + _AT_ONCE]))
        crc = zlib.crc32((between + "\n".join(lines)).encode(), crc)
        between = "\n"
    return crc


def _numbers(column: str, values: Sequence[Any], times: Sequence[int] | None = None) -> bytes:
    """64 bits each, little-endian, as every machine that Spark and pyarrow run on; no number is -1."""
    return _repeated(array("q", [-1 if v is None else v for v in values] if column == "num_keys" else values), times)


def _repeated(numbers: array[int], times: Sequence[int] | None) -> bytes:
    data, size = numbers.tobytes(), numbers.itemsize
    return data if times is None else b"".join(map(mul, [data[at : at + size] for at in range(0, len(data), size)], times))


# --- Arrow's arrays, from buffers: `pyarrow.array` would load pandas, where it is installed, to ask if a list is one of its own (50 MB)


def _array(kind: Any, data: bytes, valid: bytes | None = None) -> Any:
    """Of numbers."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(data) * 8 // kind.bit_width, [valid and pa.py_buffer(valid), pa.py_buffer(data)])


def _strings(values: Sequence[str]) -> Any:
    import pyarrow as pa

    data = "".join(values).encode()
    lengths = map(len, values) if data.isascii() else (len(text.encode()) for text in values)
    ends = array("i", [0, *accumulate(lengths)])
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _dictionary(values: Sequence[str], times: Sequence[int] | None) -> Any:
    """Parquet's writer would find out by itself which values are the same, at the price of hashing one for each row."""
    import pyarrow as pa

    codes = defaultdict[str, int](count().__next__)  # a new value gets the next code
    indices = array("i", list(map(codes.__getitem__, values)))
    return pa.DictionaryArray.from_arrays(_array(pa.int32(), _repeated(indices, times)), _strings(list(codes)))


def _known(values: Iterable[int | None], times: Sequence[int]) -> bytes:
    """Arrow's validity: a bit for each row, the first one lowest."""
    bits = "".join(map(mul, ["0" if v is None else "1" for v in values], times))
    return int(bits[::-1], 2).to_bytes(-(-len(bits) // 8), "little")
