"""Several streams in one session: which processes they share, and what each of them adds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import processes
from benchmarks.epochs import Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import System, set_up
from benchmarks.workloads import Workload

EXPERIMENT = "streams"
KINDS = {"JVM": "org.apache.spark", **processes.OWN}
"""Processes of an application by a part of their command line. What else it has is Python, and the program that runs the queries."""
_PARTITIONS, _ROWS = 2, 10
_QUERY_S = 300.0
_SETTLE_S = 5.0


def run(counts: Sequence[int], systems: Sequence[System], s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """`size` of the cases is the number of queries, each of which has run an epoch and waits for its next trigger in an hour. Raises
    BenchmarkError."""
    for system in systems:
        setup = set_up(system, s3, folder / system.name.lower())
        with Session(setup, folder / system.name.lower()) as session:
            session.hello()
            started = 0
            for count in sorted(set(counts)):
                tell(f"streams: {system.value}, {count}")
                for number in range(started, count):
                    session.keep(Workload("aggregation", _PARTITIONS, _ROWS, trigger_s=3600), f"{setup.locations}/q{number}", _QUERY_S)
                started = count
                time.sleep(_SETTLE_S)
                _measure(system, session, count, figures)


def _measure(system: System, session: Session, count: int, figures: Figures) -> None:
    kinds = {kind: [pid for pid, command in processes.of_session(session.id) if part in command] for kind, part in KINDS.items()}
    if not kinds["JVM"]:
        raise BenchmarkError(f"{system.value}: its JVM could not be found")
    for kind, pids in kinds.items():
        case = Case(EXPERIMENT, f"{system.value}: {kind}", 0, count)
        if pids:
            figures.add(case, "processes", [len(pids)])
            figures.add(case, "threads", [sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)])
            figures.add(case, "files", [sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)])
            figures.add(case, "memory_bytes", [sum(processes.resident(pid) for pid in pids)])
