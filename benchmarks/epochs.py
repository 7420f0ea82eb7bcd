"""What an epoch costs: all systems in turn, in one run, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import access_log, stored
from benchmarks.access_log import Kind
from benchmarks.budget import Budget
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import Setup, System, lacks, set_up
from benchmarks.topic import Feed, feed, needed
from benchmarks.workloads import FROM_KAFKA, Workload

Tell = Callable[[str], None]
Save = Callable[[], None]
"""Called when a part was measured: its figures go to the disk before the next one begins."""
Rounds = Generator[Figures, None, None]
"""What each round has found, without an end. What all of them need is made before the first one."""
_TURN_S = 900.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Turns:
    """One workload, run by each system `rounds` times in turn: `warm` epochs that do not count, then `epochs` that do.

    Both are at least so many, and go on for `seconds`, in the first round for `warm_s`: the faster a system, the more epochs it runs, and
    its JVM is compared when it has compiled what it will. `alike`: of all systems only as many count as the slowest has run. `once` names
    systems that get one turn however many rounds there are: those that take minutes for it and that no target is about.
    """

    experiment: str
    work: Workload
    systems: Sequence[System]
    rounds: int
    warm: int
    epochs: int
    seconds: float = 0
    warm_s: float = 0
    alike: bool = False
    once: Sequence[System] = ()

    def __str__(self) -> str:
        return f"{self.experiment}, {self.work.partitions} partitions, {self.work.rows} rows"

    def case(self, system: System) -> Case:
        return Case(self.experiment, system.value, self.work.partitions, self.work.rows)

    @property
    def part(self) -> str:
        return f"{self}: {'; '.join(system.value for system in self.systems)}"

    @property
    def records(self) -> int:
        """What one turn may read."""
        return needed(self.work.rows, self.warm + self.epochs, self.warm_s + self.seconds)

    def left(self, figures: Figures) -> range:
        """Numbers of the rounds that are still to be run."""
        return range(figures.begun(self.part, self.rounds), self.rounds)


@contextmanager
def sessions(
    systems: Sequence[System], s3: FarS3, folder: Path, figures: Figures, tell: Tell, fed: Feed | None = None
) -> Iterator[Mapping[System, Session]]:
    """An application for each system, which can read what it is `fed` with.

    Those that this version of the package cannot run are left out and noted.
    """
    with ExitStack() as stack:
        found: dict[System, Session] = {}
        for system in systems:
            if why := lacks(system):
                figures.note(f"{system.value} was left out: {why}")
                continue
            tell(f"starting {system.value}")
            own = folder / system.name.lower()
            setup = set_up(system, s3, own, fed.conf(system), fed.jars) if fed else set_up(system, s3, own)
            found[system] = stack.enter_context(Session(setup, own))
            found[system].hello()
            if len(systems) > 1:
                found[system].pause()
        yield found


def run(
    plans: Sequence[Turns],
    s3: FarS3,
    folder: Path,
    figures: Figures,
    tell: Tell,
    budget: Budget | None = None,
    save: Save = lambda: None,
    until: Budget | None = None,
) -> bool:
    """Start an application for each system and let them take their turns: those of which figures are missing, if there is time for any.

    `budget` is the time for everything: what does not fit is left out and noted. After `until` no round is begun, to be run another time:
    False where that happened. Raises BenchmarkError.
    """
    budget, until = budget or Budget(), until or Budget()
    plans = [plan for plan in plans if plan.left(figures)]
    if plans and budget.left() <= 0:
        for plan in plans:
            figures.note(f"no time was left for {plan}")
        return True
    if not plans or until.left() <= 0:
        return not plans
    systems = list(dict.fromkeys(system for plan in plans for system in plan.systems))
    with _feed(plans, folder, tell) as fed, sessions(systems, s3, folder, figures, tell, fed) as found:
        return take_turns(plans, found, s3, figures, tell, budget, save, until)


def _feed(plans: Sequence[Turns], folder: Path, tell: Tell) -> AbstractContextManager[Feed | None]:
    """Records for those that read Kafka."""
    records = [plan.records for plan in plans if plan.work.query in FROM_KAFKA]
    if not records:
        return nullcontext()
    tell(f"starting Kafka, and filling a topic with {max(records):,} records")
    return feed(max(records), folder / "kafka")


def take_turns(
    plans: Sequence[Turns],
    found: Mapping[System, Session],
    s3: FarS3,
    figures: Figures,
    tell: Tell,
    budget: Budget,
    save: Save = lambda: None,
    until: Budget | None = None,
) -> bool:
    """First rounds of all workloads come before second ones; every other round goes the other way about.

    Applications that wait for their turn are stopped. A round counts for all systems or, but for the first one, for none. The answer as
    that of `run`. Raises BenchmarkError.
    """
    until = until or Budget()
    left = {plan: plan.left(figures) for plan in plans}
    for number in range(max(plan.rounds for plan in plans)):
        for plan in (p for p in plans if number in left[p]):
            if until.left() <= 0:
                return False
            chosen = [found[s] for s in plan.systems if s in found and not (number and s in plan.once)]
            complete = budget.allows(*(_step(plan, session) for session in chosen))
            figures.begin(plan.part)
            if not number:  # what an earlier try at it left
                begun = {plan.case(system) for system in plan.systems}
                figures.anew(plan.part, begun.__contains__)
            done: list[tuple[Setup, dict[str, Any]]] = []
            for session in chosen[:: -1 if number % 2 else 1] if complete else ():
                tell(f"{_step(plan, session)}, round {number + 1}")
                warm_s = plan.warm_s if number == left[plan].start else 0
                with _alone(session) if len(found) > 1 else nullcontext():
                    answer = _turn(plan, warm_s, session, s3, budget)
                if answer is None:
                    complete = False
                    break
                done.append((session.setup, answer))
            left_out = f"no time was left for round {number + 1} of {plan}"
            if not complete:
                figures.note(left_out)
            if done and (complete or not number):
                taken = Figures()
                gather_round(plan, done, s3, taken)
                figures.complete(plan.part, plan.experiment, taken)
            if complete:
                figures.notes = [note for note in figures.notes if note != left_out]
            save()
    return True


@contextmanager
def _alone(session: Session) -> Iterator[None]:
    """While all other applications are stopped."""
    session.resume()
    try:
        yield
    finally:
        session.pause()


def _step(plan: Turns, session: Session) -> str:
    return f"{plan}: {session.setup.system.value}"


def _turn(plan: Turns, warm_s: float, session: Session, s3: FarS3, budget: Budget) -> dict[str, Any] | None:
    """None where the time ran out. Raises BenchmarkError."""
    location = f"{session.setup.locations}/{plan.experiment}-{next(_numbers)}"
    by_time = warm_s + plan.seconds
    within = min(_TURN_S, budget.left() - by_time)
    if within <= 0:
        return None
    try:
        with budget.spending(_step(plan, session)):
            answer = session.turn(
                plan.work,
                location,
                warm=plan.warm,
                warm_s=warm_s,
                epochs=plan.epochs,
                seconds=plan.seconds,
                timeout_s=within,
                log=s3.log,
            )
            return {**answer, "name": location.rsplit("/", 1)[1]}
    except BenchmarkError:
        if within < _TURN_S and budget.left() <= by_time:
            return None
        raise


def gather_round(plan: Turns, done: Sequence[tuple[Setup, dict[str, Any]]], s3: FarS3, figures: Figures) -> None:
    """Of systems that are to be `alike` the same number of epochs: those at the beginning, which have the same state before them."""
    counts = [len(answer["marks"]) - answer["warm"] for _, answer in done]
    if plan.alike and counts:
        counts = [min(counts)] * len(counts)
    for (setup, answer), count in zip(done, counts, strict=True):
        case, warm = plan.case(setup.system), answer["warm"]
        progress = answer["progress"][warm : warm + count]
        began, ended = (answer["marks"][n] for n in (warm - 1, warm + count - 1))
        for name in began["cpu_ms"]:
            figures.add(case, f"{name}_cpu_ms", [(ended["cpu_ms"][name] - began["cpu_ms"][name]) / count])
        there_was = (ended["at_ms"] - began["at_ms"]) * (os.cpu_count() or 1)
        figures.add(case, "elsewhere_percent", [100 * (ended["cpu_ms"]["elsewhere"] - began["cpu_ms"]["elsewhere"]) / there_was])
        gather_epochs(figures, case, progress)
        gather_checkpoints(figures, case, answer["checkpoints"], {int(p["batchId"]) for p in progress})
        figures.add(case, "start_ms", [answer["start_ms"]])
        if setup.system.on_s3:
            logged = access_log.between(s3.log, began["log_bytes"], ended["log_bytes"])
            requests = access_log.of_stream(logged, setup.bucket, answer["name"])
            gather_requests(figures, case, requests, count, s3.sizes(setup.bucket), answer["name"])
            if not setup.system.stock:
                newest = stored.newest(s3, setup.bucket, answer["name"])
                dead = stored.dead_share(newest[1].snapshots) if newest else None
                figures.add(case, "dead_share", [] if dead is None else [dead])


def gather_epochs(figures: Figures, case: Case, progress: Sequence[Mapping[str, Any]]) -> None:
    """Medians are over epochs; a value per state store is the epoch's mean over its stores."""
    for p in progress:
        took = p["durationMs"]
        figures.add(case, "epoch_ms", [took["triggerExecution"]])
        figures.add(case, "tasks_ms", [took.get("addBatch", 0)])
        figures.add(case, "logs_ms", [took.get("walCommit", 0) + took.get("commitOffsets", 0)])
        for phase, ms in took.items():
            figures.add(case, f"{PHASE}{phase}_ms", [ms])
        operators = p["stateOperators"]
        stores = sum(o["numStateStoreInstances"] for o in operators)
        if stores:
            commit = sum(o["commitTimeMs"] for o in operators) / stores
            engine = sum(o["customMetrics"].get(name, 0) for o in operators for name in _ENGINE) / stores
            figures.add(case, "commit_per_store_ms", [commit])
            figures.add(case, "commit_beyond_engine_ms", [commit - engine])
            figures.add(case, "load_per_store_ms", [sum(o["customMetrics"].get("rocksdbLoadLatencyMs", 0) for o in operators) / stores])


