"""Parts of the JAR that need no application."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from spark_ckpt import __version__
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

LAKE = "s3://lake/ckpt"


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


def test_an_object_that_outlives_its_jvm_goes_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """Python 3.11 fails to parse where a traceback is printed in the middle of it, as py4j's finalizers did."""
    with jvm() as started:
        kept = [started.java.lang.Object()]
    kept.clear()
    assert not caplog.records


def line(java: Any, **fields: Any) -> Any:
    return java.org.apache.spark.ckpt.Json.parse(json.dumps(fields))


def test_a_replaced_agents_queue_is_empty_and_that_of_the_ones_other_streams_is_not(java: Any) -> None:
    counters = java.org.apache.spark.ckpt.StorageCounters

    def told(root: str, process: str, queued: int) -> None:
        counters.take(root, line(java, storage={"process": process, "requests": 1, "queued_snapshots": queued}))

    counters.clear()
    told("a", "agent 1 100", 3)
    told("b", "agent 1 100", 4)
    assert (counters.of("a").queuedSnapshots(), counters.of("b").queuedSnapshots()) == (3, 4)
    told("a", "agent 1 200", 5)
    assert (counters.of("a").queuedSnapshots(), counters.of("b").queuedSnapshots()) == (5, 0)
    assert counters.of("a").requests() == 2, "what the dead one has asked for still counts"
    told("b", "agent 1 200", 6)
    assert (counters.of("a").queuedSnapshots(), counters.of("b").queuedSnapshots()) == (5, 6)
    counters.clear()


def test_a_start_tells_how_much_is_left_until_all_is_in_place(java: Any) -> None:
    counters, log = java.org.apache.spark.ckpt.StorageCounters, java.org.apache.spark.ckpt.RestoreLog

    def told(executor: int, snapshots: int, of: int, size: int, of_size: int) -> None:
        here = {"restored_snapshots": snapshots, "restore_snapshots": of, "restored_bytes": size, "restore_bytes": of_size}
        counters.take("a", line(java, storage={"process": f"agent {executor} 100", **here}))
        log.look("a")

    counters.clear()
    assert log.text("a").isEmpty()
    told(1, 1, 3, 100 << 10, 300 << 10)
    told(2, 0, 2, 0, 200 << 10)
    assert log.text("a").get() == "100.0 KiB of 500.0 KiB, 1 of 5 stores"
    told(1, 2, 3, 200 << 10, 300 << 10)
    assert log.text("a").get().startswith("200.0 KiB of 500.0 KiB, 2 of 5 stores, about ")
    told(1, 3, 3, 300 << 10, 300 << 10)
    counters.executorLost("2")
    assert log.text("a").isEmpty()
    counters.clear()


def run_task(tasks: Any, root: str, epoch: int) -> Any:
    """One that commits a store; the moment of quiet after it."""
    tasks.started(root)
    tasks.committed(root, epoch)
    return tasks.ended(root).head()


def test_an_executor_with_one_slot_is_not_done_between_two_of_its_tasks(java: Any) -> None:
    tasks = java.org.apache.spark.ckpt.StreamTasks()
    quiet = [run_task(tasks, "a", 0) for _ in range(3)]
    assert all(q.forMs() > 0 for q in quiet), "how many there are to be is not known in the first epoch"
    assert [tasks.lasts(q) for q in quiet] == [False, False, True], "a quiet that another task has ended is over"

    between, again, last = (run_task(tasks, "a", 1).forMs() for _ in range(3))
    assert between == again > quiet[0].forMs(), "as many as last time are waited for longer"
    assert last == 0, "and not at all when they have come"

    moved = [run_task(tasks, "a", epoch).forMs() for epoch in (2, 3, 3)]
    assert moved == [between, 0, 0], "one went to another executor, and came back: what came last counts"


def test_tasks_of_nobody_wait_for_all_others(java: Any) -> None:
    tasks, nobody = java.org.apache.spark.ckpt.StreamTasks(), java.org.apache.spark.ckpt.StreamTasks.Nobody()
    tasks.started("a")
    tasks.started(nobody)
    assert tasks.ended(nobody).isEmpty(), "of a stream one is running"
    ended = tasks.ended("a")
    assert [ended.apply(n).root() for n in range(ended.size())] == ["a", nobody], "the last one to end speaks for both"
    tasks.started(nobody)
    assert tasks.lasts(ended.head()), "nobody's task is none of the stream's"
    assert not tasks.lasts(ended.last())
    quiet = tasks.ended(nobody).head()
    tasks.started("b")
    assert not tasks.lasts(quiet)
    again = tasks.ended("b").last()
    assert again.root() == nobody
    assert not tasks.lasts(quiet), "another stream's task came and went: its end tells anew"
    assert tasks.lasts(again)
    tasks.started("a")
    assert tasks.ended("a").size() == 1, "nobody waits any more"


