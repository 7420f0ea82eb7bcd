"""What is there without a checkpoint being taken: start-up, idle processes, forked programs."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import processes
from benchmarks.budget import Budget
from benchmarks.epochs import PHASE, Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import System, set_up
from benchmarks.workloads import Workload

START_UP, IDLE, FORKS = "start-up", "idle", "forks"
_SETTLE_S = 10
_QUERY_S = 300.0
_EXECVE = re.compile(r'execve\("([^"]+)"(?!.* = -1 )')


def start_up(
    systems: Sequence[System], rounds: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell, budget: Budget | None = None
) -> None:
    """An application, a query on an empty storage, its first epoch of one row; every time a new JVM.

    Round 0 does not count: it brings what all of them read from the disk into its cache. The last system does it for all, as ours reads
    all that stock reads, and more. Raises BenchmarkError.
    """
    budget = budget or Budget()
    for number in range(rounds + 1):
        chosen = systems if number else systems[-1:]
        if not budget.allows(*(f"start-up {system.value}" for system in chosen)):
            figures.note(f"no time was left for round {number} of start-up")
            return
        for system in chosen:
            tell(f"start-up: {system.value}, {f'round {number}' if number else 'once without counting'}")
            own = folder / f"{system.name.lower()}-{number}"
            setup = set_up(system, s3, own)
            with budget.spending(f"start-up {system.value}"), Session(setup, own) as session:
                session_ms = session.hello()
                answer = session.turn(Workload("aggregation", 20, 1), f"{setup.locations}/q", warm=0, epochs=1, timeout_s=_QUERY_S)
                elsewhere = session.elsewhere_percent()
            if number:
                case = Case(START_UP, system.value, 20, 1)
                figures.add(case, "session_ms", [session_ms])
                figures.add(case, "elsewhere_percent", [elsewhere])
                figures.add(case, "first_epoch_ms", [answer["start_ms"]])
                figures.add(case, "start_up_ms", [session_ms + float(answer["start_ms"])])
                for phase, ms in answer["progress"][0]["durationMs"].items():
                    figures.add(case, f"{PHASE}{phase}_ms", [ms])


def idle(seconds: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """A query that has run an epoch and waits for its next trigger in an hour. Raises BenchmarkError."""
    tell(f"idle: {seconds} s")
    setup = set_up(System.S3, s3, folder / "idle")
    with Session(setup, folder / "idle") as session:
        session.hello()
        session.keep(Workload("aggregation", 20, 20_000, trigger_s=3600), f"{setup.locations}/q", _QUERY_S)
        time.sleep(_SETTLE_S)
        pids = own_processes(session)
        before = {name: processes.cpu_ms(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        for name, pid in pids.items():
            case = Case(IDLE, name)
            figures.add(case, "cpu_percent", [(processes.cpu_ms(pid) - before[name]) / seconds / 10])
            figures.add(case, "memory_bytes", [processes.resident(pid)])


def strace_missing() -> str:
    """Why forks cannot be counted here; empty if they can."""
    return "" if shutil.which("strace") else "counting forked programs takes strace, which is not on the PATH: install it"


def forks(systems: Sequence[System], work: Workload, epochs: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """Programs that an application starts while it runs epochs, by name. No time is taken: tracing costs some. Raises BenchmarkError."""
    if why := strace_missing():
        raise BenchmarkError(why)
    for system in systems:
        tell(f"forks: {system.value}, {work.partitions} partitions")
        own = folder / f"forks-{system.name.lower()}"
        setup = set_up(system, s3, own)
        trace = own / "execve"
        with Session(
            setup, own, ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=execve", "-e", "signal=none", "-o", str(trace))
        ) as session:
            session.hello()
            answer = session.turn(work, f"{setup.locations}/q", warm=2, epochs=epochs, timeout_s=_QUERY_S, log=trace)
            marks = answer["marks"]
        with trace.open("rb") as file:
            file.seek(marks[1]["log_bytes"])
            lines = file.read(marks[1 + epochs]["log_bytes"] - marks[1]["log_bytes"]).decode(errors="replace")
        started = Counter(Path(name).name for name in _EXECVE.findall(lines))
        case = Case(FORKS, system.value, work.partitions, work.rows)
        figures.add(case, "forks", [sum(started.values()) / epochs])
        for name, count in started.items():
            figures.add(case, f"{name}_forks", [count / epochs])


def own_processes(session: Session) -> dict[str, int]:
    """Process ids of coordinator and agent. Raises BenchmarkError if one is missing."""
    found = processes.own(session.id)
    if len(found) != len(processes.OWN):
        raise BenchmarkError(f"of coordinator and agent only {', '.join(found) or 'none'} could be found among the application's processes")
    return found
