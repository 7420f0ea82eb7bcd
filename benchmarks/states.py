"""How fast state is read: `read_state` beside Spark's own reader of the same state, and the answer of `spark-ckpt state` on a small one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import spark_ckpt
from benchmarks.edits import rows_of
from benchmarks.errors import BenchmarkError
from spark_ckpt.stock.exporting import to_export
from spark_ckpt.stock.layout import location_of
from spark_ckpt.stock.writing import write_stock
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened, opened_stream

ROOT = Path(__file__).resolve().parents[1]
_END_S = 30


def measure(source: str, rows: int, rounds: int, folder: Path, tell: Callable[[str], None]) -> None:
    """So many rows in the place of all state of `source`, an aggregation with texts and bigints; the two readers in turn, in one run."""
    tell(f"`spark-ckpt state` of {source}: {_spread([_command(source) for _ in range(rounds)])}")
    schema = spark_ckpt.read_state(source).schema
    url = spark_ckpt.write_state(source, None, rows_of(schema, rows), mode="overwrite", target=f"file://{folder}", name="filled")
    tell(f"`spark-ckpt state` of {rows:,} rows: {_spread([_command(url) for _ in range(rounds)])}")
    stock = folder / "stock"
    with opened_stream(url, S3Options()) as (storage, reader), opened(f"file://{stock}", S3Options()) as place:
        write_stock(storage, to_export(storage, reader, None), place, location_of(str(stock)))
    ours, theirs = [], []
    with _spark(folder) as ask:
        if (warm := ask({"path": str(stock), "options": {}, "counted": True}))["rows"] != rows:
            raise BenchmarkError(f"Spark's reader finds {warm['rows']} rows instead of {rows}")
        _read(url, rows)
        for number in range(rounds):
            ours.append(_read(url, rows))
            theirs.append(ask({"path": str(stock), "options": {}})["seconds"])
            tell(f"round {number + 1}: read_state {rows / ours[-1]:,.0f} rows a second, Spark's reader {rows / theirs[-1]:,.0f}")
    tell(f"read_state: {_spread(ours)}, {rows / median(ours):,.0f} rows a second")
    tell(f"Spark's reader in local[2], its start-up and first read left out: {_spread(theirs)}, {rows / median(theirs):,.0f} rows a second")
    tell(f"read_state reads {median(theirs) / median(ours):.2f} times as many rows a second")


def _read(url: str, rows: int) -> float:
    """Seconds."""
    began = time.monotonic()
    found = sum(batch.num_rows for batch in spark_ckpt.read_state(url))
    took = time.monotonic() - began
    if found != rows:
        raise BenchmarkError(f"read_state finds {found} rows instead of {rows}")
    return took


def _command(url: str) -> float:
    """Seconds, Python's start-up among them."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "spark_ckpt.cli.main", "state", url], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.monotonic() - began


def _spread(seconds: list[float]) -> str:
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


@contextmanager
def _spark(folder: Path) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """An application that answers requests; it is ended with its JVM."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.state_job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def answer() -> dict[str, Any]:
        line = answers.readline()
        if not line:
            raise BenchmarkError(f"the Spark application has ended; its log is {folder / 'spark.log'}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return answer()

    try:
        answer()
        yield ask
        requests.close()
        process.wait(_END_S)
    finally:
        # The JVM is in this session too; where all has ended there is no such group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (requests, answers):
            pipe.close()
