"""A start that no task has asked for in a minute gives what it keeps to the others."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import ref

import pytest

from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.restores import IDLE_S, ONE_OF_MANY
from testbed.faulty import Fault, Moment
from tests.drivers.agent_restores import intact, landed, restore_of, segment_bytes, wanted_by, worlds
from tests.drivers.agent_starts import Counting, World, settled


def waits(event: threading.Event) -> None:
    event.wait(30)


@pytest.mark.parametrize("idle_s", [IDLE_S, IDLE_S - 1])
def test_what_nobody_has_asked_for_gives_way_to_a_task_and_is_read_again(tmp_path: Path, idle_s: float) -> None:
    a, b = worlds(tmp_path, "a", "b")
    now, room = [100.0], RestoreRoom(max(sum(segment_bytes(world)) for world in (a, b)))
    idle, other = Counting(a.storage), Counting(b.storage)
    with (
        restore_of(a, idle, room, reach=ONE_OF_MANY, clock=lambda: now[0]) as first,
        restore_of(b, other, room, reach=ONE_OF_MANY, clock=lambda: now[0]) as second,
    ):
        assert first.bring(wanted_by(a, 0, tmp_path / "to")) == []
        landed(first)
        now[0] += idle_s
        wanted = wanted_by(b, 0, tmp_path / "to")
        assert second.bring(wanted) == ([] if idle_s >= IDLE_S else wanted)
        if idle_s < IDLE_S:
            return
        assert room.taken == sum(segment_bytes(b))
        landed(second)
        second.close()
        later = wanted_by(a, 1, tmp_path / "to")
        assert first.bring(later) == []
        assert intact(wanted)
        assert intact(later)
        landed(first)
        first.close()
    assert (len(idle.ranges), len(other.ranges), room.taken) == (8, 4, 0)


def test_who_waits_to_read_ahead_gets_the_room_of_one_that_nobody_has_asked_for(tmp_path: Path) -> None:
    """What has given way is not read ahead again, also where some of it was still on its way."""
    a, b = worlds(tmp_path, "a", "b")
    now, room = [100.0], RestoreRoom(4 * max(segment_bytes(a)))
    idle, other, goes_on = Counting(a.storage), Counting(b.storage), threading.Event()
    last = sorted(a.segments)[1].rpartition("/")[2]
    idle.inject(Fault(Moment.DELAY, f"*{last}", frozenset({"get"}), times=1, pause=lambda: waits(goes_on)))
    with restore_of(a, idle, room, clock=lambda: now[0]) as first:
        first.go_on()
        settled(idle, 2)
        now[0] += IDLE_S
        with restore_of(b, other, room, clock=lambda: now[0]) as second:
            second.go_on()
            settled(other, 1)
            second.close()
        goes_on.set()
        landed(first)
        assert len(idle.ranges) == 2


def test_who_is_not_asked_for_neither_waits_for_room_nor_gives_way_to_itself(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    now, storage, room = [100.0], Counting(world.storage), RestoreRoom(4 * max(segment_bytes(world)))
    with restore_of(world, storage, room, clock=lambda: now[0]) as restore:
        restore.go_on()
        settled(storage, 2)
        landed(restore)
        now[0] += IDLE_S
        kept = room.taken
        for _ in range(4):
            room.tell()
        assert (len(storage.ranges), room.taken) == (2, kept)
        assert room.take_ahead(0, print), "nobody is before it"
        for partition in range(4):
            assert restore.bring(wanted_by(world, partition, tmp_path / "to")) == []
    assert (len(storage.ranges), room.taken) == (4, 0)


def test_starts_whose_tasks_ask_in_turn_do_not_read_all_in_turn(tmp_path: Path) -> None:
    a, b = worlds(tmp_path, "a", "b")
    now, room = [100.0], RestoreRoom(max(sum(segment_bytes(world)) for world in (a, b)))
    storages = [Counting(world.storage) for world in (a, b)]
    with (
        restore_of(a, storages[0], room, reach=ONE_OF_MANY, clock=lambda: now[0]) as first,
        restore_of(b, storages[1], room, reach=ONE_OF_MANY, clock=lambda: now[0]) as second,
    ):
        for partition in range(4):
            for world, restore in ((a, first), (b, second)):
                restore.bring(wanted_by(world, partition, tmp_path / "to"))
                landed(restore)
                now[0] += IDLE_S
    for world, storage in zip((a, b), storages, strict=True):
        assert storage.twice <= sum(segment_bytes(world))


def test_nobody_gives_way_to_who_has_what_is_asked_for(tmp_path: Path) -> None:
    a, b = worlds(tmp_path, "a", "b")
    now, room = [100.0], RestoreRoom(sum(segment_bytes(a)) + sum(segment_bytes(b)))
    with (
        restore_of(a, Counting(a.storage), room, reach=ONE_OF_MANY, clock=lambda: now[0]) as first,
        restore_of(b, Counting(b.storage), room, reach=ONE_OF_MANY, clock=lambda: now[0]) as second,
    ):
        for world, restore in ((a, first), (b, second)):
            assert restore.bring(wanted_by(world, 0, tmp_path / "to")) == []
            landed(restore)
        now[0] += IDLE_S
        assert second.bring(wanted_by(b, 1, tmp_path / "to")) == []
        assert room.taken == room.limit


def test_nobody_gives_way_for_what_a_task_takes_at_once(tmp_path: Path) -> None:
    a, b = World(tmp_path, partitions=4, epochs=4, payload=1000, name="a"), World(tmp_path, partitions=1, epochs=4, name="b")
    now, room = [100.0], RestoreRoom(sum(segment_bytes(a)))
    with (
        restore_of(a, Counting(a.storage), room, reach=ONE_OF_MANY, clock=lambda: now[0]) as first,
        restore_of(b, Counting(b.storage), room, reach=ONE_OF_MANY, clock=lambda: now[0]) as second,
    ):
        assert first.bring(wanted_by(a, 0, tmp_path / "to")) == []
        landed(first)
        now[0] += IDLE_S
        assert second.bring(wanted_by(b, 0, tmp_path / "to")) == []
        landed(second)
        assert room.taken == room.limit


def test_who_has_a_task_that_waits_does_not_give_way(tmp_path: Path) -> None:
    """However long its storage takes."""
    a, b = worlds(tmp_path, "a", "b")
    now, room = [100.0], RestoreRoom(sum(segment_bytes(a)))
    slow, begun, goes_on = Counting(a.storage), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(30)

    slow.inject(Fault(Moment.DELAY, f"*{sorted(a.segments)[-1].rpartition('/')[2]}", frozenset({"get"}), times=1, pause=hold))
    with (
        restore_of(a, slow, room, reach=ONE_OF_MANY, clock=lambda: now[0]) as first,
        restore_of(b, Counting(b.storage), room, reach=ONE_OF_MANY, clock=lambda: now[0]) as second,
        ThreadPoolExecutor(1) as task,
    ):
        asked = task.submit(first.bring, wanted_by(a, 0, tmp_path / "to"))
        assert begun.wait(30)
        deadline = time.monotonic() + 30
        while len(first._on_the_way) > 1 and time.monotonic() < deadline:
            time.sleep(0.005)
        now[0] += 2 * IDLE_S
        wanted = wanted_by(b, 0, tmp_path / "to")
        assert second.bring(wanted) == wanted
        assert room.taken == sum(segment_bytes(a))
        goes_on.set()
        assert asked.result(30) == []
        assert first.bring(wanted_by(a, 1, tmp_path / "to")) == []
    assert slow.twice == 0


def test_each_task_that_asks_keeps_what_its_stream_has(tmp_path: Path) -> None:
    (world,) = worlds(tmp_path, "a")
    now, storage, room = [100.0], Counting(world.storage), RestoreRoom(sum(segment_bytes(world)))
    with restore_of(world, storage, room, reach=ONE_OF_MANY, clock=lambda: now[0]) as restore:
        for partition in range(4):
            assert restore.bring(wanted_by(world, partition, tmp_path / "to")) == []
            now[0] += IDLE_S - 1
            room.make_way(room.limit + 1)
    assert storage.twice == 0


def test_what_is_still_on_its_way_does_not_give_way(tmp_path: Path) -> None:
    """There would be no room before it has come."""
    (world,) = worlds(tmp_path, "a")
    now, storage, room = [100.0], Counting(world.storage), RestoreRoom(1 << 20)
    goes_on = threading.Event()
    storage.inject(Fault(Moment.DELAY, operations=frozenset({"get"}), times=None, pause=lambda: waits(goes_on)))
    with restore_of(world, storage, room, clock=lambda: now[0]) as restore:
        restore.go_on()
        now[0] += IDLE_S
        room.make_way(room.limit + 1)
        goes_on.set()
        assert restore.bring(wanted_by(world, 0, tmp_path / "to")) == []
    assert storage.twice == 0


def test_a_start_that_is_over_is_not_kept(tmp_path: Path) -> None:
    """The room lives as long as the agent."""
    (world,) = worlds(tmp_path, "a")
    room = RestoreRoom(1 << 20)
    with restore_of(world, Counting(world.storage), room) as restore:
        over = ref(restore)
        restore.close()
        del restore
    gc.collect()
    assert over() is None
    room.make_way(room.limit + 1)
