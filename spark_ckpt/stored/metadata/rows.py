"""Reading the rows of a `_metadata` that anybody may have written: nothing is expanded before it is known how large it becomes.

A Parquet file of a few kilobytes can stand for gigabytes: a page names one long string millions of times, or decompresses to a multiple
of itself. So rows are read in batches and strings as dictionaries, and become Python's only when their number and size are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.stored.metadata.columns import COLUMNS, OF_SNAPSHOTS, STRINGS, Columns
from spark_ckpt.stored.metadata.limits import MetadataLimits

MAX_STRING = 1024
"""Bytes of a string in a row. The longest are the names of objects, which no storage takes longer."""
MAX_STRINGS = 3 << 30
"""Bytes of the strings of all rows together, each counted where it stands: 600 for each row of as many as there can be."""
_BATCH = 64 * 1024
_OFFSETS = 8
"""Bytes that Arrow needs for a string besides its own, at most."""


def read_footer(data: bytes, limits: MetadataLimits) -> Any:
    """What Parquet calls the file's metadata. Raises FormatError for more rows than any `_metadata` has, and what pyarrow raises."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.ParquetFile(pa.BufferReader(data), thrift_string_size_limit=limits.document * 2).metadata
    rows = max(footer.num_rows, sum(footer.row_group(group).num_rows for group in range(footer.num_row_groups)))
    if rows > limits.rows:
        raise FormatError(f"it has {rows} rows, more than the {limits.rows} of any checkpoint's metadata; it is not one")
    return footer


def read_columns(data: bytes, footer: Any, limits: MetadataLimits) -> list[list[Any]]:
    """In the order of `COLUMNS`, a value for each row. Raises DamagedError for a column of another type and for what is too large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    missing = sorted(set(COLUMNS) - set(footer.schema.names))
    if missing:
        raise DamagedError(f"it lacks the columns {', '.join(missing)}")
    file = pq.ParquetFile(pa.BufferReader(data), metadata=footer, read_dictionary=list(STRINGS), page_checksum_verification=True)
    columns: list[list[Any]] = [[] for _ in COLUMNS]
    total = rows = 0
    for batch in file.iter_batches(batch_size=_BATCH, columns=list(COLUMNS), use_threads=False):
        rows += batch.num_rows
        if rows > limits.rows:
            raise DamagedError(f"it has more than the {limits.rows} rows of any checkpoint's metadata; it is damaged or forged")
        for name, column in zip(COLUMNS, columns, strict=True):
            found = batch.column(name)
            if name not in STRINGS:
                if not found.type.equals(pa.int64()):
                    raise DamagedError(f"column {name} is of type {found.type}; it is damaged or forged")
                column.extend(found.to_pylist())
                continue
            texts, codes = _dictionary(name, found)
            lengths = [len(text) for text in texts]
            total += sum(map(lengths.__getitem__, codes))
            if total > MAX_STRINGS:
                raise DamagedError(f"its strings have more than {MAX_STRINGS} bytes; it is damaged or forged")
            column.extend(map([text.decode() for text in texts].__getitem__, codes))
    return columns


def _dictionary(name: str, found: Any) -> tuple[list[bytes], list[int]]:
    """The strings of one batch, as bytes, and for each row which it is."""
    import pyarrow as pa

    if not pa.types.is_dictionary(found.type) or not found.type.value_type.equals(pa.string()):
        raise DamagedError(f"column {name} is of type {found.type}; it is damaged or forged")
    texts = found.dictionary
    if texts.nbytes > len(texts) * (MAX_STRING + _OFFSETS) + _OFFSETS:
        raise too_long(name)
    known: list[bytes] = texts.cast(pa.binary()).to_pylist()
    if max(map(len, known), default=0) > MAX_STRING:
        raise too_long(name)
    return known, found.indices.to_pylist()


def check_sizes(columns: Columns, lengths: Sequence[int], limits: MetadataLimits) -> None:
    """Refuse to write what would not be read. `columns` as `columns_of` makes them; `lengths`: of each snapshot, in handles."""
    rows, total = sum(lengths), 0
    if rows > limits.rows:
        raise FormatError(f"a checkpoint of {rows} files has more than the {limits.rows} that one can have; use fewer state partitions")
    for name in STRINGS:
        values = columns[COLUMNS.index(name)]
        sizes: Iterable[int] = map(len, values)
        if max(map(len, values), default=0) * 4 > MAX_STRING:
            sizes = [len(text.encode()) for text in values]
            if max(sizes) > MAX_STRING:
                raise too_long(name)
        total += sum(map(mul, sizes, lengths)) if name in OF_SNAPSHOTS else sum(sizes)
    if total > MAX_STRINGS:
        raise FormatError(f"the names in a checkpoint have {total} bytes, more than the {MAX_STRINGS} that they can have")


def too_long(name: str) -> FormatError:
    return FormatError(f"column {name} holds a string of more than {MAX_STRING} bytes; it is damaged or forged")
