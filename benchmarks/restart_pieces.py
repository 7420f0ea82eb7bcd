"""A restart after a kill, from the new process to the end of its first epoch, in pieces, by what anybody can see of it: times of Spark's
context, session and progress, what the Checkpoints tab and the log say, and when files were written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import restore
from benchmarks.epochs import Save, Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.job import LEVEL
from benchmarks.session import Session
from benchmarks.systems import Setup, System

EXPERIMENT = "restart pieces"
SIZES = (0, restore.MEGABYTES)
"""Megabytes of state; 0: of one row."""
PIECES = ("jvm", "session", "query", "claim", "files", "plan", "fetch", "load", "epoch")
_HOUR_S = 3600
_START_S = 3600.0
_TASKS = 2
"""That run at once, of a `local[2]`: what tasks take one after the other is spread over so many."""
_FETCHED = re.compile(r" fetched version \d+ of .*, in (\d+) ms$", re.MULTILINE)
_LOGGED = {LEVEL: "INFO"}


def part(megabytes: int) -> str:
    return f"{EXPERIMENT} {megabytes}"


def run(
    megabytes: int, systems: Sequence[System], rounds: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell, save: Save = lambda: None
) -> None:
    """All fill first, then they restart in turn, as many rounds as are missing. `size` of the cases is megabytes of state.

    Before the first round that counts each has a start that is killed as well, and brings what it reads into the disk's cache. The state is
    not kept for another run: one that goes on fills anew. Raises BenchmarkError.
    """
    setups = [restore.fill(system, megabytes, s3, folder / system.name.lower(), Figures(), tell, _LOGGED) for system in systems]
    begun = figures.parts.get(part(megabytes), 0)
    for number in range(begun, rounds + 1):
        found = Figures()
        for setup in setups:
            tell(f"restart: {setup.system.value}, {megabytes} MB, {f'round {number}' if number > begun else 'once without counting'}")
            pieces = _restart(setup, megabytes, folder / f"{setup.system.name.lower()}-{number}")
            case = Case(EXPERIMENT, setup.system.value, restore.PARTITIONS, megabytes)
            for name, ms in {**pieces, "restart": sum(pieces.values())}.items():
                found.add(case, f"{name}_ms", [ms])
        if number > begun:
            figures.take(found)
            figures.finish(part(megabytes), EXPERIMENT)
            save()


def _restart(setup: Setup, megabytes: int, folder: Path) -> dict[str, float]:
    """In a new JVM with no file of the one that was killed; it is killed too, while its query waits for the next trigger."""
    with Session(setup.on_new_machine(folder), folder) as session:
        session.hello()
        place = f"{setup.locations}/q"
        started = session.keep(restore.small(megabytes, trigger_s=_HOUR_S), place, _START_S)
        restored_ms = session.seen(place)["restored_ms"]
        session.kill()
        found = {"jvm": session.context_ms - session.spawned_ms, "session": session.ready_ms - session.context_ms}
        found["query"] = started["thread_ms"] - started["began_ms"]
        progress = started["progress"][0]
        load_ms = restore.loaded_ms(setup.system, megabytes, progress)
        if setup.system.stock:
            found |= pieces_of(progress, started["thread_ms"], load_ms)
        else:
            if restored_ms is None:
                raise BenchmarkError(f"{setup.system.value} began from nothing, and not from its newest checkpoint")
            begin_ms, fetch_ms = _milliseconds(progress["timestamp"]), _fetched_ms(session.log)
            files_ms = _written_ms(Path(setup.locations.removeprefix("file://")), begin_ms)
            found |= {"claim": restored_ms - started["thread_ms"], "files": files_ms - restored_ms}
            found |= pieces_of(progress, files_ms, load_ms) | {"fetch": fetch_ms / _TASKS}
            found["epoch"] -= found["fetch"]
    shutil.rmtree(folder)
    return found


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
