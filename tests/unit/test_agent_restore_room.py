"""All streams of an agent share the disk that their starts may fill: it is bounded, nobody waits for it with a part of it in his hands, and
it is given back."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.agent.reads import Reader, Reading
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.restores import ONE_OF_MANY
from spark_ckpt.errors import StorageError
from testbed.faulty import Fault, Moment
from tests.drivers.agent_restores import landed, restore_of, segment_bytes, wanted_by, worlds
from tests.drivers.agent_starts import ALONE, ONE_OF_TWO, Counting, World, ahead, kept, settled
from tests.drivers.agent_stores import LocalAgent


def one_agent(streams: list[World], storages: list[Counting], executor: str, room: int) -> LocalAgent:
    """With `room` bytes for all that starts keep."""
    of = {world.url: storage for world, storage in zip(streams, storages, strict=True)}
    return LocalAgent(streams[0].spools / "second", lambda url, _: of[url], {"spark.ckpt.spool.maxSize": str(4 * room)}, executor=executor)


def test_what_the_starts_of_all_streams_keep_is_bounded_together(tmp_path: Path) -> None:
    streams = worlds(tmp_path, "a", "b", "c", "d")
    storages = [Counting(world.storage) for world in streams]
    room = sum(segment_bytes(streams[0])) // 2
    agent = one_agent(streams, storages, ONE_OF_TWO, room)
    for world in streams:
        assert agent.ask(world.message(0))["ok"] is True
        assert 0 < kept(world) <= room
    for world, storage in zip(streams, storages, strict=True):
        for p in range(1, 4):
            assert agent.ask(world.message(p))["ok"] is True
        for p in range(4):
            world.check(p)
        assert storage.twice == 0
    assert kept(streams[0]) == 0
    agent.close()


def test_streams_that_start_together_with_hardly_any_room_all_start(tmp_path: Path) -> None:
    streams = worlds(tmp_path, "a", "b", "c", "d")
    storages = [Counting(world.storage) for world in streams]
    together, later = streams[:-1], streams[-1]
    agent = one_agent(streams, storages, ALONE, 2 * max(segment_bytes(later)))
    for world in together:
        agent.send(ahead(world))
    for answer in [agent.begin(world.message(p)) for p in range(4) for world in together]:
        assert answer.result(30)["ok"] is True
    for world in together:
        for p in range(4):
            world.check(p)
    assert kept(later) == 0
    agent.send(ahead(later))
    settled(storages[-1], 1)  # all of the room is there again
    agent.close()


@pytest.mark.parametrize("ends", ["taken", "over", "failed"])
def test_a_stream_that_waits_for_room_reads_ahead_when_another_one_has_given_it_back(tmp_path: Path, ends: str) -> None:
    """No task of its own has to ask first."""
    streams = worlds(tmp_path, "a", "b")
    first, storages, fails = streams[0], [Counting(world.storage) for world in streams], threading.Event()
    agent = one_agent(streams, storages, ALONE, 4 * max(segment_bytes(first)))

    def fail() -> None:
        fails.wait(30)
        raise StorageError("injected")

    if ends == "failed":
        storages[0].inject(Fault(Moment.DELAY, "*/seg/*", frozenset({"get"}), times=None, pause=fail))
    agent.send(ahead(first))
    settled(storages[0], 2)
    agent.send(ahead(streams[1]))
    settled(storages[1], 0)
    if ends == "taken":
        for p in range(4):
            assert agent.ask(first.message(p))["ok"] is True
    elif ends == "over":
        agent.send({"type": "over", "root": first.root, "run": 2})
    else:
        fails.set()
    settled(storages[1], 2)
    for p in range(4):
        assert agent.ask(streams[1].message(p))["ok"] is True
    assert len(storages[1].ranges) == 4
    agent.close()


def test_what_a_stream_that_has_ended_kept_is_room_for_the_others(tmp_path: Path) -> None:
    streams = worlds(tmp_path, "a", "b", "c")
    storages = [Counting(world.storage) for world in streams]
    agent = one_agent(streams, storages, ONE_OF_TWO, sum(segment_bytes(streams[0])))
    read: list[int] = []
    for world, storage in zip(streams, storages, strict=True):
        assert agent.ask(world.message(0))["ok"] is True
        read.append(sum(length for _, _, length in storage.ranges))
        if world.name == "b":
            agent.send({"type": "over", "root": "file:/data/ckpt/a", "run": 2})
            agent.ask({"type": "ping"})
    alone = [world.snapshots[0].size for world in streams]
    assert read[0] == sum(segment_bytes(streams[0]))
    assert read[1] == alone[1], "there was no room, so nothing was read for others"
    assert read[2] == sum(segment_bytes(streams[2]))
    agent.close()


class Waiter:
    """Takes room for ranges of one length, `left` of them, as a restore that reads ahead does."""

    def __init__(self, room: RestoreRoom, name: str, length: int, left: int, order: list[str]) -> None:
        self._room = room
        self._name = name
        self._length = length
        self._order = order
        self.left = left

    def go_on(self) -> None:
        while self.left and self._room.take_ahead(self._length, self.go_on):
            self.left -= 1
            self._order.append(self._name)
        if not self.left:
            self._room.leave(self.go_on)


def test_room_of_what_is_still_on_its_way_is_given_back_when_it_has_come(tmp_path: Path) -> None:
    """Until then it may lie on the disk."""
    (world,) = worlds(tmp_path, "a")
    storage, begun, goes_on = Counting(world.storage), threading.Semaphore(0), threading.Event()

    def hold() -> None:
        begun.release()
        goes_on.wait(30)

    storage.inject(Fault(Moment.DELAY, operations=frozenset({"get"}), times=None, pause=hold))
    total = sum(segment_bytes(world))
    room = RestoreRoom(2 * total)
    with restore_of(world, storage, room) as restore:
        restore.go_on()
        assert all(begun.acquire(timeout=30) for _ in range(4))
        restore.close()
        assert room.taken == total
        goes_on.set()
    assert room.taken == 0


@pytest.mark.parametrize("error", [StorageError("injected"), OSError("injected")])
def test_room_of_what_has_failed_is_given_back(tmp_path: Path, error: Exception) -> None:
    (world,) = worlds(tmp_path, "a")
    storage, room = Counting(world.storage), RestoreRoom(1 << 20)

    def fail() -> None:
        raise error

    storage.inject(Fault(Moment.DELAY, operations=frozenset({"get"}), times=None, pause=fail))
    with restore_of(world, storage, room) as restore:
        targets = [(handle, tmp_path / str(n)) for n, handle in enumerate(world.snapshots[0].handles)]
        with pytest.raises(type(error)):
            restore.bring(targets)
    assert room.taken == 0


def test_room_of_what_cannot_be_begun_is_given_back(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    storage, room = Counting(world.storage), RestoreRoom(1 << 20)
    with restore_of(world, storage, room) as restore:
        shutil.rmtree(next((tmp_path / "alone-a").glob(".agent-*")))  # no file can be made there any more
        restore.go_on()
        assert room.taken == 0
        with pytest.raises(FileNotFoundError):
            restore.bring([(handle, tmp_path / "target") for handle in world.snapshots[0].handles])
    assert room.taken == 0
    assert storage.ranges == []


@pytest.mark.parametrize("asked", [True, False])
def test_who_asks_for_room_while_another_one_fails_is_told(tmp_path: Path, asked: bool) -> None:
    (world,) = worlds(tmp_path, "a")
    room, order = RestoreRoom(1 << 20), list[str]()
    waiter = Waiter(room, "w", room.limit // 2, 1, order)

    class FullDisk(Reader):
        def begin(self, reading: Reading, done: Callable[[bool], object] = lambda _: None) -> None:
            waiter.go_on()
            assert order == []
            raise OSError("injected")

    with restore_of(world, Counting(world.storage), room, FullDisk) as restore:
        if asked:
            with pytest.raises(OSError, match="injected"):
                restore.bring([(handle, tmp_path / "target") for handle in world.snapshots[0].handles])
        else:
            restore.go_on()
        assert order == ["w"]


@pytest.mark.parametrize(("lacks", "read"), [(1, 4), (None, 0)], ids=["half of the room", "the room"])
def test_what_is_larger_than_half_of_the_room_is_not_waited_for(tmp_path: Path, lacks: int | None, read: int) -> None:
    """To read it ahead: a task gets it, if there is room."""
    (world,) = worlds(tmp_path, "a")
    storage, shortest = Counting(world.storage), min(segment_bytes(world))
    room = RestoreRoom(shortest - 1 if lacks is None else 2 * shortest - lacks)
    with restore_of(world, storage, room) as restore:
        restore.go_on()
        assert room.take_ahead(1, print), "nobody is before it"
        room.give_back(1)
        for handle in world.snapshots[0].handles:
            left = restore.bring([(handle, tmp_path / handle.name)])
            assert left == ([] if read else [(handle, tmp_path / handle.name)])
            others = [h for h in world.handles if h.object == handle.object and h != handle]
            restore.bring([(h, tmp_path / f"{n}-{h.name}") for n, h in enumerate(others)])
    assert len(storage.ranges) == read
    assert room.taken == 0


def test_room_is_for_what_is_needed_and_half_of_it_for_what_will_be() -> None:
    room = RestoreRoom(100)
    assert room.take_ahead(50, print)
    assert not room.take_ahead(1, print)
    assert room.take(50)
    assert not room.take(1)
    room.take_at_once(30)
    assert room.taken == 130
    room.give_back(80)
    assert not room.take_ahead(1, print)
    assert room.take(50)
    room.give_back(100)
    assert room.taken == 0
    assert room.take_ahead(room.limit_ahead, print)


def test_who_waits_for_room_gets_it_in_turn_and_nobody_overtakes() -> None:
    room, order = RestoreRoom(80), list[str]()
    a, b, c, d = (Waiter(room, name, 10, left, order) for name, left in (("a", 5), ("b", 2), ("c", 3), ("d", 1)))
    for waiter in (a, b, c):
        waiter.go_on()
    assert "".join(order) == "aaaa"
    room.give_back(10)
    d.go_on()
    assert "".join(order) == "aaaa", "there is room, for those who wait"
    room.tell()
    assert "".join(order) == "aaaaa"
    for _ in range(6):
        room.give_back(10)
        room.tell()
    assert "".join(order) == "aaaaa" + "bcdbcc"
    assert (room.taken, [waiter.left for waiter in (a, b, c, d)]) == (40, [0] * 4)


def test_a_large_range_is_not_passed_over_for_small_ones() -> None:
    room, order = RestoreRoom(80), list[str]()
    a, large, small = Waiter(room, "a", 10, 4, order), Waiter(room, "L", 40, 1, order), Waiter(room, "s", 10, 4, order)
    for waiter in (a, large, small):
        waiter.go_on()
    for _ in range(4):
        assert "".join(order) == "aaaa"
        room.give_back(10)
        room.tell()
    assert "".join(order) == "aaaaL"
    room.give_back(40)
    room.tell()
    assert "".join(order) == "aaaaLssss"


def test_who_does_not_wait_any_more_keeps_nobody_waiting() -> None:
    room, order = RestoreRoom(80), list[str]()
    a, b, c = (Waiter(room, name, 40, 1, order) for name in "abc")
    for waiter in (a, b, c):
        waiter.go_on()
    b.left = 0  # a task has asked for it meanwhile, or its stream has ended
    room.give_back(40)
    room.tell()
    assert "".join(order) == "ac"


def test_a_file_that_cannot_be_unlinked_keeps_neither_room_nor_the_end_of_its_stream(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    total, order = sum(segment_bytes(world)), list[str]()
    storage, room = Counting(world.storage), RestoreRoom(2 * total)
    with restore_of(world, storage, room) as restore:
        restore.go_on()
        settled(storage, 4)
        for file in tmp_path.glob("alone-a/.agent-*/*"):  # whoever unlinks a folder gets an OSError, root too
            file.unlink()
            file.mkdir()
        waiter = Waiter(room, "w", total, 1, order)
        waiter.go_on()
        assert order == []
        restore.close()
        assert order == ["w"]
    assert room.taken == total, "of who had waited"


def test_a_read_that_fails_is_told_of_where_its_file_cannot_be_unlinked_either(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    storage, room = Counting(world.storage), RestoreRoom(1 << 20)

    def fail() -> None:
        for file in tmp_path.glob("alone-a/.agent-*/*"):
            file.unlink()
            file.mkdir()
        raise StorageError("injected")

    storage.inject(Fault(Moment.DELAY, operations=frozenset({"get"}), times=1, pause=fail))
    with restore_of(world, storage, room) as restore:
        with pytest.raises(StorageError, match="injected"):
            restore.bring([(handle, tmp_path / str(n)) for n, handle in enumerate(world.snapshots[0].handles)])
        restore.close()
    assert room.taken == 0


@pytest.mark.parametrize("runs", [True, False])
def test_a_read_for_which_no_thread_can_be_started_ends_once(tmp_path: Path, runs: bool) -> None:
    """`ThreadPoolExecutor.submit` has queued it by then: another thread may run it, or none."""
    (world,) = worlds(tmp_path, "a")
    room = RestoreRoom(1 << 20)

    class NoThread(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Any:
            if runs:
                super().submit(*work, **more).result(30)
            raise RuntimeError("can't start new thread")

    with restore_of(world, Counting(world.storage), room, pools=NoThread) as restore:
        if runs:
            restore.bring([(handle, tmp_path / str(n)) for n, handle in enumerate(world.snapshots[0].handles)])
        else:
            with pytest.raises(StorageError, match="a read could not be begun: can't start new thread"):
                restore.bring([(handle, tmp_path / str(n)) for n, handle in enumerate(world.snapshots[0].handles)])
        restore.close()
    assert room.taken == 0


def test_one_damaged_file_does_not_keep_the_room_of_its_range(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    damaged = world.snapshots[2]
    bad = replace(damaged.handles[1], checksum=damaged.handles[1].checksum ^ 1)
    world.snapshots[2] = replace(damaged, handles=(damaged.handles[0], bad, *damaged.handles[2:]))
    storage, room = Counting(world.storage), RestoreRoom(1 << 20)
    with restore_of(world, storage, room) as restore:
        left = [handle for p in range(4) for handle, _ in restore.bring(wanted_by(world, p, tmp_path / "to"))]
        landed(restore)
        assert (left, room.taken) == ([bad], 0)
    assert storage.twice == 0


def test_a_range_that_arrives_damaged_twice_is_left_to_who_needs_a_part_of_it(tmp_path: Path) -> None:
    """It may be that of another one that is damaged."""
    (world,) = worlds(tmp_path, "a")
    storage, room = Counting(world.storage), RestoreRoom(1 << 20)
    cut = sorted(world.segments)[1]
    storage.inject(Fault(Moment.TRUNCATE, f"*{cut.rpartition('/')[2]}", frozenset({"get"}), times=None))
    with restore_of(world, storage, room, reach=ONE_OF_MANY) as restore:
        left = [handle.object for p in range(4) for handle, _ in restore.bring(wanted_by(world, p, tmp_path / "to"))]
        landed(restore)
        assert (left, room.taken) == ([cut] * 4, 0)
    assert len(storage.ranges) == 3 + 2


def test_whoever_else_waited_for_a_read_that_failed_reads_for_itself_and_is_not_waited_for(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    storage, room, begun, fails = Counting(world.storage), RestoreRoom(1 << 20), threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        fails.wait(30)
        raise StorageError("injected")

    handles = [[(h, t) for h, t in wanted_by(world, p, tmp_path / "to") if h.object == min(world.segments)] for p in range(4)]
    storage.inject(Fault(Moment.DELAY, operations=frozenset({"get"}), times=1, pause=fail))
    with restore_of(world, storage, room, reach=ONE_OF_MANY) as restore, ThreadPoolExecutor(2) as tasks:
        first = tasks.submit(restore.bring, handles[0])
        assert begun.wait(30)
        second = tasks.submit(restore.bring, handles[1])
        deadline = time.monotonic() + 30
        while restore._asking < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.3)  # until it waits for the first one's read
        fails.set()
        with pytest.raises(StorageError, match="injected"):
            first.result(30)
        assert second.result(30) == handles[1]
        for again in (0, 2, 3):
            assert restore.bring(handles[again]) == []
        landed(restore)
        assert room.taken == 0
