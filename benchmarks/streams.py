"""Several streams in one session: which processes they share, what each of them adds, and what an epoch costs while all of them run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import processes, stored
from benchmarks.access_log import Kind, between, by_kind
from benchmarks.agent_bound import FILES
from benchmarks.epochs import Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.standing import own_processes
from benchmarks.systems import System, set_up
from benchmarks.workloads import Workload

EXPERIMENT, BUSY = "streams", "busy streams"
COUNTS = (1, 10, 50)
KINDS = {"JVM": "org.apache.spark", **processes.OWN}
"""Processes of an application by a part of their command line. What else it has is Python, and the program that runs the queries."""
PARTITIONS, _ROWS = 2, 10
_QUERY_S = 300.0
_SETTLE_S = 5.0
EVERY_S, _WATCHED_S = 20, 120
"""Of busy streams: each runs an epoch as often, and so long is looked at it."""


def case_of(system: System, kind: str, count: int) -> Case:
    return Case(EXPERIMENT, f"{system.value}: {kind}", 0, count)


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
                    session.keep(Workload("aggregation", PARTITIONS, _ROWS, trigger_s=3600), f"{setup.locations}/q{number}", _QUERY_S)
                started = count
                time.sleep(_SETTLE_S)
                _measure(system, session, count, figures)


def _measure(system: System, session: Session, count: int, figures: Figures) -> None:
    kinds = {kind: [pid for pid, command in processes.of_session(session.id) if part in command] for kind, part in KINDS.items()}
    if not kinds["JVM"]:
        raise BenchmarkError(f"{system.value}: its JVM could not be found")
    for kind, pids in kinds.items():
        case = case_of(system, kind, count)
        if pids:
            figures.add(case, "processes", [len(pids)])
            figures.add(case, "threads", [sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)])
            figures.add(case, "files", [sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)])
            figures.add(case, "memory_bytes", [sum(processes.resident(pid) for pid in pids)])


def busy(count: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """So many queries that all go on. `size` of the case is their number. Raises BenchmarkError."""
    tell(f"busy streams: {count}")
    setup, case = set_up(System.S3, s3, folder), Case(BUSY, System.S3.value, PARTITIONS, count)
    with Session(setup, folder) as session:
        session.hello()
        places = [f"{setup.locations}/q{number}" for number in range(count)]
        for place in places:
            session.keep(Workload("aggregation", PARTITIONS, _ROWS, trigger_s=EVERY_S), place, _QUERY_S)
        time.sleep(EVERY_S)  # the last one's second epoch
        begun, length = time.time() * 1000, s3.log.stat().st_size
        time.sleep(_WATCHED_S)
        requests = [r for r in between(s3.log, length, s3.log.stat().st_size) if r.bucket == setup.bucket]
        found = [record for place in places for record in session.seen(place)["checkpoints"] if record["trigger_timestamp"] >= begun]
        elsewhere = session.elsewhere_percent()
        memory = {name: processes.resident(pid, peak=True) for name, pid in own_processes(session).items()}
    epochs = sum(r.key.endswith("/_metadata") and r.operation == "PutObject" and r.status < 300 for r in requests)
    files = sum(stored.files(s3, setup.bucket, place.rsplit("/", 1)[1]) for place in places)
    finished = [record for record in found if record["status"] == "COMPLETED"]
    if epochs < count or not finished:
        raise BenchmarkError(f"{count} streams have run {epochs} epochs within {_WATCHED_S} s, and completed {len(finished)} checkpoints")
    for name, size in memory.items():
        figures.add(case, f"{name}_memory_bytes", [size])
    figures.add(case, "requests", [len(requests) / epochs])
    figures.add(case, "look_requests", [sum(r.kind is Kind.GET and r.status == 404 and "/log/" in r.key for r in requests) / epochs])
    figures.add(case, "elsewhere_percent", [elsewhere])
    for kind, number in by_kind(requests).items():
        figures.add(case, f"{kind.value.lower()}_requests", [number / epochs])
    figures.add(case, FILES, [files])
    figures.add(case, "epochs", [epochs])
    figures.add(case, "finalise_ms", [record["finalise_duration"] for record in finished])
    figures.add(case, "end_to_end_ms", [record["end_to_end_duration"] for record in finished])