def test_nobodys_quiet_is_no_shorter_than_that_of_a_stream_whose_tasks_are_to_come(java: Any) -> None:
    """A flush for nobody uploads what all streams have."""
    tasks, nobody = java.org.apache.spark.ckpt.StreamTasks(), java.org.apache.spark.ckpt.StreamTasks.Nobody()
    for _ in range(2):
        run_task(tasks, "a", 0)
    between = run_task(tasks, "a", 1)
    tasks.started(nobody)
    assert tasks.ended(nobody).head().forMs() == between.forMs()
    run_task(tasks, "a", 1)
    tasks.started(nobody)
    assert 0 < tasks.ended(nobody).head().forMs() < between.forMs()


def test_versions_of_epochs_that_run_again_leave_the_spool_also_those_written_later(java: Any, tmp_path: Path) -> None:
    abandoned = java.org.apache.spark.sql.execution.streaming.state.ckpt.AbandonedVersions(java.java.io.File(str(tmp_path)))

    def write(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_bytes(b"")

    def files() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if path.is_file())

    (tmp_path / "SSTs").mkdir()
    abandoned.loads(1, 4)
    write("5_a.zip", "6_b.changelog", "7_c.changelog", "40_d.changelog", "_metadata")
    abandoned.loads(1, 40)
    assert "7_c.changelog" in files()
    abandoned.loads(2, 6)
    assert files() == ["5_a.zip", "6_b.changelog", "_metadata"]
    write("7_e.changelog", "40_d.zip")  # the run that goes on, and a snapshot that maintenance had still to write
    abandoned.sweep()
    kept = ["5_a.zip", "6_b.changelog", "7_e.changelog", "_metadata"]
    assert files() == kept

    abandoned.loads(1, 5)
    assert files() == kept, "a task of the old run that was to be killed takes nothing of the new one's"
    abandoned.loads(2, 6)
    assert files() == kept, "nor does it make that one look new"
    write("41_f.changelog")
    abandoned.committed(1, "f")
    abandoned.committed(2, "e")
    abandoned.sweep()
    assert files() == kept, "what it commits is no measure of what is old"


