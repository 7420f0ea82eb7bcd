"""How long it takes to change stored state: another number of partitions, and rows out of a Parquet file. No epoch is run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.epochs import Tell
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Case, Figures
from benchmarks.filled import filled, write_parquet
from benchmarks.spent import spending
from benchmarks.states import ROOT, latest, partitions_of, read
from spark_ckpt.model import Checkpoint
from spark_ckpt.stock.rescaling import rescale
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.opening import opened, opened_stream

WRITTEN, RESCALED = "write state", "rescale"
PARQUET = "write_state from Parquet"
FIRST, STEPS = 3, (20, 200)
"""Numbers of partitions: that of the state that is rescaled, and those that are measured, one after the other."""


def before(partitions: int) -> str:
    """What a rescale's case has in the place of a system: beside the number that was wanted, the one that there was."""
    return f"from {partitions} partitions"


def prepared(source: str, rows: int, folder: Path, tell: Tell) -> str:
    """The URL of a savepoint below `folder` with so many rows in `FIRST` partitions, whatever `source` has."""
    tell(f"{RESCALED}: {rows:,} keys are written")
    target = f"file://{folder}/first"
    _rescale(source, FIRST, target)
    return filled(target, rows, folder)


def rescaled(source: str, partitions: Sequence[int], folder: Path, figures: Figures, tell: Tell) -> None:
    """One rescale after the other, each of what the last one has made, below `folder`. `size` of the cases is keys.

    Raises BenchmarkError.
    """
    for number, wanted in enumerate(partitions):
        target = f"file://{folder}/{number}-{wanted}"
        checkpoint = latest(source)
        there, keys = partitions_of(checkpoint), sum(snapshot.num_keys or 0 for snapshot in checkpoint.snapshots)
        tell(f"{RESCALED}: {keys:,} keys, {there} to {wanted} partitions")
        with spending() as working:
            made = _rescale(source, wanted, target)
        found = sum(snapshot.num_keys or 0 for snapshot in made.snapshots)
        if found != keys:
            raise BenchmarkError(f"{found} keys are in {wanted} partitions instead of {keys}")
        case = Case(RESCALED, before(there), wanted, keys)
        figures.add(case, "rescale_ms", [working.spent.took_ms])
        figures.add(case, "state_bytes", [checkpoint.size])
        source = target


def _rescale(source: str, wanted: int, target: str) -> Checkpoint:
    with opened_stream(source, S3Options()) as (storage, reader), opened(target, S3Options()) as place:
        return rescale(storage, reader, None, wanted, place)


def written(source: str, rows: int, rounds: int, folder: Path, figures: Figures, tell: Tell, keep: Path | None = None) -> str:
    """So many rows of a Parquet file in the place of all state of `source`; then they are read. `size` of the case is rows.

    Returns the URL of the last round's savepoint, which is below `keep`, or else `folder`; those before it are removed. Raises
    BenchmarkError.
    """
    file = folder / f"rows-{rows}.parquet"
    tell(f"{WRITTEN}: {rows:,} rows, the file")
    write_parquet(source, rows, file)
    case, url = Case(WRITTEN, PARQUET, partitions_of(latest(source)), rows), ""
    figures.add(case, "parquet_bytes", [file.stat().st_size])
    for number in range(rounds):
        if url:
            shutil.rmtree(url.removeprefix("file://"))
        tell(f"{WRITTEN}: {rows:,} rows, round {number + 1}")
        command = [sys.executable, "-m", "benchmarks.write_job", source, str(file), f"file://{keep or folder}", f"rows-{rows}"]
        with spending() as writing:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise BenchmarkError(f"{rows} rows could not be written; what is wrong is said above")
        answer = json.loads(done.stdout)
        url = answer["url"]
        writing.spent.add(figures, case, "write")
        figures.add(case, "memory_bytes", [answer["memory_bytes"]])
        figures.add(case, "state_bytes", [latest(url).size])
        figures.add(case, "read_ms", [read(url, rows).took_ms])
    file.unlink()
    return url
