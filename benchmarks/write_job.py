"""`python -m benchmarks.write_job SOURCE PARQUET TARGET NAME`, the far side of `benchmarks.edits`: the rows of a file are written as users
would do it, in a process of its own, whose memory is told."""

from __future__ import annotations

import json
import os
import sys

import pyarrow.dataset as ds

import spark_ckpt
from benchmarks.processes import resident

_BATCH = 100_000


def main(source: str, parquet: str, target: str, name: str) -> None:
    rows = ds.dataset(parquet).scanner(batch_size=_BATCH).to_batches()
    url = spark_ckpt.write_state(source, None, rows, mode="overwrite", target=target, name=name)
    print(json.dumps({"url": url, "memory_bytes": resident(os.getpid(), peak=True)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
