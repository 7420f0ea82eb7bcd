"""Much state for long: every key is made, then keys are updated at random for an hour. What an epoch takes early and late in that time,
what goes to S3, and what memory and disk are needed meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import access_log, processes, stored
from benchmarks.agent_bound import FILES
from benchmarks.epochs import Tell, gather_requests
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.judging import MB
from benchmarks.session import Session
from benchmarks.streams import KINDS
from benchmarks.systems import System, set_up
from benchmarks.workloads import KEYS_SETTING, Workload

EXPERIMENT = "large state"
PARTITIONS, MEGABYTES, MINUTES, ROWS = 100, 10_000, 60, 20_000
KEYS_A_MEGABYTE = 1000
FILL_EPOCHS = 50
PARTS = 6
"""All epochs are cut into so many: the first is early, the last is late."""
KEPT = {"spark.sql.streaming.minBatchesToRetain": "10"}
"""Of all systems. Spark's default is 100 versions, of 10 GB each where compaction has come between."""
DISK_TIMES = 6
"""So many times the state may lie on the disk: at work, stored, and in what is not deleted yet."""
_WARM = 3
_EVERY_S, _SIZES_EVERY, _FILES_EVERY = 10.0, 2, 6
"""How often memory and disk are looked at, and after how many such looks the bucket is, and the newest checkpoint."""
_FILL_S, _BEYOND_S, _TOLD = 4 * 3600.0, 1800.0, 1000


class Watched:
    """Looks at an application every few seconds, in a thread of its own, and takes down what it sees."""

    def __init__(self, session: Session, folder: Path, s3: FarS3) -> None:
        self._session, self._folder, self._s3 = session, folder, s3
        self._pids = {name: pid for pid, command in processes.of_session(session.id) for name, part in KINDS.items() if part in command}
        self._where: dict[tuple[Any, int, int], tuple[str, int]] = {}
        self.sizes: dict[str, int] = {}
        """Of all objects that were seen in the bucket; many are deleted before the end."""
        self.memory: dict[str, list[int]] = {name: [] for name in self._pids}
        self.disk: list[int] = []
        self.files: list[int] = []
        self.again_bytes = 0
        """Of SST files that one checkpoint has in one object and a later one in another, under whatever name."""
        self.peaks: dict[str, int] = {}
        self.failed: Exception | None = None
        self.unseen: Exception | None = None
        """Why S3 could not be looked at, the last time when it could not."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raises what went wrong meanwhile."""
        over = threading.Event()

        def watch() -> None:
            number = 0
            try:
                while not over.wait(_EVERY_S if number else 0):
                    self.look(number)
                    number += 1
            except Exception as e:  # it is raised where the block ends, and that is soon: the query has no application any more
                self.failed = e
                self._session.kill()

        thread = threading.Thread(target=watch, name="watch")
        thread.start()
        told = ""
        try:
            yield
        except BenchmarkError as e:
            if self.failed is None:
                raise
            told = f"; {e}"
        finally:
            over.set()
            thread.join()
        if self.failed is not None:
            raise BenchmarkError(f"memory and disk of {self._session.setup.system.value} could not be looked at: {self.failed}{told}")
        self.peaks = {name: processes.resident(pid, peak=True) for name, pid in self._pids.items()}

    def look(self, number: int = 0) -> None:
        for name, pid in self._pids.items():
            self.memory[name].append(processes.resident(pid))
        self.disk.append(bytes_on_disk(self._folder))
        setup = self._session.setup
        if not setup.bucket:
            return
        try:
            if number % _SIZES_EVERY == 0:
                self.sizes |= self._s3.sizes(setup.bucket)
            found = None if number % _FILES_EVERY else stored.newest(self._s3, setup.bucket, "q")
        except Exception as e:  # one look of many: no reason to lose the hour
            self.unseen = e
            return
        if found is None:
            return
        snapshots = found[1].snapshots
        self.files.append(sum(len(snapshot.handles) for snapshot in snapshots))
        for snapshot in snapshots:
            for handle in snapshot.handles:
                if handle.name.endswith(".sst"):
                    key, place = (snapshot.store, handle.length, handle.checksum), (handle.object, handle.offset)
                    self.again_bytes += handle.length if self._where.setdefault(key, place) != place else 0
                    self._where[key] = place


