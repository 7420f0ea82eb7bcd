"""How long it takes to change state that lies in a storage: another number of partitions, and rows out of Arrow. No epoch is run."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import spark_ckpt
from spark_ckpt.errors import ConfigError
from spark_ckpt.stock.rescaling import rescale
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened, opened_stream

_BATCH = 100_000
_GIB = 1 << 30


def rescaled(source: str, partitions: Sequence[int], folder: Path, tell: Callable[[str], None]) -> None:
    """One rescale after the other, each of what the last one has made, below `folder`."""
    for number, wanted in enumerate(partitions):
        target = f"file://{folder}/{number}-{wanted}"
        with opened_stream(source, S3Options()) as (storage, reader), opened(target, S3Options()) as place:
            before = reader.read(reader.latest())
            began = time.monotonic()
            made = rescale(storage, reader, None, wanted, place)
            took = time.monotonic() - began
        keys = sum(s.num_keys or 0 for s in made.snapshots)
        there = len({s.store.partition for s in before.snapshots})
        tell(
            f"{there} to {wanted} partitions: {before.size / _GIB:.3f} GiB, {keys:,} keys: {took:.1f} s, "
            f"{took / max(before.size / _GIB, 1e-9):.0f} s for each GiB"
        )
        source = target


def written(source: str, rows: int, folder: Path, tell: Callable[[str], None]) -> None:
    """So many rows in the place of all state of an operator with keys and values of texts and whole numbers; then they are read."""
    schema = spark_ckpt.read_state(source).schema
    began = time.monotonic()
    url = spark_ckpt.write_state(source, None, rows_of(schema, rows), mode="overwrite", target=f"file://{folder}", name=f"rows-{rows}")
    took = time.monotonic() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tell(f"{rows:,} rows written in {took:.1f} s ({rows / took:,.0f} a second), {memory:,.0f} MiB of memory at most: {url}")
    began = time.monotonic()
    found = sum(batch.num_rows for batch in spark_ckpt.read_state(url))
    took = time.monotonic() - began
    tell(f"{found:,} rows read in {took:.1f} s ({found / took:,.0f} a second)")


def rows_of(schema: Any, rows: int) -> Iterator[Any]:
    """In an order that is not that of their keys."""
    for begin in range(0, rows, _BATCH):
        numbers = np.arange(begin, min(rows, begin + _BATCH), dtype=np.int64) * 7_919_777 % (1 << 40)
        columns = [_filled(field.type, numbers) for field in schema if field.name != "partition_id"]
        yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in schema if field.name != "partition_id"])


def _filled(kind: Any, numbers: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_filled(field.type, numbers) for field in kind], names=[field.name for field in kind])
    if pa.types.is_string(kind):
        return pa.array([f"customer-{n:013d}" for n in numbers.tolist()])
    if pa.types.is_int64(kind):
        return pa.array(numbers)
    raise ConfigError(f"state with {kind} is not filled here; give that of an aggregation with texts and bigints")