def test_without_hard_links_a_file_comes_to_its_place_and_replaces_none(java: Any, tmp_path: Path) -> None:
    """Linux links no folders, with the error of a file system that has no hard links at all."""
    manager = java.org.apache.spark.sql.ckpt.NioFileManager

    def move(name: str) -> None:
        (tmp_path / "temp").mkdir()
        manager.move(java.java.io.File(str(tmp_path / "temp")).toPath(), java.java.io.File(str(tmp_path / name)).toPath(), False)

    move("1")
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    with pytest.raises(Py4JJavaError) as raised:
        move("1")
    assert "exists already" in str(raised.value.java_exception.toString())
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_folder_into_which_somebody_writes_is_left(java: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run-00000001"
    folder.mkdir()
    stop = threading.Event()

    def write() -> None:
        """As a task does that is late."""
        number = 0
        while not stop.is_set():
            number += 1
            with suppress(FileNotFoundError):
                (folder / str(number)).touch()

    late = threading.Thread(target=write)
    late.start()
    try:
        for _ in range(200):
            folder.mkdir(exist_ok=True)
            java.org.apache.spark.sql.ckpt.NioFileManager.deleteTree(java.java.io.File(str(folder)))
    finally:
        stop.set()
        late.join()
    java.org.apache.spark.sql.ckpt.NioFileManager.deleteTree(java.java.io.File(str(folder)))
    assert not folder.exists()


def test_a_run_that_finds_another_ones_mark_in_its_folder_is_fenced(java: Any, tmp_path: Path) -> None:
    place = tmp_path / "a b & 'ü' #1 100%25"
    root = java.org.apache.hadoop.fs.Path(java.java.io.File(str(place)).toURI()).toString()
    older, newer = (java.org.apache.spark.ckpt.FolderMark(root) for _ in range(2))
    for mark in (older, newer):
        mark.look()
    older.check()
    older.put(LAKE, 1, line(java, id="app-1", name="orders", user="ann"))
    older.check()
    newer.put(LAKE, 2, line(java, id="app-2", name="or\nders", user="bob"))
    newer.check()
    with pytest.raises(Py4JJavaError) as raised:
        older.check()
    said = str(raised.value.java_exception.toString())
    assert "CheckpointFailure[FENCED]: application app-2 (orders of bob) took over the stream of file:" in said
    mark = place / ".spark-ckpt-run"
    assert list(place.iterdir()) == [mark]
    mark.write_bytes(b"\xff{")
    with pytest.raises(Py4JJavaError) as raised:
        older.check()
    assert "another run took over the stream" in str(raised.value.java_exception.toString())
    mark.unlink()
    older.check()
    elsewhere = java.org.apache.spark.ckpt.FolderMark("s3a://lake/orders")
    elsewhere.look()
    elsewhere.put(LAKE, 1, line(java, id="app-1", name="orders", user="ann"))
    elsewhere.check()


def marks(java: Any, root: Path, count: int) -> list[Any]:
    """Of drivers that have looked, and not claimed the stream yet."""
    found = [java.org.apache.spark.ckpt.FolderMark(root.as_uri()) for _ in range(count)]
    for mark in found:
        mark.look()
    return found


def is_fenced(call: Callable[[], None], by: str) -> bool:
    with pytest.raises(Py4JJavaError) as raised:
        call()
    return f"CheckpointFailure[FENCED]: application {by} " in str(raised.value.java_exception.toString())


def test_a_run_that_comes_late_with_its_mark_does_not_take_the_folder_from_a_later_one(java: Any, tmp_path: Path) -> None:
    """(1) It claims the stream; (2) another one claims it, and marks the folder; (3) it goes on."""
    late, owner = marks(java, tmp_path, 2)
    owner.put(LAKE, 8, line(java, id="app-2"))
    assert is_fenced(lambda: late.put(LAKE, 7, line(java, id="app-1")), "app-2")
    owner.check()


def test_a_run_that_claimed_later_takes_the_folder_from_one_whose_mark_it_has_not_seen(java: Any, tmp_path: Path) -> None:
    late, owner = marks(java, tmp_path, 2)
    late.put(LAKE, 7, line(java, id="app-1"))
    owner.put(LAKE, 8, line(java, id="app-2"))
    owner.check()
    assert is_fenced(late.check, "app-2")


@pytest.mark.parametrize("later_runs", [0, 2])
def test_a_mark_that_came_late_between_the_last_look_and_the_rename_is_made_good(java: Any, tmp_path: Path, later_runs: int) -> None:
    (first,) = marks(java, tmp_path, 1)
    first.put(LAKE, 6, line(java, id="app-0"))
    file = tmp_path / ".spark-ckpt-run"
    seen = file.read_text()
    late, owner = marks(java, tmp_path, 2)
    late.put(LAKE, 7, line(java, id="app-1"))
    renamed_late = file.read_text()
    file.write_text(seen)
    owner.put(LAKE, 8, line(java, id="app-2"))
    for run in range(later_runs):
        (owner,) = marks(java, tmp_path, 1)
        owner.put(LAKE, 9 + run, line(java, id="app-2"))
    file.write_text(renamed_late)
    owner.check()
    assert is_fenced(late.check, "app-2")
    owner.check()


@pytest.mark.parametrize("emptied", ["storage", "folder", "both"])
@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_driver_that_sleeps_while_all_begins_anew_ends_when_it_wakes(java: Any, tmp_path: Path, emptied: str, runs: int) -> None:
    for run in range(5):
        (sleeper,) = marks(java, tmp_path, 1)
        sleeper.put(LAKE, 53 + run, line(java, id="app-1"))
    if emptied != "storage":
        (tmp_path / ".spark-ckpt-run").unlink()
    for run in range(runs):
        (anew,) = marks(java, tmp_path, 1)
        anew.put(LAKE, run + (1 if emptied != "folder" else 58), line(java, id="app-2"))
    assert is_fenced(sleeper.check, "app-2")
    anew.check()


def test_of_two_storages_for_one_folder_whoever_comes_second_ends(java: Any, tmp_path: Path) -> None:
    one, other = marks(java, tmp_path, 2)
    one.put(LAKE, 1, line(java, id="app-1"))
    assert is_fenced(lambda: other.put("s3://elsewhere", 1, line(java, id="app-2")), "app-1")
    one.check()


def test_a_query_that_goes_back_in_place_does_not_take_the_folder_from_a_run_of_another_storage(java: Any, tmp_path: Path) -> None:
    """(1) A suspended driver; (2) its stream goes on in a copy of the storage, from the same folder; (3) it wakes, has lost its executors,
    and its own log knows nothing of that."""
    (mark,) = marks(java, tmp_path, 1)
    mark.put(LAKE, 5, line(java, id="app-1"))
    (owner,) = marks(java, tmp_path, 1)
    owner.put("s3://copy", 1, line(java, id="app-2"))
    assert is_fenced(mark.look, "app-2")
    owner.check()


def test_a_purge_in_another_thread_does_not_fence_its_own_query(java: Any, tmp_path: Path) -> None:
    (mark,) = marks(java, tmp_path, 1)
    mark.put(LAKE, 1, line(java, id="app-1"))
    over = threading.Event()

    def checks() -> None:
        while not over.is_set():
            mark.check()

    with ThreadPoolExecutor(1) as pool:
        purging = pool.submit(checks)
        for claim in range(2, 200):
            mark.look()
            mark.put(LAKE, claim, line(java, id="app-1"))
        over.set()
        purging.result(60)


def test_a_folder_is_not_made_by_a_run_that_has_lost_it_meanwhile(java: Any, tmp_path: Path) -> None:
    (mark,) = marks(java, tmp_path, 1)
    mark.put(LAKE, 1, line(java, id="app-1"))
    (owner,) = marks(java, tmp_path, 1)
    owner.put(LAKE, 2, line(java, id="app-2"))
    files = java.org.apache.spark.sql.ckpt.CheckpointFolder(tmp_path.as_uri(), java.org.apache.hadoop.conf.Configuration(False))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("the owner's")
    nothing = getattr(getattr(java.scala.collection.immutable, "Map$EmptyMap$"), "MODULE$")
    assert is_fenced(lambda: files.replace(nothing, java.scala.Option.apply(mark)), "app-2")
    assert (tmp_path / "offsets" / "3").read_text() == "the owner's"


class Asking:
    """The driver's side of the questions for one stream's state; `told`: what the coordinator hears."""

    def __init__(self, java: Any) -> None:
        self._java = java
        self._told = java.java.util.ArrayList()
        self.tell = self._appending(self._told)
        self.questions = java.org.apache.spark.ckpt.StateQuestions(self.tell)

    def _appending(self, found: Any) -> Any:
        """A function in the JVM that appends to a list there."""
        of = self._java.java.lang.Class.forName
        kind = self._java.java.lang.invoke.MethodType.methodType(self._java.java.lang.Boolean.TYPE, of("java.lang.Object"))
        add = self._java.java.lang.invoke.MethodHandles.publicLookup().findVirtual(of("java.util.ArrayList"), "add", kind).bindTo(found)
        consumer = self._java.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(of("java.util.function.Consumer"), add)
        return self._java.scala.jdk.javaapi.FunctionConverters.asScalaFromConsumer(consumer)

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(one.toString()) for one in self._told]

    def retold(self) -> list[str]:
        found = self._java.java.util.ArrayList()
        self.questions.retell(self._appending(found))
        return [json.loads(one.toString())["uid"] for one in found]

    def ask(self, uid: str = "u") -> dict[str, Any]:
        want = line(self._java, type="want", root="r", op=0, part=1, store="default", version=4, uid=uid)
        return json.loads(self.questions.ask(want).toString())  # type: ignore[no-any-return]

    def answered(self, uid: str = "u", **fields: Any) -> None:
        self.questions.answered(line(self._java, type="wanted", uid=uid, **{"handles": None, "lost": False, "declined": None, **fields}))

    def of(self, *held: str) -> list[dict[str, Any]]:
        uids = self._java.scala.jdk.javaapi.CollectionConverters.asScala(self._java.java.util.ArrayList(list(held))).toSet()
        found = self.questions.of(uids)
        return [json.loads(found.apply(n).toString()) for n in range(found.size())]


