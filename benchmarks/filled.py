"""State that is filled: as many rows as are wanted in the place of all that there are, of an aggregation with texts and bigints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_ckpt
from spark_ckpt.errors import ConfigError

_BATCH, _ROW_GROUP = 100_000, 1_000_000


def filled(source: str, rows: int, folder: Path) -> str:
    """The URL of a savepoint below `folder`. `source`, a stream or savepoint, is not changed."""
    given = rows_of(spark_ckpt.read_state(source).schema, rows)
    return spark_ckpt.write_state(source, None, given, mode="overwrite", target=f"file://{folder}", name="filled")


def write_parquet(source: str, rows: int, file: Path) -> None:
    """So many rows with the columns of the state of `source`."""
    schema = spark_ckpt.read_state(source).schema
    with pq.ParquetWriter(file, pa.schema([field for field in schema if field.name != "partition_id"])) as writer:
        for batch in rows_of(schema, rows, _ROW_GROUP):
            writer.write_batch(batch, row_group_size=_ROW_GROUP)


def rows_of(schema: Any, rows: int, batch: int = _BATCH) -> Iterator[Any]:
    """In an order that is not that of their keys."""
    fields = [field for field in schema if field.name != "partition_id"]
    for begin in range(0, rows, batch):
        numbers = np.arange(begin, min(rows, begin + batch), dtype=np.int64) * 7_919_777 % (1 << 40)
        yield pa.RecordBatch.from_arrays([_column(field.type, numbers) for field in fields], schema=pa.schema(fields))


def _column(kind: Any, numbers: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_column(field.type, numbers) for field in kind], fields=list(kind))
    if pa.types.is_string(kind):
        return pa.array([f"customer-{n:013d}" for n in numbers.tolist()])
    if pa.types.is_int64(kind):
        return pa.array(numbers)
    raise ConfigError(f"state with {kind} is not filled here; give that of an aggregation with texts and bigints")
