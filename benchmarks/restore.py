"""How long it takes until a query with much state runs on a machine that has nothing of it."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks import stored
from benchmarks.agent_bound import FILES
from benchmarks.epochs import PHASE, Rounds, Tell, gather_checkpoints, gather_epochs
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.processes import OWN, resident
from benchmarks.session import Session
from benchmarks.standing import own_processes
from benchmarks.systems import Setup, System, set_up
from benchmarks.workloads import Workload

EXPERIMENT, FILLED = "restore", "large"
PLAIN = "plain boto3"
PARTITIONS, MEGABYTES = 20, 1000
FILL_EPOCHS = 10
SMALL_ROWS = 1000
BLOCK = 8 << 20
_LOADED = "rocksdbLoadLatencyMs"
READERS = 16
_FILL_S, _RESTORE_S = 1800.0, 1200.0
_PAUSE_S = 6
_FREED_S = 15
"""A virtual machine gives memory back that lies free for a while, and pays to have it again: plain reads begin as long after what freed
some as a restore does, whose application has to start."""
# Full snapshots soon, so that state is loaded rather than replayed: the same for every system.
_SNAPSHOTS = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "2", "spark.sql.streaming.stateStore.maintenanceInterval": "4s"}


def rounds(megabytes: int, systems: Sequence[System], s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> Rounds:
    """All fill first, which `figures` tell of; then they restore in turn. `size` of the cases is megabytes of state.

    The state is not kept for another run: one that goes on fills anew. Raises BenchmarkError.
    """
    figures.forget(lambda case: case.experiment == FILLED)
    setups = [fill(system, megabytes, s3, folder / system.name.lower(), figures, tell) for system in systems]
    ours = next(setup for setup in setups if setup.system is System.S3)
    with forgetting([setup.bucket for setup in setups], s3, folder):
        for number in itertools.count(1):
            found, ranges = Figures(), _ranges(s3, ours.bucket)  # each start goes on, and stores what the next one reads
            found.add(Case(EXPERIMENT, ours.system.value, PARTITIONS, megabytes), "state_bytes", [sum(length for _, _, length in ranges)])
            _plain(ours, ranges, megabytes, number, s3, folder / "plain", found, tell)
            for setup in setups:
                _restore(setup, megabytes, number, s3, folder / f"{setup.system.name.lower()}-fresh-{number}", found, tell)
            yield found


@contextmanager
def forgetting(buckets: Sequence[str], s3: FarS3, folder: Path) -> Iterator[None]:
    """What is stored in these goes when it has been measured: what comes after it may need the disk. Empty: none."""
    try:
        yield
    finally:
        for bucket in filter(None, buckets):
            with suppress(Exception):  # then it goes with the server, at the end
                s3.drop(bucket)
        shutil.rmtree(folder, ignore_errors=True)


def fill(
    system: System, megabytes: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell, more: Mapping[str, str] | None = None
) -> Setup:
    """Keep the state, forget the machine: what is left is in S3, or in a stock `checkpointLocation` on the disk. `more` settings win."""
    tell(f"restore: {system.value} fills {megabytes} MB")
    setup = set_up(system, s3, folder, {**_SNAPSHOTS, **(more or {})})
    rows = megabytes * 1000 // FILL_EPOCHS
    case = Case(FILLED, system.value, PARTITIONS, megabytes)
    with Session(setup, folder) as session:
        session.hello()
        location = f"{setup.locations}/q"
        if megabytes:
            filling = Workload(query_of(megabytes), PARTITIONS, rows, trigger_s=_PAUSE_S)
            answer = session.turn(filling, location, warm=1, epochs=FILL_EPOCHS, timeout_s=_FILL_S)
            gather_epochs(figures, case, answer["progress"][1:])
            gather_checkpoints(figures, case, answer["checkpoints"], {int(p["batchId"]) for p in answer["progress"][1:]})
        # The epoch that was in hand is run again, and one small one: the next start finds nothing to make up for.
        session.turn(small(megabytes, once=True), location, warm=0, epochs=1, timeout_s=_FILL_S)
        if not system.stock:
            for name, pid in own_processes(session).items():
                figures.add(Case(FILLED, name, PARTITIONS, megabytes), "peak_memory_bytes", [resident(pid, peak=True)])
            figures.add(Case(FILLED, "agent", PARTITIONS, megabytes), FILES, [stored.files(s3, setup.bucket, "q")])
    setup.lose_disk()
    return setup


def query_of(megabytes: int) -> str:
    return "large" if megabytes <= MEGABYTES else "huge"


def small(megabytes: int, once: bool = False, trigger_s: int = 0) -> Workload:
    """An epoch of few rows, of the query that has so much state."""
    return Workload(query_of(megabytes), PARTITIONS, SMALL_ROWS if megabytes else 1, once=once, trigger_s=trigger_s)


def _restore(setup: Setup, megabytes: int, number: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """In a new JVM, with no file of the old one; beside it the same query over an empty state, in a new JVM as well."""
    case, elsewhere = Case(EXPERIMENT, setup.system.value, PARTITIONS, megabytes), 0.0
    for metric, location in (("empty_ms", f"{setup.locations}/empty-{number}"), ("first_epoch_ms", f"{setup.locations}/q")):
        tell(f"restore: {setup.system.value}, {'nothing' if metric == 'empty_ms' else f'{megabytes} MB'}, round {number}")
        before = s3.brought()
        with Session(setup.on_new_machine(folder), folder) as session:
            session.hello()
            answer = session.turn(small(megabytes), location, warm=0, epochs=1, timeout_s=_RESTORE_S)
            elsewhere = max(elsewhere, session.elsewhere_percent())
        figures.add(case, metric, [answer["start_ms"]])
        what = metric.removesuffix("_ms")
        figures.add(case, f"{what}_read_bytes", [s3.brought() - before])
        for phase, ms in answer["progress"][0]["durationMs"].items():
            figures.add(case, f"{PHASE}{what}_{phase}_ms", [ms])
        for name in ("all", *OWN):
            figures.add(case, f"{what}_{name}_cpu_ms", [answer["marks"][0]["cpu_ms"][name]])
        if metric == "first_epoch_ms":
            figures.add(case, "load_per_store_ms", [loaded_ms(setup.system, megabytes, answer["progress"][0]) / PARTITIONS])
        shutil.rmtree(folder)
    first, empty = figures.values(case, "first_epoch_ms")[-1], figures.values(case, "empty_ms")[-1]
    figures.add(case, "restore_ms", [first - empty])
    figures.add(case, "elsewhere_percent", [elsewhere])


def loaded_ms(system: System, megabytes: int, progress: Mapping[str, Any]) -> float:
    """How long the engine has loaded, all stores together. Raises BenchmarkError where the state was not there, or that is not told."""
    loaded = progress["stateOperators"][0]
    if loaded["numRowsTotal"] < megabytes * 900:
        raise BenchmarkError(f"{system.value} restored {loaded['numRowsTotal']} keys of {megabytes * 1000}")
    if _LOADED not in loaded["customMetrics"]:
        raise BenchmarkError(f"{system.value}: Spark's progress has no {_LOADED}, so nobody can tell how long stores took to load")
    return float(loaded["customMetrics"][_LOADED])


_Range = tuple[str, int, int]


def _plain(setup: Setup, ranges: list[_Range], megabytes: int, number: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """The same bytes into files, by ranged reads in parallel and nothing else."""
    tell(f"restore: {PLAIN}, round {number}")
    folder.mkdir(parents=True)
    time.sleep(_FREED_S)
    began = time.monotonic()
    _read(s3, setup.bucket, ranges, folder)
    figures.add(Case(EXPERIMENT, PLAIN, PARTITIONS, megabytes), "restore_ms", [(time.monotonic() - began) * 1000])
    shutil.rmtree(folder)


def _ranges(s3: FarS3, bucket: str) -> list[_Range]:
    """Blocks of every object that the newest checkpoint names, from its first byte to its last that is named."""
    newest = stored.newest(s3, bucket, "q")
    if newest is None:
        raise BenchmarkError(f"no checkpoint was stored in the bucket {bucket}, so there is nothing to restore")
    stream, checkpoint = newest
    spans = stored.spans(checkpoint.snapshots).items()
    return [(f"{stream}/{name}", at, min(BLOCK, high - at)) for name, (low, high) in spans for at in range(low, high, BLOCK)]


def _read(s3: FarS3, bucket: str, ranges: list[_Range], folder: Path) -> None:
    from botocore.config import Config

    client = s3.client(config=Config(max_pool_connections=READERS))

    def fetch(number: int) -> int:
        key, offset, length = ranges[number]
        answer: Mapping[str, Any] = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={offset}-{offset + length - 1}")
        with (folder / str(number)).open("wb") as file:
            shutil.copyfileobj(answer["Body"], file, 1 << 20)
            return file.tell()

    with ThreadPoolExecutor(READERS) as pool:
        read = sum(pool.map(fetch, range(len(ranges))))
    client.close()
    if read != sum(length for _, _, length in ranges):
        raise BenchmarkError(f"plain reads gave {read} bytes of {sum(length for _, _, length in ranges)}")
