"""What stands between the benchmark and Spark: the floor, the jars' pom, what is gathered from a query's progress."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from benchmarks import agents, epochs, jars, processes
from benchmarks.__main__ import cli
from benchmarks.access_log import Request
from benchmarks.budget import Budget
from benchmarks.epochs import Turns, gather_checkpoints, gather_epochs, gather_requests, gather_round, take_turns
from benchmarks.epochs import run as run_epochs
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.finalise import run as finalise
from benchmarks.floor import URL, ThrowAwayStorage, throw_away, write_interpreter
from benchmarks.machine import kernel
from benchmarks.plans import FULL, SHORT, Plan
from benchmarks.restore import FILLED
from benchmarks.sampler import shares
from benchmarks.session import Session
from benchmarks.stored import dead_share, newest
from benchmarks.systems import BYPASS, HOOKS, SAME_SETTINGS, VALIDATION, Setup, System, check_settings, set_up
from benchmarks.tables import tables
from benchmarks.topic import Feed
from benchmarks.workloads import SERVERS, Workload
from spark_ckpt.conf.spark_settings import SUGGESTED_SETTINGS, spark_settings
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId
from spark_ckpt.paths import pack_key
from spark_ckpt.process.jar import jar_path
from spark_ckpt.storage.base import PutResult, Slice
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.probe import check_put_if_absent
from spark_ckpt.stored.metadata.codec import encode_metadata
from testbed.maven import pom

PLANS = (SHORT, FULL)
WAREHOUSE = "spark.sql.warehouse.dir"
CASE = Case("aggregation", "system", 2, 10)


def test_the_floor_keeps_the_log_and_throws_state_away(tmp_path: Path) -> None:
    storage = ThrowAwayStorage("memory://thrown-away")
    check_put_if_absent(storage)
    storage.put_slices("run-00000001/seg/0-a", [Slice(tmp_path / "nothing is read", 0, 10)])
    assert storage.put_if_absent("log/1", b"claim") is PutResult.STORED
    assert [o.key for o in storage.list("")] == ["log/1"]


def test_the_floors_streams_know_nothing_of_each_other() -> None:
    assert throw_away(f"{URL}/q1", S3Options()).put_if_absent("log/1", b"claim") is PutResult.STORED
    assert throw_away(f"{URL}/q2", S3Options()).put_if_absent("log/1", b"claim") is PutResult.STORED


def test_the_floors_interpreter_is_one_for_everything_else(tmp_path: Path) -> None:
    python = write_interpreter(tmp_path / "python")
    said = subprocess.run([python, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == "42\n"


def test_a_coordinator_finishes_simulated_partitions() -> None:
    figures = Figures()
    finalise([50], figures)
    young, grown = figures.cases("finalise")
    small, large = (figures.median(case, "metadata_bytes") for case in (young, grown))
    assert small is not None
    assert large is not None
    assert (young.size, grown.size, small < large) == (1, 8, True)
    assert all(figures.values(case, "memory_bytes") for case in (young, grown))
    sampled, parts = ({m for c, m, _ in figures if c == grown and m.startswith(start)} for start in ("sampled_", "part_"))
    assert {"part_name_bytes", "part_checksum_bytes"} <= parts
    assert all(sum(figures.values(grown, metric)) > 0 for metric in sampled)


def test_several_agents_make_one_checkpoint(tmp_path: Path) -> None:
    figures = Figures()
    agents.run([5], 2, 2, FarS3("", "", tmp_path / "log"), tmp_path, figures, System.FILE)
    [case] = figures.cases("agents")
    assert figures.values(case, "messages") == [2, 2], "one for each agent and epoch"
    assert all(size > 0 for metric in ("metadata_bytes", "memory_bytes") for size in figures.values(case, metric))
    assert len(figures.values(case, "agent_memory_bytes")) == 2
    assert "Many partitions and agents" in {table.title for table in tables(figures)}


SAMPLED = """
import sys, threading, time
from pathlib import Path
from benchmarks.sampler import sample
from spark_ckpt.units import parse_duration
sample(Path(sys.argv[1]))
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
until = time.monotonic() + 1
while time.monotonic() < until:
    for _ in range(1000):
        parse_duration("10min")