PHASE, SPAN, STORED = "phase_", "span_", "stored_"
"""How metrics of a profile begin: Spark's own phases of an epoch, those of a checkpoint, and bytes by what they were stored for."""
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
            barrier = record["trigger_timestamp"] + record["plan_duration"]
            figures.add(case, f"{SPAN}plan_ms", [record["plan_duration"]])
            figures.add(case, f"{SPAN}acks_ms", [record["latest_ack_timestamp"] - barrier])
            figures.add(case, f"{SPAN}finalise_ms", [record["finalise_duration"]])


def gather_requests(
    figures: Figures, case: Case, requests: Sequence[access_log.Request], epochs: int, sizes: Mapping[str, int], name: str
) -> None:
    """Requests and bytes an epoch, of the stream whose folder is `name`. `sizes` tells those of objects that came in parts; of how
    many it does not, `unknown_objects` says."""
    counts = access_log.by_kind(requests)
    for kind in Kind:
        if counts[kind] or kind is Kind.LIST:
            figures.add(case, f"{kind.value.lower()}_requests", [counts[kind] / epochs])
    figures.add(case, "requests", [len(requests) / epochs])
    in_parts = {r.key for r in requests if r.operation == "CompleteMultipartUpload" and r.status < 300}
    figures.add(case, "unknown_objects", [len(in_parts - sizes.keys()) / epochs])
    put = access_log.bytes_put(requests) + Counter({key: sizes.get(key, 0) for key in in_parts})
    figures.add(case, "put_bytes", [put.total() / epochs])
    by_kind: Counter[str] = Counter()
    for key, size in put.items():
        by_kind[stored.kind_of_object(key.rpartition(f"/{name}/")[2])] += size
    for what, size in by_kind.items():
        figures.add(case, f"{STORED}{what}_bytes", [size / epochs])
