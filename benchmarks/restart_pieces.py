"""A restart after a kill, from the new process to the end of its first epoch, in pieces, by what anybody can see of it: times of Spark's
context, session and progress, what the Checkpoints tab and the log say, and when files were written."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import restore
from benchmarks.epochs import Rounds, Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.flink import commands
from benchmarks.flink import restart as flink
from benchmarks.job import LEVEL
from benchmarks.session import Session
from benchmarks.systems import Setup, System

EXPERIMENT = "restart pieces"
SIZES = (0, restore.MEGABYTES)
"""Megabytes of state; 0: of one row."""
PIECES = ("jvm", "session", "query", "claim", "files", "plan", "fetch", "load", "epoch")
_HOUR_S = 3600
_START_S = 3600.0
_ROUNDED_MS = 12.0
"""At the ends of a piece stand two clocks with whole milliseconds, or the time of a file, which is that of the kernel's last tick."""
_TASKS = 2
"""That run at once, of a `local[2]`: what tasks take one after the other is spread over so many."""
_FETCHED = re.compile(r" fetched version \d+ of .*, in (\d+) ms$", re.MULTILINE)
_LOGGED = {LEVEL: "INFO"}


def part(megabytes: int) -> str:
    return f"{EXPERIMENT} {megabytes}"


def rounds(megabytes: int, systems: Sequence[System], s3: FarS3, folder: Path, tell: Tell, with_flink: bool) -> Rounds:
    """All fill first, then they restart in turn, Flink behind Spark. `size` of the cases is megabytes of state.

    Before the first round that counts each has a start that is killed as well, and brings what it reads into the disk's cache. The state is
    not kept for another run: one that goes on fills anew. Raises BenchmarkError.
    """
    setups = [restore.fill(system, megabytes, s3, folder / system.name.lower(), Figures(), tell, _LOGGED) for system in systems]
    filled = flink.fill(megabytes, s3, folder / "flink", tell) if with_flink else None
    with restore.forgetting([*(setup.bucket for setup in setups), filled.bucket if filled else ""], s3, folder):
        for number in itertools.count():
            found, which = Figures(), f"{megabytes} MB, {f'round {number}' if number else 'once without counting'}"
            for setup in setups:
                tell(f"restart: {setup.system.value}, {which}")
                case = Case(EXPERIMENT, setup.system.value, restore.PARTITIONS, megabytes)
                _restart(setup, case, folder / f"{setup.system.name.lower()}-{number}", found)
            if filled is not None:
                tell(f"restart: {commands.NAME}, {which}")
                pieces, elsewhere = flink.restart(filled, folder / f"flink-{number}")
                case = Case(EXPERIMENT, commands.NAME, flink.PARALLELISM, megabytes)
                found.add(case, "elsewhere_percent", [elsewhere])
                _take_down(found, case, pieces)
            if number:
                yield found


def _restart(setup: Setup, case: Case, folder: Path, figures: Figures) -> None:
    """In a new JVM with no file of the one that was killed; it is killed too, while its query waits for the next trigger."""
    with Session(setup.on_new_machine(folder), folder) as session:
        session.hello()
        place = f"{setup.locations}/q"
        started = session.keep(restore.small(case.size, trigger_s=_HOUR_S), place, _START_S)
        figures.add(case, "elsewhere_percent", [session.elsewhere_percent()])
        restored_ms = session.seen(place)["restored_ms"]
        session.kill()
        found = {"jvm": session.context_ms - session.spawned_ms, "session": session.ready_ms - session.context_ms}
        found["query"] = started["thread_ms"] - session.ready_ms
        progress = started["progress"][0]
        if not progress["batchId"]:
            raise BenchmarkError(f"{setup.system.value} began from nothing, and not with what was there")
        load_ms = restore.loaded_ms(setup.system, case.size, progress)
        if setup.system.stock:
            found |= pieces_of(progress, started["thread_ms"], load_ms)
        else:
            if restored_ms is None:
                raise BenchmarkError(f"{setup.system.value} began from nothing, and not from its newest checkpoint")
            begin_ms, fetch_ms = _milliseconds(progress["timestamp"]), _fetched_ms(session.log)
            files_ms = _written_ms(Path(setup.locations.removeprefix("file://")), begin_ms)
            restored_ms = min(restored_ms, files_ms)  # the thread that takes the event down may come to it late
            found |= {"claim": restored_ms - started["thread_ms"], "files": files_ms - restored_ms}
            found |= pieces_of(progress, files_ms, load_ms) | {"fetch": fetch_ms / _TASKS}
            found["epoch"] -= found["fetch"]
    shutil.rmtree(folder)
    _take_down(figures, case, found)


def _take_down(figures: Figures, case: Case, pieces: Mapping[str, float]) -> None:
    """Raises BenchmarkError where they cannot be true."""
    if wrong := {name: ms for name, ms in pieces.items() if ms < -_ROUNDED_MS}:
        told = ", ".join(f"{name} {ms:.0f} ms" for name, ms in wrong.items())
        raise BenchmarkError(f"{case.system}: pieces of a restart cannot be shorter than nothing: {told}")
    for name, ms in {**pieces, "restart": sum(pieces.values())}.items():
        figures.add(case, f"{name}_ms", [ms])


def pieces_of(progress: Mapping[str, Any], since_ms: float, load_ms: float) -> dict[str, float]:
    """Of the first epoch, from `since_ms` on: until its tasks begin, what its stores took to load, and the rest."""
    took = progress["durationMs"]
    before = took["triggerExecution"] - took["addBatch"] - took.get("commitOffsets", 0)
    plan, load = _milliseconds(progress["timestamp"]) - since_ms + before, load_ms / _TASKS
    return {"plan": plan, "load": load, "epoch": took["triggerExecution"] - before - load}


def _fetched_ms(log: Path) -> float:
    """What the tasks' fetches took together. Raises BenchmarkError where the log does not say that."""
    found = [int(ms) for ms in _FETCHED.findall(log.read_text(errors="replace"))]
    if not found:
        raise BenchmarkError("the application's log does not say how long its tasks waited for their state")
    return float(sum(found))


def _written_ms(location: Path, before_ms: float) -> float:
    """When the last file of a `checkpointLocation` was written that was there before the first epoch."""
    written = [file.stat().st_mtime_ns / 1e6 for file in location.rglob("*") if file.is_file()]
    return max((ms for ms in written if ms <= before_ms), default=before_ms)


def _milliseconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp() * 1000