def run(
    system: System, megabytes: int, partitions: int, minutes: float, s3: FarS3, folder: Path, figures: Figures, tell: Tell
) -> None:
    """`size` of the cases is megabytes of state. Raises BenchmarkError."""
    case, keys = Case(EXPERIMENT, system.value, partitions, megabytes), megabytes * KEYS_A_MEGABYTE
    folder.mkdir(parents=True)
    if why := lacks(megabytes, folder):
        raise BenchmarkError(why)
    more = {KEYS_SETTING: str(keys), **KEPT} | ({} if system.stock else {"spark.ckpt.spool.dir": str(folder / "spool")})
    setup = set_up(system, s3, folder, more)
    place = f"{setup.locations}/q"
    with Session(setup, folder) as session:
        session.hello()
        tell(f"large state: {system.value} makes {case.size:,} MB")
        making = Workload("scattered", case.partitions, max(1, keys // FILL_EPOCHS))
        made = session.turn(making, place, warm=0, epochs=FILL_EPOCHS, timeout_s=_FILL_S, told=1)
        figures.add(case, "make_ms", [made["marks"][FILL_EPOCHS - 1]["at_ms"] - made["marks"][0]["at_ms"]])
        tell(f"large state: {system.value} for {minutes:g} minutes")
        watched = Watched(session, folder, s3)
        updating = Workload("scattered", case.partitions, ROWS)
        with watched.watching():
            answer = session.turn(
                updating, place, warm=_WARM, epochs=PARTS, seconds=minutes * 60, timeout_s=_BEYOND_S, log=s3.log, told=_WARM + _TOLD
            )
        _check(answer, keys, system)
        marks = answer["marks"][answer["warm"] - 1 :]
        gather(figures, case, marks, watched)
        if not system.stock and not watched.files:
            figures.note(f"large state: no checkpoint of {system.value} could be looked at: {watched.unseen or 'there was none'}")
        figures.add(case, "elsewhere_percent", [session.elsewhere_percent()])
        if setup.bucket:
            epochs, requests = len(marks) - 1, access_log.between(s3.log, marks[0]["log_bytes"], marks[-1]["log_bytes"])
            own = access_log.of_stream(requests, setup.bucket, "q")
            gather_requests(figures, case, own, epochs, watched.sizes | s3.sizes(setup.bucket), "q")
    shutil.rmtree(folder)
    if setup.bucket:
        try:
            s3.drop(setup.bucket)
        except Exception as e:  # what was measured is not lost for that
            tell(f"large state: what {system.value} has stored lies there still: {e}")


def _check(answer: Mapping[str, Any], keys: int, system: System) -> None:
    """Raises BenchmarkError where the state was not as large."""
    rows = answer["progress"][-1]["stateOperators"][0]["numRowsTotal"]
    if rows != keys:
        raise BenchmarkError(f"{system.value} had {rows:,} keys, and not {keys:,}")


def lacks(megabytes: int, folder: Path) -> str:
    """Why there is not enough disk for it; empty if there is."""
    free, need = shutil.disk_usage(folder).free, DISK_TIMES * megabytes * MB
    return f"{megabytes:,} MB of state may need {need / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free" if free < need else ""


def gather(figures: Figures, case: Case, marks: Sequence[Mapping[str, Any]], watched: Watched) -> None:
    """An epoch is from the end of one to the end of the next; of memory and disk the most, and what they were early and late."""
    took = [after["at_ms"] - before["at_ms"] for before, after in pairwise(marks)]
    values: dict[str, Sequence[float]] = {"epoch_ms": took}
    values |= {f"{name}_memory_bytes": sizes for name, sizes in watched.memory.items()} | {"disk_bytes": watched.disk}
    for metric, found in values.items():
        part = max(1, len(found) // PARTS)
        figures.add(case, f"early_{metric}", found[:part])
        figures.add(case, f"late_{metric}", found[-part:])
    figures.add(case, "epoch_ms", took)
    figures.add(case, "most_disk_bytes", [max(watched.disk, default=0)])
    for name, size in watched.peaks.items():
        figures.add(case, f"most_{name}_memory_bytes", [size])
    if watched.files:
        figures.add(case, FILES, [max(watched.files)])
        figures.add(case, "again_bytes", [watched.again_bytes])


def bytes_on_disk(folder: Path) -> int:
    """Of all files below it, each once however many names it has."""
    sizes: dict[int, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(f"{parent}/{name}")
            except OSError:
                continue  # it has gone since
            sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())
