"""Long chains of small changelogs: what the first epoch on a new machine costs, in time and requests, beside one on nothing; and what the
same costs stock Spark, which has its files on its own disk.

With epochs of a tenth of a second and Spark's maintenance every minute chains of hundreds are the normal case.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.access_log import Kind, between, by_kind, of_stream
from benchmarks.epochs import Tell
from benchmarks.far_s3 import FarS3
from benchmarks.session import Session
from benchmarks.systems import Setup, System, set_up
from benchmarks.workloads import Workload

ROWS = 1000
_FILL_S, _RESTORE_S = 1800.0, 600.0
NO_MAINTENANCE = {"spark.sql.streaming.stateStore.maintenanceInterval": "10h"}
NO_SNAPSHOTS = {**NO_MAINTENANCE, "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000000"}


@dataclass(frozen=True)
class Start:
    """From the query's start to the end of its first epoch, and what its stream asked of S3 until then."""

    first_epoch_ms: float
    requests: int
    gets: int


def run(
    system: System, partitions: int, epochs: int, rounds: int, s3: FarS3, folder: Path, tell: Tell, snapshots: bool = False
) -> list[dict[str, Start]]:
    """Of each round a start on nothing and one from the chains; the next one goes on where it ended. `snapshots`: the engine takes full
    ones, and it is not Spark's maintenance that writes them. Raises BenchmarkError."""
    setup = set_up(system, s3, folder / "filled", NO_MAINTENANCE if snapshots else NO_SNAPSHOTS)
    tell(f"chains: {system.value} fills {partitions} partitions, {epochs} epochs")
    work = Workload("aggregation", partitions, ROWS)
    with Session(setup, folder / "filled") as session:
        session.hello()
        session.turn(work, f"{setup.locations}/q", warm=0, epochs=epochs, timeout_s=_FILL_S)
    shutil.rmtree(folder / "filled" / "local", ignore_errors=True)
    return [
        {name: _start(setup, work, name, s3, folder / f"{name}-{number}", tell) for name in (f"empty-{number}", "q")}
        for number in range(rounds)
    ]


def _start(setup: Setup, work: Workload, name: str, s3: FarS3, folder: Path, tell: Tell) -> Start:
    folder.mkdir(parents=True)
    conf: dict[str, Any] = {**setup.conf, "spark.local.dir": str(folder / "local")}
    with Session(Setup(setup.system, conf, setup.locations, setup.bucket, setup.environment), folder) as session:
        session.hello()
        before = s3.log.stat().st_size
        answer = session.turn(work, f"{setup.locations}/{name}", warm=0, epochs=1, timeout_s=_RESTORE_S, log=s3.log)
    found = of_stream(between(s3.log, before, answer["marks"][0]["log_bytes"]), setup.bucket, name)
    kinds = by_kind(found)
    start = Start(answer["start_ms"], len(found), kinds[Kind.GET])
    told = ", ".join(f"{count} {kind.value}" for kind, count in sorted(kinds.items(), key=lambda one: -one[1]))
    tell(f"chains: {name}: {start.first_epoch_ms / 1000:.1f} s, {start.requests} requests: {told}")
    tell(f"chains: {name}: {answer['progress'][0]['durationMs']}")
    return start