UNKNOWN = {"handles": None, "lost": False, "declined": None}


@pytest.fixture
def task(java: Any) -> Asking:
    return Asking(java)


def test_the_coordinator_is_asked_once_however_often_a_task_asks(task: Asking) -> None:
    for executor in ("1", "2", "3"):
        task.questions.joined(executor)
    task.questions.lost("2")
    assert [task.ask() for _ in range(3)] == [UNKNOWN] * 3
    assert task.told == [{"type": "want", "root": "r", "uid": "u", "version": 4, "executors": ["1", "3"]}]
    assert task.questions.isOpen()
    task.answered(handles=[["CHANGELOG"]])
    assert not task.questions.isOpen()
    assert task.ask() == {**UNKNOWN, "handles": [["CHANGELOG"]]}
    assert task.ask() == UNKNOWN, "another attempt asks anew"
    assert len(task.told) == 2


def test_who_holds_it_hands_it_over_once_the_coordinator_wants_that(task: Asking) -> None:
    task.ask()
    assert task.of("u") == []
    task.questions.handOver("u")
    assert task.of("v") == []
    assert task.of("v", "u") == [{"root": "r", "op": 0, "part": 1, "store": "default", "uid": "u"}]
    task.ask("w")
    task.questions.handOver("w")
    assert [want["uid"] for want in task.of("x", "w", "v")] == ["w"], "one holds more than is asked for"
    task.answered(lost=True)
    assert task.of("u") == []
    assert task.ask() == {**UNKNOWN, "lost": True}
    assert [want["uid"] for want in task.of("x", "w", "v")] == ["w"]


