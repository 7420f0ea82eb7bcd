"""Long chains of small changelogs: what the first epoch on a new machine costs, in time, requests and bytes, beside one on nothing.

With epochs of a tenth of a second and Spark's maintenance every minute chains of hundreds are the normal case. A start may end the chains
that it has loaded, with full snapshots (`jvm_shim/hooks/LoadedChain.scala`), so each round has chains of its own.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import stored
from benchmarks.access_log import Kind, between, by_kind, of_stream
from benchmarks.epochs import Rounds, Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import Setup, System, set_up
from benchmarks.workloads import Workload

EXPERIMENT = "chains"
PARTITIONS, EPOCHS, ROWS = 100, 100, 1000
CHAIN, EMPTY = "first_epoch", "empty"
"""How metrics of a start begin: from the chains, and on nothing."""
SELDOM = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "10h",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000000",
}
_FILL_S, _START_S = 1800.0, 600.0


def rounds(systems: Sequence[System], partitions: int, epochs: int, s3: FarS3, folder: Path, tell: Tell) -> Rounds:
    """`size` of the cases is epochs, each of `ROWS` rows and without a full snapshot. Raises BenchmarkError."""
    for number in itertools.count(1):
        found, work = Figures(), Workload("aggregation", partitions, ROWS)
        for system in systems:
            _round(system, work, epochs, s3, folder / f"{system.name.lower()}-{number}", found, tell)
        yield found


def _round(system: System, work: Workload, epochs: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    case = Case(EXPERIMENT, system.value, work.partitions, epochs)
    tell(f"chains: {system.value} fills {work.partitions} partitions, {epochs} epochs")
    setup = set_up(system, s3, folder / "filled", SELDOM)
    with Session(setup, folder / "filled") as session:
        session.hello()
        session.turn(work, f"{setup.locations}/{CHAIN}", warm=0, epochs=epochs, timeout_s=_FILL_S)
    if setup.bucket:
        figures.add(case, "state_bytes", [_named(s3, setup, epochs)])
    used = [_start(setup, work, what, s3, folder / what, case, figures, tell) for what in (EMPTY, CHAIN)]
    figures.add(case, "elsewhere_percent", [max(used)])
    shutil.rmtree(folder)
    figures.add(case, "beyond_ms", [figures.values(case, f"{CHAIN}_ms")[-1] - figures.values(case, f"{EMPTY}_ms")[-1]])


def _named(s3: FarS3, setup: Setup, epochs: int) -> int:
    """Bytes of objects that a start has to read. Raises BenchmarkError where they are no chains of so many changelogs."""
    newest = stored.newest(s3, setup.bucket, CHAIN)
    least = min((len(snapshot.handles) for snapshot in newest[1].snapshots), default=0) if newest else 0
    if newest is None or least < epochs:
        raise BenchmarkError(f"chains of {epochs} changelogs were to be made, and the shortest has {least}")
    return sum(high - low for low, high in stored.spans(newest[1].snapshots).values())


def _start(setup: Setup, work: Workload, what: str, s3: FarS3, folder: Path, case: Case, figures: Figures, tell: Tell) -> float:
    """How much of the machine's processors others had meanwhile, in percent."""
    new, before, length = setup.on_new_machine(folder), s3.brought(), s3.log.stat().st_size
    with Session(new, folder) as session:
        session.hello()
        answer = session.turn(work, f"{setup.locations}/{what}", warm=0, epochs=1, timeout_s=_START_S, log=s3.log)
        elsewhere = session.elsewhere_percent()
    figures.add(case, f"{what}_ms", [answer["start_ms"]])
    if not setup.bucket:
        return elsewhere
    found = of_stream(between(s3.log, length, answer["marks"][0]["log_bytes"]), setup.bucket, what)
    kinds = by_kind(found)
    figures.add(case, f"{what}_requests", [len(found)])
    figures.add(case, f"{what}_get_requests", [kinds[Kind.GET]])
    figures.add(case, f"{what}_read_bytes", [s3.brought() - before])
    told = ", ".join(f"{count} {kind.value}" for kind, count in sorted(kinds.items(), key=lambda one: -one[1]))
    tell(f"chains: {what}: {answer['start_ms'] / 1000:.1f} s, {len(found)} requests: {told}; {_phases(answer)}")
    return elsewhere


def _phases(answer: dict[str, Any]) -> str:
    return ", ".join(f"{name} {ms} ms" for name, ms in answer["progress"][0]["durationMs"].items())
