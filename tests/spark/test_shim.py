"""Parts of the JAR that need no application."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from spark_ckpt import __version__
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

SECOND = 10**9


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as started:
        yield started


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


class Wanting:
    """A task that asks for one state store, at times of its own."""

    def __init__(self, java: Any) -> None:
        self._java = java
        self.live = java.scala.collection.mutable.HashSet()  # which is a function, too
        self.holdings = java.org.apache.spark.ckpt.Holdings(self.live)
        self._wants = java.org.apache.spark.ckpt.Wants(self.holdings)

    def report(self, executor: str, second: float, *uids: str, leaves: bool = False) -> None:
        held = self._java.scala.jdk.javaapi.CollectionConverters.asScala(self._java.java.util.ArrayList(list(uids))).toSet()
        self.live.add(executor)
        self.holdings.report(executor, held, int(second * SECOND), leaves)

    def die(self, executor: str) -> None:
        """Spark does not count on it any more."""
        self.live.remove(executor)

    def lost(self, second: float) -> bool:
        want = line(self._java, type="want", op=0, part=1, store="default", version=4, uid="u")
        answer = self._wants.ask(want, int(second * SECOND))
        assert answer.get("handles").isNull()
        return bool(answer.get("lost").asBoolean())


@pytest.fixture
def task(java: Any) -> Wanting:
    return Wanting(java)


def test_who_has_just_committed_has_time_to_report_it(task: Wanting) -> None:
    assert not task.lost(100)
    assert not task.lost(100.9)
    task.report("1", 100.95, "u")
    assert not task.lost(101.1)
    assert not task.lost(109)


def test_state_that_nobody_reports_is_lost(task: Wanting) -> None:
    task.report("1", 99.9, "other")
    assert not task.lost(100)
    assert not task.lost(101.5), "it may have committed since it reported"
    task.report("1", 101.6, "other")
    assert task.lost(101.7)


@pytest.mark.parametrize("held", ["u", "other"])
def test_an_executor_that_is_silent_holds_what_it_held_for_as_long_as_spark_counts_on_it(task: Wanting, held: str) -> None:
    """In a pause it cannot say either that it has committed since it reported."""
    task.report("1", 99.9, held)
    assert not task.lost(100)
    assert not task.lost(103.5)
    assert not task.lost(300)
    task.die("1")
    assert task.lost(301)


def test_an_executor_whose_runs_are_over_is_not_waited_for(task: Wanting) -> None:
    task.report("1", 99.9, "other")
    assert not task.lost(100)
    assert not task.lost(105)
    task.holdings.quiet("1")
    assert task.lost(106)


def test_what_an_executor_that_goes_hands_over_is_waited_for(task: Wanting) -> None:
    task.report("1", 99.9, "u", leaves=True)
    assert not task.lost(100)
    task.holdings.lost("1")
    assert not task.lost(110), "its upload may still be under way"
    assert task.lost(120), "but not for ever"


def test_a_last_word_of_a_lost_executor_counts_for_nothing(task: Wanting) -> None:
    task.report("1", 99, "u")
    assert not task.lost(100)
    task.holdings.lost("1")
    task.report("1", 100.5, "u")
    assert task.lost(101)
    assert list(task.holdings.lostOnes().mkString(" ").split()) == ["1"]


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