def test_a_new_coordinator_hears_what_is_not_answered(task: Asking) -> None:
    for uid in ("u", "v"):
        task.ask(uid)
    task.answered("v", declined="disk full")
    assert task.retold() == ["u"]
    assert task.ask("v") == {**UNKNOWN, "declined": "disk full"}


def test_with_an_epoch_its_questions_go_and_with_a_run_those_who_take_part(task: Asking) -> None:
    task.questions.joined("1")
    task.ask()
    task.questions.clear()
    task.questions.handOver("u")
    task.answered(lost=True)
    assert not task.questions.isOpen()
    assert task.ask() == UNKNOWN
    assert task.told[-1]["executors"] == ["1"]
    task.questions.begin()
    assert task.questions.executors().isEmpty()
    assert not task.questions.isOpen()


def test_a_question_after_the_runs_end_is_declined_and_nobody_is_asked(java: Any, tmp_path: Path, task: Asking) -> None:
    transfer = java.org.apache.spark.ckpt.FileTransfer(java.java.io.File(str(tmp_path)))
    stream = java.org.apache.spark.ckpt.DriverStream("r", "of no run", transfer, java.scala.Option.empty(), None, task.tell, None)
    want = line(java, type="want", root="r", op=0, part=1, store="default", version=4, uid="u")
    assert json.loads(stream.ask(want).toString()) == {**UNKNOWN, "declined": "the query is not running"}
    assert task.told == []
    assert not stream.stateQuestions().isOpen(), "every executor would report ten times as often"


def test_a_stop_that_is_refused_hides_none_that_was_asked_for_since(java: Any, tmp_path: Path, task: Asking) -> None:
    transfer = java.org.apache.spark.ckpt.FileTransfer(java.java.io.File(str(tmp_path)))
    stream = java.org.apache.spark.ckpt.DriverStream("r", "of no run", transfer, java.scala.Option.empty(), None, task.tell, None)
    stream.heard(line(java, type="stopping", root="r", run=1, drain=False))
    met = stream.metWith(stream.stopRequest().get())
    stream.heard(line(java, type="stopping", root="r", run=1, drain=False))
    stream.refuse(met)
    assert stream.stopRequest().isDefined()
    stream.refuse(stream.metWith(stream.stopRequest().get()))
    assert not stream.stopRequest().isDefined()


def test_the_executor_in_the_drivers_own_process_is_never_lost(java: Any) -> None:
    """After a pause longer than its time-out Spark takes it for lost for some milliseconds, and takes it back."""
    driver = java.org.apache.spark.ckpt.DriverSide
    field = java.java.lang.Class.forName("org.apache.spark.ckpt.DriverSide$").getDeclaredField("gone")
    field.setAccessible(True)
    for executor in ("driver", "of nobody"):
        driver.executorLost(executor)
    assert sorted(field.get(None)) == ["of nobody"]
    field.get(None).clear()


