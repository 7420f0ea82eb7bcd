"""How fast state is read: `read_state` beside Spark's own reader of the same state, and the answer of `spark-ckpt state`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import spark_ckpt
from benchmarks.epochs import Tell
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Case, Figures
from benchmarks.filled import filled
from benchmarks.spent import Spent, spending
from spark_ckpt.model import Checkpoint
from spark_ckpt.stock.exporting import to_export
from spark_ckpt.stock.layout import location_of
from spark_ckpt.stock.writing import write_stock
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened, opened_stream

EXPERIMENT = "read state"
OURS, SPARKS, COMMAND = "read_state", "Spark's own reader", "spark-ckpt state"
ROOT = Path(__file__).resolve().parents[1]
SOURCE = f"file://{ROOT}/tests/stored/states/update"
_VERB = [sys.executable, "-m", "spark_ckpt.cli.main", "state"]
_END_S = 30


def run(source: str, rows: int, rounds: int, folder: Path, figures: Figures, tell: Tell) -> None:
    """So many rows in the place of all state of `source`, and the two readers in turn; then the command. `size` of the cases is rows.

    The first read of each is left out, and so is Spark's start-up. Raises BenchmarkError.
    """
    url = filled(source, rows, folder)
    partitions = partitions_of(latest(url))
    stock = folder / "stock"
    with opened_stream(url, S3Options()) as (storage, reader), opened(f"file://{stock}", S3Options()) as place:
        write_stock(storage, to_export(storage, reader, None), place, location_of(str(stock)))
    ours, theirs = (Case(EXPERIMENT, system, partitions, rows) for system in (OURS, SPARKS))
    with _spark(folder) as ask:
        if (warm := ask({"path": str(stock), "options": {}, "counted": True}))["rows"] != rows:
            raise BenchmarkError(f"Spark's reader finds {warm['rows']} rows instead of {rows}")
        read(url, rows)
        for number in range(rounds):
            tell(f"{EXPERIMENT}: {rows:,} rows, round {number + 1}")
            read(url, rows).add(figures, ours, "read")
            Spent(**ask({"path": str(stock), "options": {}})["spent"]).add(figures, theirs, "read")
    own = sum(batch.num_rows for batch in spark_ckpt.read_state(source))
    tell(f"{EXPERIMENT}: {COMMAND}, {own:,} and {rows:,} rows")
    for _ in range(rounds):
        for there, size in ((source, own), (url, rows)):
            _command(there, Case(EXPERIMENT, COMMAND, partitions, size), figures)


def latest(url: str) -> Checkpoint:
    """The newest checkpoint of a stream, or a savepoint."""
    with opened_stream(url, S3Options()) as (_, reader):
        return reader.read(reader.latest())


def partitions_of(checkpoint: Checkpoint) -> int:
    return len({snapshot.store.partition for snapshot in checkpoint.snapshots})


def read(url: str, rows: int) -> Spent:
    """All of it with `read_state`. Raises BenchmarkError where that is not so many rows."""
    with spending() as reading:
        found = sum(batch.num_rows for batch in spark_ckpt.read_state(url))
    if found != rows:
        raise BenchmarkError(f"read_state finds {found} rows instead of {rows}")
    return reading.spent


def _command(url: str, case: Case, figures: Figures) -> None:
    """Python's start-up and imports are part of the time, and told apart as well."""
    for name, words in (("command", [url]), ("imports", ["--help"])):
        with spending() as asking:
            subprocess.run([*_VERB, *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        if name == "command":
            asking.spent.add(figures, case, name)
        else:
            figures.add(case, f"{name}_ms", [asking.spent.took_ms])


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
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    finally:
        # The JVM is in this session too; where all has ended there is no such group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (requests, answers):
            pipe.close()
