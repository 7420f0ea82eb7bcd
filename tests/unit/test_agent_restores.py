"""The start of a run reads each range once, for all partitions of the executor; and each partition hears of its own damage only."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.restores import ALONE as ALONE_REACH
from spark_ckpt.agent.restores import ONE_OF_MANY, Restore
from spark_ckpt.agent.run_start import RunStart
from spark_ckpt.model import CheckpointId, Snapshot, StoreId
from spark_ckpt.paths import metadata_key
from spark_ckpt.storage import open_storage
from testbed.faulty import Fault, Moment
from tests.drivers.agent_restores import restore_of
from tests.drivers.agent_starts import ALONE, BASE, EPOCHS, ONE_OF_TWO, PARTITIONS, Counting, World, ahead, kept, settled
from tests.drivers.agent_stores import LocalAgent, complete


def test_a_start_reads_each_segment_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    storage = Counting(world.storage)
    agent = world.agent(storage, ALONE)
    before, bytes_before = storage.requests["get"], storage.bytes_in
    for answer in [agent.begin(world.message(p)) for p in range(PARTITIONS)]:
        assert answer.result(60)["files"] == EPOCHS
    assert len(world.segments) == EPOCHS
    assert storage.requests["get"] - before <= EPOCHS + 1  # and _metadata
    metadata = storage.inner.size("run-00000001/chk-20/_metadata") or 0
    assert storage.bytes_in - bytes_before == metadata + sum(h.length for h in world.handles)
    for p in range(PARTITIONS):
        world.check(p)
    assert kept(world) == 0  # everybody has taken what was read for all
    agent.close()


def test_two_executors_read_each_byte_once_and_no_segment_in_many_requests(tmp_path: Path) -> None:
    world = World(tmp_path)
    for executor, first in (("1", 0), ("2", 1)):
        storage = Counting(open_storage(world.url))
        agent = world.agent(storage, executor, f"second-{executor}")
        mine = range(first, PARTITIONS, 2)
        for answer in [agent.begin(world.message(p, f"second-{executor}")) for p in mine]:
            assert answer.result(60)["ok"] is True
        assert storage.requests["get"] <= EPOCHS + 1
        assert storage.twice == 0
        for p in mine:
            world.check(p, f"second-{executor}")
        agent.close()


def test_one_of_many_executors_reads_nothing_that_is_large_for_others(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=2, payload=200_000)
    storage = Counting(world.storage)
    agent = world.agent(storage, ONE_OF_TWO)
    before = storage.bytes_in
    agent.ask(world.message(1))
    metadata = storage.inner.size("run-00000001/chk-20/_metadata") or 0
    assert storage.bytes_in - before - metadata == sum(h.length for h in world.snapshots[1].handles)
    agent.close()


def test_what_arrives_damaged_is_read_a_second_time(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    key = world.snapshots[0].handles[1].object
    for moment in (Moment.FLIP, Moment.TRUNCATE):
        storage = Counting(world.storage, [Fault(moment, key, frozenset({"get"}))])
        agent = world.agent(storage, ALONE, moment.value)
        for answer in [agent.begin(world.message(p, moment.value)) for p in range(4)]:
            assert answer.result(60)["ok"] is True
        assert len(storage.hits) == 1
        assert len(storage.ranges) == 3 + 1
        for p in range(4):
            world.check(p, moment.value)
        agent.close()


def test_only_the_partition_that_needs_it_hears_of_damage(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    damaged = world.snapshots[2].handles[1]
    data = world.storage.get(damaged.object)
    world.storage.put(damaged.object, data[: damaged.offset] + b"\xde\xad" + data[damaged.offset + 2 :])
    agent = world.agent(world.storage, ALONE)
    answers = [agent.begin(world.message(p)).result(60) for p in range(4)]
    assert [answer["ok"] for answer in answers] == [True, True, False, True]
    assert answers[2]["error"]["kind"] == "DAMAGED"
    assert damaged.name in answers[2]["error"]["message"]
    assert answers[2]["error"]["object"] == damaged.object
    agent.close()


@pytest.mark.parametrize("executor", [ALONE, ONE_OF_TWO])
def test_a_segment_that_is_cut_is_damage_of_those_that_lie_behind_the_cut(tmp_path: Path, executor: str) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    last = max((s.handles[1] for s in world.snapshots), key=lambda h: h.offset)
    world.storage.put(last.object, world.storage.get(last.object)[:-1])
    agent = world.agent(world.storage, executor)
    answers = [agent.begin(world.message(p)).result(60) for p in range(4)]
    assert [answer["ok"] for answer in answers] == [last not in s.handles for s in world.snapshots]
    agent.close()


def test_a_storage_that_fails_once_fails_one_task_and_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    storage = Counting(world.storage, [Fault(Moment.FAIL_BEFORE, world.snapshots[0].handles[1].object, frozenset({"get"}))])
    agent = world.agent(storage, ALONE)
    answers = [agent.begin(world.message(p)).result(60) for p in range(4)]
    assert [answer.get("error", {}).get("kind") for answer in answers].count("STORAGE") <= 1
    for p in range(4):
        assert agent.ask(world.message(p))["ok"] is True
        world.check(p)
    agent.close()


@pytest.mark.parametrize("executor", [ALONE, ONE_OF_TWO])
def test_what_is_kept_is_bounded_and_what_has_no_room_is_read_by_itself(tmp_path: Path, executor: str) -> None:
    world = World(tmp_path, partitions=4, epochs=5, payload=1000)
    room = sum(h.length for s in world.snapshots for h in s.handles) // 2
    storage = Counting(world.storage)
    agent = world.agent(storage, executor, **{"spool.maxSize": str(4 * room)})
    assert agent.ask(world.message(0))["ok"] is True
    assert 0 < kept(world) <= room
    for p in range(1, 4):
        assert agent.ask(world.message(p))["ok"] is True
        world.check(p)
    time.sleep(0.1)
    assert storage.twice == 0
    assert kept(world) == 0
    agent.close()


def test_what_is_kept_goes_when_the_start_is_over_and_then_each_reads_for_itself(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=6, epochs=5)
    storage = Counting(world.storage)
    agent = world.agent(storage, ONE_OF_TWO)
    assert agent.ask(world.message(0))["ok"] is True
    assert kept(world) > 0
    assert {p.stat().st_mode & 0o777 for p in (world.spools / "second").glob(".agent-*/*")} == {0o600}
    store = world.stores[0]
    store.folder = world.folder(0)
    for epoch in (21, 22):
        assert kept(world) > 0
        store.commit()
        agent.send(store.message(world.url, epoch, BASE, 2))
        agent.send({"type": "flush"})
        agent.ack(store.uid)
    assert kept(world) == 0
    before = len(storage.ranges)
    assert agent.ask(world.message(1))["ok"] is True
    assert storage.ranges[before:] == [(h.object, h.offset, h.length) for h in sorted(world.snapshots[1].handles, key=lambda h: h.object)]
    agent.close()


def test_what_is_kept_goes_with_the_run_with_the_agent_and_when_it_is_killed(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    for ends in ("over", "close", "kill"):
        agent = world.agent(open_storage(world.url), ONE_OF_TWO, ends)
        assert agent.ask(world.message(0, ends))["ok"] is True
        assert kept(world, ends) > 0
        if ends == "over":
            agent.send({"type": "over", "root": world.message(0)["root"], "run": 2})
            agent.ask({"type": "ping"})
        elif ends == "close":
            agent.close()
        else:  # the folder of a dead process goes when the next one begins
            left = next((world.spools / ends).glob(".agent-*"))
            (left / "lock").unlink()
            (left / "lock").touch()
            world.agent(open_storage(world.url), ONE_OF_TWO, ends).close()
        assert kept(world, ends) == 0


def test_a_start_that_is_over_while_a_task_still_loads_fails_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2, epochs=2, payload=200_000)
    late, begun, go_on = world.snapshots[1].handles[0], threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    storage = Counting(world.storage, [Fault(Moment.DELAY, late.object, frozenset({"get"}), skip=1, pause=hold)])
    agent = world.agent(storage, ONE_OF_TWO)
    assert agent.ask(world.message(0))["ok"] is True
    answer = agent.begin(world.message(1))
    assert begun.wait(30)
    store = world.stores[0]
    store.folder = world.folder(0)
    for epoch in (21, 22):
        store.commit()
        agent.send(store.message(world.url, epoch, BASE, 2))
        agent.send({"type": "flush"})
        agent.ack(store.uid)
    go_on.set()
    assert answer.result(30)["ok"] is True
    world.check(1)
    agent.close()


def test_what_a_run_starts_from_is_read_before_a_task_asks(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=20, epochs=5)
    storage = Counting(world.storage)
    agent = world.agent(storage, ALONE)
    agent.send(ahead(world))
    settled(storage, 5)
    storage.inject(Fault(Moment.FAIL_BEFORE, "*", times=None))
    for p in range(20):
        assert agent.ask(world.message(p))["ok"] is True
        world.check(p)
    agent.close()


def test_reading_ahead_waits_for_room(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=8, epochs=1)
    large = 100_000
    for store in world.stores:
        store.snapshot(1, (large,))
    first = LocalAgent(tmp_path / "first", executor=ALONE)
    for store in world.stores:
        store.commit()
        first.send(store.message(world.url, 1, None))
        first.send({"type": "flush"})
        first.ack(store.uid)
    world.snapshots = [first.ack(store.uid).snapshot for store in world.stores]
    first.close()
    complete(world.storage, BASE, world.snapshots)
    storage = Counting(world.storage)
    agent = world.agent(storage, ALONE, **{"spool.maxSize": str(4 * 6 * large)})
    agent.send(ahead(world))
    deadline = time.monotonic() + 30
    while kept(world) < 2 * large and time.monotonic() < deadline:
        time.sleep(0.01)
    for p in range(8):
        assert kept(world) <= 3 * large
        assert agent.ask(world.message(p))["ok"] is True
        world.check(p)
    assert storage.twice == 0
    agent.close()


@pytest.mark.parametrize("run", [2, 3])
def test_what_an_earlier_run_or_agent_has_left_here_is_not_read_ahead(tmp_path: Path, run: int) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    agent = world.agent(world.storage, ALONE)
    for p in range(4):
        agent.ask(world.message(p))
    storage = Counting(world.storage)
    agent.close()
    agent = world.agent(storage, ALONE)
    agent.send(ahead(world, run=run))
    settled(storage, 0)
    for p in range(4):
        answer = agent.ask(world.message(p, run=run))
        assert (answer["files"], answer["linked"]) == (0, 3 if run == 3 else 0)
    assert storage.ranges == []
    agent.close()


def test_one_of_many_executors_reads_nothing_ahead(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    storage = Counting(world.storage)
    agent = world.agent(storage, ONE_OF_TWO)
    agent.send(ahead(world))
    settled(storage, 0)
    agent.close()


def held(world: World, key: str) -> tuple[Counting, threading.Event, threading.Event]:
    """A storage whose first read of that object waits for the second event, once it has set the first one."""
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    return Counting(world.storage, [Fault(Moment.DELAY, key, frozenset({"get"}), pause=hold)]), begun, go_on


def test_a_run_that_is_over_before_it_is_read_ahead_is_not_read(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    storage, begun, go_on = held(world, metadata_key(BASE))
    agent = world.agent(storage, ALONE)
    agent.send(ahead(world))
    assert begun.wait(30)
    agent.send({"type": "over", "root": world.message(0)["root"], "run": 2})
    agent.ask({"type": "ping"})
    go_on.set()
    time.sleep(1)
    assert storage.ranges == []
    assert kept(world) == 0
    agent.close()


def test_who_asks_after_the_end_begins_nothing() -> None:
    start = RunStart(ALONE_REACH)
    start.end()

    def make() -> Restore:
        raise AssertionError("nothing is to be read")

    assert start.restore(2, BASE, make) is None


def test_a_task_of_an_earlier_run_that_comes_late_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    newer = complete(world.storage, CheckpointId(2, 21), world.snapshots)
    storage, begun, go_on = held(world, metadata_key(newer))
    agent = world.agent(storage, ALONE)
    agent.send({**ahead(world, run=3), "base": newer.to_json()})
    assert begun.wait(30)
    assert agent.ask(world.message(0, run=2))["ok"] is True
    by_itself = len(storage.ranges)
    go_on.set()
    settled(storage, by_itself + 3)
    for p in range(4):
        assert agent.ask({**world.message(p, run=3), "base": newer.to_json()})["ok"] is True
    assert len(storage.ranges) == by_itself + 3
    agent.close()


def test_a_store_that_needs_no_file_is_in_place_when_it_has_committed(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2, epochs=3)
    agent = world.agent(world.storage, ALONE)
    agent.ask(world.message(0))
    store = world.stores[1]
    store.folder = world.folder(1)
    store.commit()
    agent.send(store.message(world.url, 21, BASE, 2))
    agent.wait_for(lambda line: line.get("storage", {}).get("restored_snapshots") == 2)
    agent.close()


@pytest.mark.parametrize(("executor", "needed"), [(ALONE, 4), (ONE_OF_TWO, 2)])
def test_a_start_tells_how_far_it_has_come(tmp_path: Path, executor: str, needed: int) -> None:
    world = World(tmp_path, partitions=4, epochs=3)
    agent = world.agent(world.storage, executor)
    for p in (0, 1):
        agent.ask(world.message(p))

    def told(line: dict[str, Any]) -> bool:
        storage = line.get("storage", {})
        sizes = [s.size for s in world.snapshots]
        here = storage.get("restored_snapshots"), storage.get("restored_bytes")
        return here == (2, sum(sizes[:2])) and (storage["restore_snapshots"], storage["restore_bytes"]) == (needed, sum(sizes[:needed]))

    agent.wait_for(told)
    store = world.stores[0]
    store.folder = world.folder(0)
    for epoch in (21, 22):
        store.commit()
        agent.send(store.message(world.url, epoch, BASE, 2))
    agent.wait_for(lambda line: line.get("storage", {}).get("restore_snapshots") == 2)  # the start is over, with what it has come to
    agent.close()


def test_a_store_that_could_not_be_fetched_is_not_waited_for() -> None:
    """Spark may try the task again on another executor."""
    start = RunStart(ONE_OF_MANY)
    snapshot = Snapshot(StoreId(0, 1, "default"), 3, "u", (), 0)
    start.asked(2, snapshot)
    start.failed(1, snapshot.store)
    assert start.report()["restore_snapshots"] == 1, "that was a task of another run"
    start.failed(2, snapshot.store)
    assert start.report()["restore_snapshots"] == 0


def test_the_only_executor_waits_for_all_stores_however_often_one_fails(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=3, epochs=2)
    start = RunStart(ALONE_REACH)
    with restore_of(world, Counting(world.storage), RestoreRoom(1 << 20)) as restore:
        start.restore(2, BASE, lambda: restore)
        start.failed(2, world.snapshots[0].store)
        assert start.report()["restore_snapshots"] == 3
        start.end()