class Holding:
    """What an executor has committed of one store."""

    def __init__(self, java: Any) -> None:
        self._java = java
        self.commits = java.org.apache.spark.ckpt.HeldCommits()

    def commit(self, uid: str, epoch: int, checkpoint: bool = False) -> None:
        row = {"root": "r", "run": 1, "epoch": epoch, "op": 0, "part": 0, "store": "default", "checkpoint": checkpoint, "late": None}
        self.commits.add(uid, line(self._java, **row))

    @property
    def uids(self) -> list[str]:
        found = self.commits.uids()
        return [found.apply(n) for n in range(found.size())]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What a replacing agent is told."""
        found = self.commits.lines()
        return [json.loads(self._java.org.apache.spark.ckpt.Json.line(found.apply(n)._2())) for n in range(found.size())]


def test_what_a_task_began_with_is_held_when_it_has_committed(java: Any) -> None:
    """It may fail after that, and run again on another executor."""
    held = Holding(java)
    for epoch in range(4):
        held.commit(f"u{epoch}", epoch)
    held.commit("another attempt", 3)
    assert held.uids == ["u2", "u3", "another attempt"]
    held.commits.handedOver("u2")
    held.commit("u4", 4)
    assert held.uids == ["u2", "u3", "another attempt", "u4"], "and what is being uploaded"
    held.commits.settled("u2")
    assert held.uids == ["u3", "another attempt", "u4"]
    held.commits.covered("r", 1, java.scala.Some(2**40))
    assert held.uids == []
    held.commit("u5", 5)
    assert held.uids == ["u5"]


def test_a_replacing_agent_hears_under_which_objects_a_commit_is_stored(java: Any) -> None:
    held = Holding(java)
    held.commit("u0", 0, checkpoint=True)
    held.commit("u1", 1, checkpoint=True)
    handles = [["CHANGELOG", "1_u0.changelog", "run-00000001/seg/1-a", 0, 40, 7]]
    held.commits.acknowledged("u0", line(java, run=1, uid="u0", handles=handles))
    held.commits.acknowledged("u1", line(java, run=1, uid="u1", decline="injected"))
    held.commits.acknowledged("of nobody", line(java, run=1, uid="of nobody", handles=handles))
    assert [commit.get("handles") for commit in held.lines] == [handles, None]
    held.commits.settled("u0")
    assert [commit.get("handles") for commit in held.lines] == [handles, None], "the next one as well"


def test_an_executor_that_leaves_stores_what_its_stores_states_are(java: Any) -> None:
    held = Holding(java)
    held.commit("u0", 0)
    held.commit("u1", 1)
    assert held.commits.evacuated()
    assert held.commits.isUploading()
    held.commits.settled("u1")
    assert not held.commits.isUploading(), "nobody acknowledges what is older"
    assert not held.commits.evacuated()


def test_an_agent_that_takes_anothers_place_is_told_to_evacuate_as_well(java: Any) -> None:
    held = Holding(java)
    held.commit("u0", 0)
    assert not held.commits.evacuatedAnew(), "the executor does not leave"
    assert held.commits.evacuated()
    held.commit("u1", 1)
    for _ in range(2):
        assert held.commits.evacuatedAnew()
        assert not held.commits.evacuated(), "that has been said"
    held.commits.settled("u1")
    assert not held.commits.isUploading(), "what is older is told as merely kept: nobody acknowledges it"
    assert not held.commits.evacuatedAnew()


def test_what_could_not_be_stored_is_evacuated_again(java: Any) -> None:
    held = Holding(java)
    held.commit("u0", 0)
    for _ in range(2):
        assert held.commits.evacuated()
        assert not held.commits.evacuated()
        held.commits.declined("u0")
    assert held.commits.evacuated()
    held.commits.settled("u0")
    assert not held.commits.evacuated()


def test_a_listener_ends_with_its_application(java: Any) -> None:
    bridge = java.org.apache.spark.ckpt.ListenerBridge(None, None)
    assert bridge.isOpen()
    bridge.onApplicationEnd(None)
    assert not bridge.isOpen()


def test_a_package_of_another_version_is_refused_by_name(java: Any) -> None:
    versions = java.org.apache.spark.ckpt.Versions
    assert versions.jar() == __version__
    versions.check(line(java, version=__version__), "python")
    for answer, named in (({"version": "9.1.0"}, "9.1.0"), ({}, "older")):
        with pytest.raises(Py4JJavaError) as raised:
            versions.check(line(java, **answer), "/opt/python")
        text = f"CheckpointFailure[CONFIG]: the JAR is of spark-ckpt {__version__}, the package that /opt/python has is {named}; install"
        assert text in str(raised.value.java_exception.toString())