"""


def test_samples_say_in_which_module_the_processor_was_used(tmp_path: Path) -> None:
    samples, began = tmp_path / "samples", time.monotonic()
    subprocess.run([sys.executable, "-c", SAMPLED, str(samples)], check=True, timeout=60)
    found = shares(samples, [(began, time.monotonic())])
    assert list(found) == ["units"]
    assert found["units"] == 100
    assert shares(samples, [(began - 2, began - 1)]) == {}


def test_the_pom_asks_for_the_modules_and_not_for_the_bundle() -> None:
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ET.fromstring(pom(jars.artifacts())).findall(".//m:dependencies/m:dependency", names)
    versions = {d.findtext("m:artifactId", "", names): d.findtext("m:version", "", names) for d in found}
    assert versions["hadoop-aws"] == jars.HADOOP
    assert versions["s3"] == versions["s3-transfer-manager"] == jars.SDK
    assert "bundle" not in versions
    excluded = {e.findtext("m:artifactId", "", names) for e in found[0].findall(".//m:exclusion", names)}
    assert "bundle" in excluded


def test_without_maven_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match=r"no Maven \(mvn\) on the PATH: install it$"):
        jars.s3a_jars(tmp_path / "jars")


def test_an_epoch_is_taken_from_the_querys_progress() -> None:
    metrics = {"rocksdbChangeLogWriterCommitLatencyMs": 10, "rocksdbLoadLatencyMs": 6}
    operator = {"numStateStoreInstances": 4, "commitTimeMs": 18, "customMetrics": metrics}
    durations = {"triggerExecution": 500, "addBatch": 400, "walCommit": 20, "commitOffsets": 30}
    figures = Figures()
    gather_epochs(figures, CASE, [{"durationMs": durations, "stateOperators": [operator]}])
    found = {metric: values for _, metric, values in figures}
    assert found == {
        "epoch_ms": [500],
        "tasks_ms": [400],
        "logs_ms": [50],
        "commit_per_store_ms": [4.5],
        "commit_beyond_engine_ms": [2.0],
        "load_per_store_ms": [1.5],
        **{f"phase_{name}_ms": [took] for name, took in durations.items()},
    }


SPANS = {"trigger_timestamp": 1000, "plan_duration": 20, "latest_ack_timestamp": 1090, "finalise_duration": 30}


def test_only_completed_checkpoints_of_measured_epochs_count() -> None:
    figures = Figures()
    record = {**SPANS, "id": 3, "status": "COMPLETED", "end_to_end_duration": 120, "checkpointed_size": 9}
    gather_checkpoints(figures, CASE, [record, {**record, "id": 1}, {**record, "id": 4, "status": "FAILED"}], {3, 4})
    assert figures.values(CASE, "end_to_end_ms") == [120]
    assert [figures.values(CASE, f"span_{name}_ms") for name in ("plan", "acks", "finalise")] == [[20], [70], [30]]


def test_requests_and_bytes_are_those_of_an_epoch() -> None:
    figures = Figures()
    requests = [
        Request("PutObject", "bench", "ckpt/q/log/1", 200, 100),
        Request("CreateMultipartUpload", "bench", "ckpt/q/run-00000001/sst/a", 200, 0),
        Request("UploadPart", "bench", "ckpt/q/run-00000001/sst/a", 200, 0),
        Request("CompleteMultipartUpload", "bench", "ckpt/q/run-00000001/sst/a", 200, 0),
        Request("DeleteObjects", "bench", "-", 200, 0),
        Request("PutObject", "bench", "ckpt/q/log/2", 412, 50),
    ]
    gather_requests(figures, CASE, requests, 2, {"ckpt/q/run-00000001/sst/a": 9_000, "ckpt/p/run-00000001/sst/a": 7}, "q")
    found = {metric: values for _, metric, values in figures}
    stored = {"stored_log_bytes": [50], "stored_sst_bytes": [4500], "unknown_objects": [0]}
    asked = {"put_requests": [2.5], "delete_requests": [0.5], "list_requests": [0], "requests": [3.0], "put_bytes": [4550]}
    assert found == {**asked, **stored}
    figures.forget(lambda _: True)
    gather_requests(figures, CASE, requests, 2, {}, "q")
    assert figures.values(CASE, "unknown_objects") == [0.5], "what is gone by then is not taken for nothing"


def epoch(number: int, at_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
    progress = {"batchId": number, "durationMs": {"triggerExecution": 100 + number}, "stateOperators": []}
    return progress, {"epoch": number, "at_ms": at_ms, "cpu_ms": {"all": 10 * number, "elsewhere": 0.0}, "log_bytes": 0}


@pytest.mark.parametrize(("alike", "counts"), [(True, (4, 4)), (False, (6, 4))])
def test_all_epochs_after_the_warm_ones_count_or_as_many_of_each_system(alike: bool, counts: tuple[int, int], tmp_path: Path) -> None:
    systems = (System.FLOOR, System.FILE)
    plan = Turns("interval", Workload("aggregation", 2, 10), systems, rounds=1, warm=2, epochs=1, seconds=30, alike=alike)
    done = []
    for system, count, warm in ((System.FLOOR, 9, 3), (System.FILE, 6, 2)):
        progress, marks = zip(*(epoch(n, n) for n in range(count)), strict=True)
        records = [{**SPANS, "id": n, "status": "COMPLETED", "end_to_end_duration": n, "checkpointed_size": 1} for n in range(count)]
        answer = {"progress": list(progress), "marks": list(marks), "checkpoints": records, "start_ms": 1, "warm": warm}
        done.append((Setup(system, {}, ""), answer))
    figures = Figures()
    gather_round(plan, done, FarS3("", "", tmp_path / "log"), figures)
    for system, first, count in zip(plan.systems, (3, 2), counts, strict=True):
        assert figures.values(plan.case(system), "epoch_ms") == [100 + n for n in range(first, first + count)]
        assert figures.values(plan.case(system), "end_to_end_ms") == list(range(first, first + count))
        assert figures.values(plan.case(system), "all_cpu_ms") == [10]


class EmptyS3(FarS3):
    def sizes(self, bucket: str) -> dict[str, int]:
        return {}


def test_a_turn_counts_the_requests_of_its_own_stream(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "".join(
            f"o {bucket} [now] 127.0.0.1 test id s3_{operation} {key} /{bucket}/{key} 200 - 0 100 0 0 \n"
            for bucket, operation, key in (
                ("ours", "PutObject", "ckpt/rows-2/log/1"),
                ("stocks", "PutObject", "ckpt/rows-1/state/0/1/2.delta"),
                ("stocks", "DeleteObject", "ckpt/rows-1/state/0/1/1.delta"),
                ("ours", "DeleteObject", "ckpt/rows-0/log/1"),
                ("ours", "PutObject", "ckpt/rows-2/log/2"),
            )
        )
    )
    progress, marks = zip(*(epoch(n, n) for n in range(3)), strict=True)
    marks[-1]["log_bytes"] = log.stat().st_size
    answer = {"progress": list(progress), "marks": list(marks), "checkpoints": [], "start_ms": 1, "warm": 1, "name": "rows-2"}
    plan = Turns("rows", Workload("aggregation", 2, 10), (System.S3,), rounds=1, warm=1, epochs=2)
    figures = Figures()
    gather_round(plan, [(Setup(System.S3, {}, "", "ours"), answer)], EmptyS3("", "http://127.0.0.1:9", log), figures)
    found = {metric: values for _, metric, values in figures if metric.endswith("_requests") or metric in ("requests", "put_bytes")}
    assert found == {"put_requests": [1], "list_requests": [0], "requests": [1], "put_bytes": [100]}


def test_a_step_is_begun_if_it_fits_as_it_was_the_last_time() -> None:
    clock = [0.0]
    budget = Budget(100, lambda: clock[0])
    assert budget.allows("a", "b"), "nothing is known of them"
    for step, took in (("a", 10), ("a", 30), ("b", 20)):
        with budget.spending(step):
            clock[0] += took
    assert budget.left() == 40
    assert [budget.allows("a"), budget.allows("b"), budget.allows("a", "b")] == [True, True, False]
    clock[0] = 100
    assert not budget.allows("c")
    assert Budget().allows("a")


class Played(Session):
    """Takes its turns by the clock of a test, so many seconds each, and none while it is paused."""

    def __init__(self, system: System, clock: list[float], seconds: Sequence[float]) -> None:
        self.setup = Setup(system, {}, "")
        self._clock = clock
        self._seconds = iter(seconds)
        self.paused = True
        self.warmed: list[float] = []
        self.others: list[Played] = []

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def turn(
        self,
        work: Workload,
        checkpoint: str,
        *,
        warm: int,
        epochs: int,
        timeout_s: float,
        warm_s: float = 0,
        **_: Any,
    ) -> dict[str, Any]:
        assert not self.paused
        assert all(other.paused for other in self.others)
        self.warmed.append(warm_s)
        took = next(self._seconds)
        self._clock[0] += min(took, timeout_s)
        if took > timeout_s:
            raise BenchmarkError("the query ran 1 of 2 epochs")
        progress, marks = zip(*(epoch(n, n) for n in range(warm + epochs)), strict=True)
        return {"progress": list(progress), "marks": list(marks), "checkpoints": [], "start_ms": 1, "warm": warm}


def played(clock: list[float], floor: Sequence[float], file: Sequence[float]) -> dict[System, Played]:
    first, second = Played(System.FLOOR, clock, floor), Played(System.FILE, clock, file)
    first.others, second.others = [second], [first]
    return {System.FLOOR: first, System.FILE: second}


@pytest.mark.parametrize(
    ("floor", "file", "rounds"),
    [
        ((10, 10, 10), (20, 20, 20), (3, 3)),
        ((10, 10), (40, 20), (1, 1)),  # a second round would end at 100 at the earliest
        ((10, 10), (20, 70), (1, 1)),  # the second one was cut: it counts for none
        ((10,), (100,), (1, 0)),
    ],
)
def test_a_round_counts_for_all_systems_or_for_none(
    floor: Sequence[float], file: Sequence[float], rounds: tuple[int, int], tmp_path: Path
) -> None:
    clock = [0.0]
    plan = Turns("aggregation", Workload("aggregation", 2, 10), (System.FLOOR, System.FILE), rounds=3, warm=1, epochs=2)
    found = played(clock, floor, file)
    figures = Figures()
    take_turns([plan], found, FarS3("", "", tmp_path / "log"), figures, lambda _: None, Budget(99, lambda: clock[0]))
    assert tuple(len(figures.values(plan.case(system), "epoch_ms")) // 2 for system in plan.systems) == rounds
    assert bool(figures.notes) == (rounds != (3, 3))
    assert clock[0] <= 99


def test_a_plan_with_fewer_rounds_is_otherwise_the_same() -> None:
    limited = FULL.limited(2)
    assert {turns.rounds for group in limited.groups for turns in group} == {1, 2}
    assert limited.restore_rounds == 2
    assert FULL.limited(100) == replace(FULL, groups=[list(group) for group in FULL.groups])


def test_a_run_that_goes_on_leaves_out_the_rounds_that_are_stored(tmp_path: Path) -> None:
    clock, file, figures = [0.0], tmp_path / "short.json", Figures()
    plan = Turns("aggregation", Workload("aggregation", 2, 10), (System.FLOOR, System.FILE), rounds=3, warm=1, epochs=2, warm_s=30)
    s3, budget = FarS3("", "", tmp_path / "log"), Budget(now=lambda: clock[0])

    def save() -> None:
        figures.write(file)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_turns([plan], played(clock, [10], [10]), s3, figures, lambda _: None, budget, save)
    figures = Figures.read(file)
    assert list(plan.left(figures)) == [1, 2]
    again = played(clock, [10, 10], [10, 10])
    assert not take_turns([plan], again, s3, figures, lambda _: None, budget, until=Budget(15, lambda: clock[0])), "one round takes 20"
    assert take_turns([plan], again, s3, figures, lambda _: None, budget)
    assert [len(figures.values(plan.case(system), "epoch_ms")) for system in plan.systems] == [6, 6]
    assert [session.warmed for session in again.values()] == [[30, 30]] * 2, "each application warms up for as long in its first round"
    assert not plan.left(figures)


@pytest.mark.parametrize(("query", "experiment"), [("aggregation", "aggregation"), ("kafka", "kafka"), ("join", "join")])
def test_one_workload_by_itself_is_a_round_like_any_other(
    query: str, experiment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Turns] = []

    def run(plans: Sequence[Turns], s3: FarS3, folder: Path, figures: Figures, tell: object) -> None:
        asked.extend(plans)
        take_turns(plans, {}, s3, figures, print, Budget())

    monkeypatch.setattr("benchmarks.epochs.run", run)
    monkeypatch.setattr("benchmarks.measuring.far_s3", lambda _: nullcontext(FarS3("", "", tmp_path / "log")))
    ran = CliRunner().invoke(cli, ["epochs", "--query", query, "--system", "floor", "--rounds", "1"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert [(turns.experiment, turns.work.query, turns.systems) for turns in asked] == [(experiment, query, (System.FLOOR,))]


def test_a_part_of_a_plan_measures_that_and_nothing_else() -> None:
    assert FULL.only(FULL.experiments) == replace(FULL, groups=[list(group) for group in FULL.groups])
    for experiment in FULL.experiments - {FILLED}:
        assert FULL.only([experiment]).experiments == {experiment} | ({FILLED} if experiment == "restore" else set())


class Interrupted(Figures):
    """Ends a round in the middle of what is taken down of it."""

    def add(self, case: Case, metric: str, values: Iterable[float]) -> None:
        super().add(case, metric, values)
        if metric == "start_ms":
            raise KeyboardInterrupt


def test_of_a_round_that_ends_while_it_is_taken_down_nothing_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, figures = [0.0], Figures()
    plan = Turns("aggregation", Workload("aggregation", 2, 10), (System.FLOOR, System.FILE), rounds=2, warm=1, epochs=2)
    given = (FarS3("", "", tmp_path / "log"), figures, print, Budget(now=lambda: clock[0]))
    monkeypatch.setattr(epochs, "Figures", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        take_turns([plan], played(clock, [10], [10]), *given)
    assert (list(figures), figures.parts) == ([], {})
    monkeypatch.undo()
    take_turns([plan], played(clock, [10] * 2, [10] * 2), *given)
    assert [len(figures.values(plan.case(system), "epoch_ms")) for system in plan.systems] == [4, 4]
    assert figures.parts == {plan.part: 2}


def test_what_is_measured_again_is_forgotten_and_all_else_is_kept() -> None:
    figures = Figures()
    for experiment in ("restore", "large", "rows"):
        figures.add(Case(experiment, "a", 20, 10), "restore_ms", [1])
    again = FULL.only(["restore"]).experiments
    figures.forget(lambda case: case.experiment in again)
    assert list(figures) == [(Case("rows", "a", 20, 10), "restore_ms", [1])]


def test_without_time_no_application_is_started(tmp_path: Path) -> None:
    figures, group = Figures(), SHORT.groups[1]
    run_epochs(group, FarS3("", "", tmp_path / "log"), tmp_path, figures, print, Budget(0))
    assert figures.notes == [f"no time was left for {group[0]}"]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_systems_that_are_compared_have_as_many_turns(plan: Plan) -> None:
    all_turns = [turns for group in plan.groups for turns in group]
    cases = [turns.case(system) for turns in all_turns for system in turns.systems]
    assert len(set(cases)) == len(cases), "no workload stands in two lists"
    assert {system for turns in all_turns for system in turns.once} <= {System.STOCK_S3A}, "no target is about it"


def test_what_no_snapshot_needs_of_the_packs_is_dead() -> None:
    pack, other = pack_key(1, "a", 100), pack_key(1, "b", 300)

    def snapshot(partition: int, *needed: tuple[str, int]) -> Snapshot:
        handles = tuple(Handle(HandleKind.SST, f"SSTs/{n}.sst", name, 0, length, 0) for n, (name, length) in enumerate(needed))
        return Snapshot(StoreId(0, partition, "default"), 1, "u", handles, 1)

    assert dead_share([snapshot(0, (pack, 60), ("run-00000001/seg/1-a", 5)), snapshot(1, (pack, 40), (other, 100))]) == 0.5
    assert dead_share([snapshot(0, ("run-00000001/seg/1-a", 5))]) is None


class NoSuchKey(Exception): ...  # noqa: N818 - as boto3 calls it


class Losing(FarS3):
    """Each checkpoint that is listed is gone before it is read, but for those that are `left`."""

    left: dict[str, bytes] = {}
    exceptions = SimpleNamespace(NoSuchKey=NoSuchKey)

    def client(self, near: bool = False, **how: Any) -> Any:
        return self

    def sizes(self, bucket: str) -> dict[str, int]:
        numbers = ((1, 11), (2, 9), (2, 10))
        return {"ckpt/q/run-00000003/seg/1-a": 1} | {f"ckpt/q/run-{run:08d}/chk-{epoch}/_metadata": 1 for run, epoch in numbers}

    def get_object(self, **what: str) -> Any:
        if what["Key"] not in self.left:
            raise NoSuchKey
        return {"Body": BytesIO(self.left[what["Key"]])}

    def close(self) -> None: ...


def test_the_newest_checkpoint_is_one_that_can_still_be_read(tmp_path: Path) -> None:
    s3 = Losing("", "", tmp_path / "log")
    with pytest.raises(BenchmarkError, match=r"^each checkpoint of q was gone before it could be read$"):
        newest(s3, "bench", "q")
    assert newest(s3, "bench", "other") is None
    job = Job(("stateStoreSave",), ("rate",), "noop")
    for run, epoch in ((1, 11), (2, 9)):
        data = encode_metadata(Checkpoint(CheckpointId(run, epoch), 1, 1, "q", 0, job, {}, (), {}))
        s3.left[f"ckpt/q/run-{run:08d}/chk-{epoch}/_metadata"] = data
        found = newest(s3, "bench", "q")
        assert found is not None
        assert (found[0], found[1].id) == ("ckpt/q", CheckpointId(run, epoch))


def test_a_kernel_is_told_by_two_numbers() -> None:
    assert [kernel(release) for release in ("6.18.44-fc-v657", "6.18", "5.15.0-1-generic")] == ["6.18", "6.18", "5.15"]


WORKING = "while :; do :; done & while :; do :; done & echo up; cat; kill $!; kill %1 2> /dev/null"


def working() -> subprocess.Popen[bytes]:
    """A session of processes, of which two are busy until stdin ends."""
    it = subprocess.Popen(["bash", "-c", WORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert it.stdout is not None
    assert it.stdout.readline() == b"up\n"
    return it


def grows(session: int) -> bool:
    before = processes.session_cpu_ms(session)["all"]
    time.sleep(0.3)
    return processes.session_cpu_ms(session)["all"] > before


def test_who_waits_for_its_turn_uses_no_processor() -> None:
    with working() as it:
        assert grows(it.pid)
        processes.tell_session(it.pid, signal.SIGSTOP)
        time.sleep(0.1)
        assert not grows(it.pid)
        processes.tell_session(it.pid, signal.SIGCONT)
        assert grows(it.pid)


def test_what_all_descendants_have_used_is_counted() -> None:
    """Also of those that have ended, and of sessions of their own."""
    starting = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], start_new_session=True); input()"
    command = [sys.executable, "-c", starting]
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    before = processes.tree_cpu_ms(os.getpid())
    with subprocess.Popen([*command, busy], stdin=subprocess.PIPE, start_new_session=True) as it:
        deadline = time.monotonic() + 60
        while processes.tree_cpu_ms(os.getpid()) - before < 500:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert it.poll() is None
        assert processes.cpu_ms(os.getpid()) - before < 500, "it has not been waited for"
        it.communicate(b"\n", 60)
    assert processes.tree_cpu_ms(os.getpid()) - before >= 500


def test_what_was_stopped_goes_on_when_the_benchmark_is_killed() -> None:
    with working() as it:
        guard = subprocess.Popen([sys.executable, "-m", "benchmarks.guard", str(it.pid)], stdin=subprocess.PIPE, start_new_session=True)
        processes.tell_session(it.pid, signal.SIGSTOP)
        time.sleep(0.1)
        assert not grows(it.pid)
        assert guard.stdin is not None
        guard.stdin.close()  # as when the process at its other end has gone
        assert guard.wait(60) == 0
        assert grows(it.pid)


def test_stock_runs_with_every_setting_that_is_not_a_class_of_the_plugin(tmp_path: Path) -> None:
    s3 = FarS3("", "", tmp_path / "log")
    plain, same = (set_up(system, s3, tmp_path / system.name) for system in (System.STOCK_LOCAL, System.SAME_LOCAL))
    made = spark_settings({"spark.ckpt.storage": "file:///anywhere"}, {})
    assert {key for key in made if key not in same.conf or same.conf[key] != made[key]} == set(HOOKS)
    assert same.conf == {**plain.conf, **SAME_SETTINGS, "spark.local.dir": same.conf["spark.local.dir"], WAREHOUSE: same.conf[WAREHOUSE]}


def test_who_reads_kafka_has_its_jars_beside_the_plugins_and_a_group_where_checkpoints_are_kept(tmp_path: Path) -> None:
    fed = Feed("127.0.0.1:9", [Path("/jars/connector.jar"), Path("/jars/client.jar")])
    s3 = FarS3("", "", tmp_path / "log")
    stock, floor, ours = (
        set_up(system, s3, tmp_path / system.name, fed.conf(system), fed.jars).conf
        for system in (System.STOCK_LOCAL, System.FLOOR, System.FILE)
    )
    assert stock["spark.jars"] == "/jars/connector.jar,/jars/client.jar"
    assert floor["spark.jars"] == ours["spark.jars"] == f"{jar_path()},{stock['spark.jars']}"
    assert {conf[SERVERS] for conf in (stock, floor, ours)} == {"127.0.0.1:9"}
    assert ["spark.ckpt.kafka.group" in conf for conf in (stock, floor, ours)] == [False, False, True]


def test_a_topic_holds_what_a_turn_may_read() -> None:
    turns = Turns("kafka", Workload("kafka", 20, 100), (System.FLOOR,), rounds=2, warm=3, epochs=5)
    assert turns.records == 8 * 100
    assert replace(turns, warm_s=10, seconds=5).records == 60 * 100, "four epochs in a second"


def test_a_setting_that_stock_does_not_have_ends_the_benchmark() -> None:
    given = {"spark.sql.shuffle.partitions": "20"}
    made = spark_settings({"spark.ckpt.storage": "file:///anywhere"}, {})
    setup = Setup(System.S3, given, "")
    check_settings(setup, {**given, **made, "spark.app.id": "local-1"})
    with pytest.raises(BenchmarkError, match=r"^spark-ckpt, s3:// runs with spark\.shuffle\.compress=false, which stock is not given"):
        check_settings(setup, {**given, **made, "spark.shuffle.compress": "false"})


def test_what_spark_itself_makes_of_a_local_cluster_does_not_end_the_benchmark() -> None:
    check_settings(Setup(System.S3_CLUSTER, {}, ""), {"spark.shuffle.readHostLocalDisk": "false"})


@pytest.mark.parametrize(
    ("key", "stock", "ours"),
    [(VALIDATION, System.LOCAL_VALIDATES, System.S3_VALIDATES), (BYPASS, System.LOCAL_BYPASSES, System.S3_BYPASSES)],
)
def test_each_suggested_setting_can_be_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, stock: System, ours: System
) -> None:
    monkeypatch.setattr(FarS3, "bucket", lambda _: "bench-1")
    s3 = FarS3("http://127.0.0.1:9", "", tmp_path / "log")
    found = {system: set_up(system, s3, tmp_path / system.name).conf for system in (System.SAME_LOCAL, stock)}
    without = set_up(ours, s3, tmp_path / "ours").conf
    assert SUGGESTED_SETTINGS[key] == found[System.SAME_LOCAL][key] != found[stock][key] == without[key]
    rest = {name: value for name, value in found[stock].items() if name != key and not name.startswith(("spark.local", WAREHOUSE))}
    assert rest.items() <= found[System.SAME_LOCAL].items(), "in all else they are the same"
    made = spark_settings({"spark.ckpt.storage": "file:///anywhere"}, without)
    assert made[key] == without[key]
    check_settings(Setup(ours, without, ""), {**without, **made})


def test_nothing_is_left_of_a_benchmark_that_is_ended() -> None:
    command = [sys.executable, "-m", "benchmarks", "finalise", "2000000"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as it:
        deadline = time.monotonic() + 60
        while "coordinator" not in processes.own(it.pid):
            assert it.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        it.terminate()
        assert it.wait(60) == 128 + signal.SIGTERM
    assert not processes.own(it.pid)
