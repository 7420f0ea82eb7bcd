"""What an epoch costs: all systems in turn, in one run, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import access_log
from benchmarks.access_log import Kind
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import System, lacks, set_up
from benchmarks.workloads import Workload

Tell = Callable[[str], None]
_TURN_S = 900.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Turns:
    """One workload, run by each system `rounds` times in turn: `warm` epochs that do not count, then `epochs` that do.

    `once` names systems that get one turn however many rounds there are: those that take minutes for it.
    """

    experiment: str
    work: Workload
    systems: Sequence[System]
    rounds: int
    warm: int
    epochs: int
    once: Sequence[System] = ()

    def case(self, system: System) -> Case:
        return Case(self.experiment, system.value, self.work.partitions, self.work.rows)


@contextmanager
def sessions(systems: Sequence[System], s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> Iterator[Mapping[System, Session]]:
    """An application for each system; those that this version of the package cannot run are left out and noted."""
    with ExitStack() as stack:
        found: dict[System, Session] = {}
        for system in systems:
            if why := lacks(system):
                figures.notes.append(f"{system.value} was left out: {why}")
                continue
            tell(f"starting {system.value}")
            own = folder / system.name.lower()
            found[system] = stack.enter_context(Session(set_up(system, s3, own), own))
            found[system].hello()
        yield found


def run(plans: Sequence[Turns], s3: FarS3, folder: Path, figures: Figures, tell: Tell, deadline: float | None = None) -> None:
    """First rounds of all workloads come before second ones; after `deadline` (monotonic seconds) no later round begins.

    Raises BenchmarkError.
    """
    systems = list(dict.fromkeys(system for plan in plans for system in plan.systems))
    with sessions(systems, s3, folder, figures, tell) as found:
        for number in range(max(plan.rounds for plan in plans)):
            for plan in (p for p in plans if number < p.rounds):
                if number and deadline is not None and time.monotonic() > deadline:
                    figures.notes.append(
                        f"no time was left for round {number + 1} of {plan.experiment} over {plan.work.partitions} partitions"
                    )
                    continue
                for system in (s for s in plan.systems if s in found and not (number and s in plan.once)):
                    tell(f"{plan.experiment}, {plan.work.partitions} partitions, {plan.work.rows} rows: {system.value}, round {number + 1}")
                    _turn(plan, found[system], s3, figures)


def _turn(plan: Turns, session: Session, s3: FarS3, figures: Figures) -> None:
    location = f"{session.setup.locations}/{plan.experiment}-{next(_numbers)}"
    answer = session.turn(plan.work, location, warm=plan.warm, epochs=plan.epochs, timeout_s=_TURN_S, log=s3.log)
    case = plan.case(session.setup.system)
    progress = answer["progress"][plan.warm : plan.warm + plan.epochs]
    marks = answer["marks"]
    began, ended = (marks[n]["cpu_ms"] for n in (plan.warm - 1, plan.warm + plan.epochs - 1))
    for name in began:
        figures.add(case, f"{name}_cpu_ms", [(ended[name] - began[name]) / plan.epochs])
    gather_epochs(figures, case, progress)
    gather_checkpoints(figures, case, answer["checkpoints"], {int(p["batchId"]) for p in progress})
    figures.add(case, "start_ms", [answer["start_ms"]])
    if session.setup.system.on_s3:
        requests = access_log.between(s3.log, marks[plan.warm - 1]["log_bytes"], marks[plan.warm + plan.epochs - 1]["log_bytes"])
        gather_requests(figures, case, requests, plan.epochs, s3.sizes(session.setup.bucket))


def gather_epochs(figures: Figures, case: Case, progress: Sequence[Mapping[str, Any]]) -> None:
    """Medians are over epochs; a value per state store is the epoch's mean over its stores."""
    for p in progress:
        took = p["durationMs"]
        figures.add(case, "epoch_ms", [took["triggerExecution"]])
        figures.add(case, "tasks_ms", [took.get("addBatch", 0)])
        figures.add(case, "logs_ms", [took.get("walCommit", 0) + took.get("commitOffsets", 0)])
        operators = p["stateOperators"]
        stores = sum(o["numStateStoreInstances"] for o in operators)
        if stores:
            commit = sum(o["commitTimeMs"] for o in operators) / stores
            engine = sum(o["customMetrics"].get(name, 0) for o in operators for name in _ENGINE) / stores
            figures.add(case, "commit_per_store_ms", [commit])
            figures.add(case, "commit_beyond_engine_ms", [commit - engine])
            figures.add(case, "load_per_store_ms", [sum(o["customMetrics"].get("rocksdbLoadLatencyMs", 0) for o in operators) / stores])


# What RocksDB itself does in a commit, as the state store's own metrics tell it.
_ENGINE = (
    "rocksdbChangeLogWriterCommitLatencyMs",
    "rocksdbCommitFlushLatency",
    "rocksdbCommitCompactLatency",
    "rocksdbCommitCheckpointLatency",
)


def gather_checkpoints(figures: Figures, case: Case, records: Sequence[Mapping[str, Any]], epochs: set[int]) -> None:
    """From the Checkpoints tab: `end_to_end_ms` is from the barrier to the moment in which `_metadata` is known to be stored."""
    for record in records:
        if record["status"] == "COMPLETED" and int(record["id"]) in epochs:
            figures.add(case, "end_to_end_ms", [record["end_to_end_duration"]])
            figures.add(case, "checkpointed_bytes", [record["checkpointed_size"]])


def gather_requests(figures: Figures, case: Case, requests: Sequence[access_log.Request], epochs: int, sizes: Mapping[str, int]) -> None:
    """Requests and bytes an epoch. `sizes` tells those of objects that came in parts, which the log does not."""
    counts = access_log.by_kind(requests)
    for kind in Kind:
        if counts[kind] or kind is Kind.LIST:
            figures.add(case, f"{kind.value.lower()}_requests", [counts[kind] / epochs])
    figures.add(case, "requests", [len(requests) / epochs])
    in_parts = {r.key for r in requests if r.operation == "CompleteMultipartUpload" and r.status < 300}
    figures.add(case, "put_bytes", [(access_log.bytes_put(requests) + sum(sizes.get(key, 0) for key in in_parts)) / epochs])
