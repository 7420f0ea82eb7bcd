"""Large files of the driver go with the last that names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.large_files import LARGE
from spark_ckpt.protocol.machine import Questions, Tickets
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.retention.log_trim import DAY_MS, LogTrim
from spark_ckpt.protocol.retention.planned_files import PlannedFiles
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due
from tests.drivers.interval_runs import running as running_by_interval
from tests.drivers.long_logs import HOUR_MS, SAVEPOINT, entry_of, epochs, ids_of, running, tail_of
from tests.drivers.protocol_driving import Driver, World, commit, uid_of
from tests.drivers.protocol_starts import own, started


def test_a_large_file_of_the_driver_goes_with_the_last_plan_that_named_it() -> None:
    world = World()
    for run in range(1, 60):
        driver = running(world, f"n{run}")
        world.clock_ms += HOUR_MS
        name, before = f"sources/0/{run * 10 + 9}.compact", f"sources/0/{run * 10 - 1}.compact"
        driver.trigger(run - 1, {name: bytes([run]) * (LARGE + 1), **({before: None} if run > 1 else {})})
        driver.rest(run, run - 1)
        driver.push(ev.StopRequested(failed=False))
    large = sorted(name for name in world.objects if "/drv/" in name)
    named = {name for n in ids_of(world) if isinstance(plan := entry_of(world, n), Plan) for name in plan.objects}
    assert named <= set(large), "what a plan in the log names is there"
    assert len(large) <= 30, "a day's, and a few"


def large_objects(world: World) -> set[str]:
    return {name for name in world.objects if "/drv/" in name}


def named_by_any(world: World) -> set[str]:
    """Large files that a plan in the log names, or a checkpoint."""
    plans = [plan.objects for n in ids_of(world) if isinstance(plan := entry_of(world, n), Plan)]
    return large_objects(world).intersection(frozenset().union(*plans, *(c.objects for c in world.checkpoints.values())))


def test_a_large_file_stays_while_an_entry_below_the_floor_names_it_that_is_too_young_to_go() -> None:
    """(1) An entry plans epoch 5, with a large file; (2) hours later that epoch runs again, twice, and a savepoint is made between; (3) a
    day after (1) a run that has read none of these raises the floor above them all, and deletes the first."""
    world = World()
    first = running(world, retained=30)
    epochs(first, 1, 0, 4, HOUR_MS // 60)
    first.trigger(5, {"sources/0/9.compact": b"x" * (LARGE + 1)})
    first.rest(1, 5)
    epochs(first, 1, 6, 9, HOUR_MS // 60)
    first.trigger(10, {"sources/0/9.compact": None})
    first.rest(1, 10)
    world.clock_ms = 10 * HOUR_MS
    second = running(world, "b", restore=own(1, 2), retained=30)
    second.rest(2, 3)
    epochs(second, 2, 4, 9, HOUR_MS // 60)
    second.trigger(10, {"sources/0/9.compact": None})
    second.rest(2, 10)
    third = running(world, "c", restore=own(2, 3))
    third.rest(3, 4)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(3, 4)]
    epochs(third, 3, 5, 20, HOUR_MS // 60)
    (large,) = large_objects(world)
    names_it = [n for n in ids_of(world) if large in getattr(entry_of(world, n), "objects", ())]
    world.clock_ms = 25 * HOUR_MS
    epochs(running(world, "d"), 4, 21, 27, HOUR_MS // 60)
    left = [n for n in names_it if n in world.log]
    assert len(names_it) == 3
    assert left == names_it[1:], "the first was old enough"
    assert tail_of(world).floor > max(left)
    assert large in world.objects
    again = started(Driver(world).start("e", restore=ev.Restore(SAVEPOINT)))
    assert (again.origin, again.epoch) == (CheckpointId(5, 4), 5)


def test_a_large_file_stays_that_a_successor_has_planned_while_a_run_slept() -> None:
    """(1) A run begins to read what entries name, and sleeps; (2) the next one goes back to a young savepoint, and runs again what one of
    them plans; (3) it deletes that entry when it is a day old; (4) the first one wakes up, and finds it missing."""
    world = World()
    large = {"sources/0/9.compact": b"x" * (LARGE + 1)}
    first = running(world)
    first.trigger(0, large)
    first.rest(1, 0)
    world.clock_ms = 20 * HOUR_MS
    epochs(first, 1, 1, 1, 0)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 1)]
    epochs(first, 1, 2, 2, 0)
    first.trigger(3, large)
    first.rest(1, 3)
    again = max(world.log)
    first.trigger(4, {"sources/0/9.compact": None})
    first.rest(1, 4)
    (name,) = large_objects(world)
    world.clock_ms = 25 * HOUR_MS
    sleeper = running(world, "b")
    sleeper.hold = lambda i: isinstance(i, do.ReadPlans) and again in i.numbers
    epochs(sleeper, 2, 5, 9, 1)
    assert sleeper.held
    third = running(world, "c", restore=ev.Restore(SAVEPOINT))
    assert next(p.epoch for p in started(third.said).planned) == 3
    world.clock_ms = 43 * HOUR_MS
    third.rest(3, 2)
    third.trigger(3)
    third.rest(3, 3)
    its_own = max(world.log)
    assert name in getattr(entry_of(world, its_own), "objects", ())
    third.trigger(4, {"sources/0/9.compact": None})
    third.rest(3, 4)
    epochs(third, 3, 5, 9, HOUR_MS)
    assert again not in world.log
    sleeper.hold = lambda _: False
    sleeper.release()
    assert its_own in world.log
    assert name in world.objects


def test_entries_that_name_large_files_stay_however_late_that_is_known_while_one_is_missing() -> None:
    """Entry 120 of 300 is missing, which should be there; what the entries from 201 on name is read after that."""
    planned, questions = PlannedFiles(), Questions(Tickets())
    planned.since = 400
    trim = LogTrim(1, planned, DAY_MS, 1, questions, list)
    names = dict.fromkeys((50, 240), frozenset({"run-00000001/drv/0-" + "0" * 32}))
    old = tuple((n, 0) for n in range(1, 301) if n != 120)
    said = trim.begin(1000, 390, 2 * DAY_MS)
    deleted: set[int] = set()
    while said:
        (asked,) = said
        if isinstance(asked, do.ListOldEntries):
            said = questions.answer(ev.OldEntriesListed(asked.ticket, 1, tuple(e for e in old if e[0] > asked.after)))
        elif isinstance(asked, do.ReadPlans):
            told = {n: None if n == 120 else names.get(n, frozenset()) for n in asked.numbers}
            said = questions.answer(ev.PlansRead(asked.ticket, told))
        else:
            assert isinstance(asked, do.DeleteEntries)
            deleted.update(asked.numbers)
            said = questions.answer(ev.EntriesDeleted(asked.ticket))
    assert 199 in deleted
    assert 241 in deleted
    assert not deleted & names.keys()


def test_a_large_file_stays_while_an_entry_that_stays_cannot_be_read() -> None:
    world = World()
    first = running(world)
    first.trigger(0, {"sources/0/9.compact": b"x" * (LARGE + 1)})
    first.rest(1, 0)
    epochs(first, 1, 1, 1, 12 * HOUR_MS)
    first.trigger(2, {"sources/0/9.compact": None})
    first.rest(1, 2)
    epochs(first, 1, 3, 4, HOUR_MS // 60)
    names_it, unreadable = 2, 4
    assert isinstance(entry_of(world, unreadable), Plan)
    second = running(world, "b")

    def see(i: Instruction) -> bool:
        return isinstance(i, do.ReadPlans) and unreadable in i.numbers

    def read() -> None:
        asked = [i for i in second.held if isinstance(i, do.ReadPlans)]
        second.held = []
        for i in asked:
            reply = second.answer(i)
            assert isinstance(reply, ev.PlansRead)
            second.push(replace(reply, objects={**reply.objects, unreadable: None}))

    second.hold = see
    for epoch in range(5, 15):
        epochs(second, 2, epoch, epoch, 90 * HOUR_MS // 60)
        read()
    assert unreadable in world.log
    assert tail_of(world).floor > unreadable
    assert 1 not in world.log, "what names nothing goes"
    assert names_it in world.log
    assert large_objects(world)
    epochs(second, 2, 15, 30)
    read()
    epochs(second, 2, 31, 40)
    read()
    assert unreadable in world.log, "what cannot be read is kept"
    assert names_it not in world.log
    assert not large_objects(world), "when it is a day old nobody can ask for it"


def test_a_large_file_that_outlives_the_last_plan_which_names_it_goes_when_the_driver_deletes_it() -> None:
    """Spark's file source keeps its log's large files for 100 epochs, which may take longer than a day."""
    world = World()
    driver = running(world, retained=3)
    for epoch in range(300):
        world.clock_ms += HOUR_MS // 2
        files: dict[str, bytes | None] = {}
        if epoch % 10 == 9:
            files[f"sources/0/{epoch}.compact"] = epoch.to_bytes(4, "big") * (LARGE // 4 + 1)
            files |= {f"sources/0/{epoch - 110}.compact": None} if epoch >= 119 else {}
        driver.trigger(epoch, files)
        driver.rest(1, epoch)
    assert len(large_objects(world)) == 11, "those that the driver has"
    assert named_by_any(world) < large_objects(world)


def test_a_large_file_goes_with_a_checkpoint_that_outlives_its_plan_and_its_run() -> None:
    world = World()
    first = running(world)
    first.trigger(0, {"sources/0/9.compact": b"x" * (LARGE + 1)})
    first.rest(1, 0)
    epochs(first, 1, 1, 30, 2 * HOUR_MS)
    assert 2 not in world.log
    assert not named_by_any(world) - world.checkpoints[CheckpointId(1, 30)].objects
    assert large_objects(world), "a checkpoint names it"
    second = running(world, "b")
    second.trigger(31, {"sources/0/9.compact": None})
    second.rest(2, 31)
    epochs(second, 2, 32, 60)
    assert not large_objects(world)


def test_a_large_file_stays_that_a_checkpoint_in_the_making_will_name() -> None:
    world = World()
    driver = Driver(world, Settings(retained=1, trim_every=1, interval_ms=60_000, max_concurrent=3))
    started(driver.start("a"))

    def epoch(number: int, files: Mapping[str, bytes | None]) -> None:
        world.clock_ms += 2 * HOUR_MS
        driver.fire(ev.Timer.INTERVAL)
        driver.trigger(number, files)
        driver.rest(1, number)

    epoch(0, {"sources/0/9.compact": b"x" * (LARGE + 1)})
    for number in range(1, 30):
        epoch(number, {})
    assert 2 not in world.log
    late = CheckpointId(1, 30)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata) and i.checkpoint.id == late
    epoch(30, {})
    assert driver.held
    epoch(31, {"sources/0/9.compact": None})
    for number in range(32, 36):
        epoch(number, {})
    assert large_objects(world)
    driver.hold = lambda _: False
    driver.release()
    assert world.checkpoints[late].objects <= world.objects
    for number in range(36, 40):
        epoch(number, {})
    assert late not in world.checkpoints
    assert not large_objects(world)


def test_what_deleted_entries_named_goes_although_their_run_ends_first() -> None:
    world = World()
    for run in range(1, 60):
        driver = running(world, f"n{run}")
        world.clock_ms += HOUR_MS
        driver.hold = lambda i: isinstance(i, do.DeleteEntries)
        name, before = f"sources/0/{run * 10 + 9}.compact", f"sources/0/{run * 10 - 1}.compact"
        driver.trigger(run - 1, {name: bytes([run]) * (LARGE + 1), **({before: None} if run > 1 else {})})
        driver.rest(run, run - 1)
        driver.push(ev.StopRequested(failed=False))
        driver.hold = lambda _: False
        driver.release()
    assert ids_of(world)[0] > 1
    assert large_objects(world) == named_by_any(world)


def goes_on(driver: Driver, first: int, last: int) -> None:
    """Each epoch is a checkpoint, and a pass over old entries follows its plan."""
    for number in range(first, last + 1):
        driver.world.clock_ms += 10
        driver.trigger(number)
        due(driver)
        driver.rest(1, number)


def sealed(driver: Driver, number: int, files: Mapping[str, bytes | None]) -> None:
    driver.push(ev.SealRequested(number, commit([uid_of(1, number, p) for p in range(2)]), files))


def in_background(ahead: int = 0) -> Driver:
    """In which entries go when they are four epochs old."""
    driver = running_by_interval(retained=1, log_kept_ms=40, trim_every=1, ahead=ahead)
    due(driver)
    driver.epoch(1, 0)
    return driver


def test_a_large_file_that_nothing_ever_named_goes_while_the_run_lives() -> None:
    """(1) It goes with the seal of an epoch that is no checkpoint; (2) the next trigger replaces it."""
    driver = in_background()
    driver.trigger(1)
    sealed(driver, 1, {"state/0/x": b"A" * (LARGE + 1)})
    driver.trigger(2, {"state/0/x": b"B" * (LARGE + 1)})
    _, second = sorted(large_objects(driver.world))
    sealed(driver, 2, {})
    goes_on(driver, 3, 20)
    assert large_objects(driver.world) == {second}


def test_a_large_file_that_the_driver_has_replaced_stays_for_a_plan_that_still_stands_in_line() -> None:
    driver = in_background(ahead=4)
    driver.trigger(1)
    sealed(driver, 1, {"state/0/x": b"A" * (LARGE + 1)})
    driver.trigger(2, {"state/0/x": b"B" * (LARGE + 1)})
    sealed(driver, 2, {})
    goes_on(driver, 3, 11)
    driver.hold = lambda i: isinstance(i, do.Delete)
    goes_on(driver, 12, 12)
    deletion = driver.held.pop()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.trigger(13, {"state/0/x": b"C" * (LARGE + 1)})
    (named,) = (name for name in large_objects(driver.world) if "/13-" in name)
    for p in range(2):
        driver.ack(1, 13, p)
    sealed(driver, 13, {"state/0/x": b"D" * (LARGE + 1)})
    (left,) = (name for name in large_objects(driver.world) if "/13-" in name and name != named)
    for number in (14, 15):
        driver.trigger(number)
        driver.rest(1, number)
    for question in (deletion, driver.held.pop()):
        driver.hold = lambda _: False
        answer = driver.answer(question)
        assert answer is not None
        driver.push(answer)
        assert named in driver.world.objects
    assert named in named_by_any(driver.world)
    goes_on(driver, 16, 40)
    assert large_objects(driver.world) == {left}


@pytest.mark.parametrize("failed", [False, True])
def test_a_large_file_stays_that_a_checkpoint_names_whose_put_was_being_read_back_when_the_run_ended(failed: bool) -> None:
    """(1) It came with the checkpoint's own seal, and the next trigger replaces it, so that no plan names it; (2) the put of `_metadata`
    lands, and its answer is lost; (3) the query ends; (4) an earlier deletion is answered."""
    driver = in_background()
    goes_on(driver, 1, 12)
    due(driver)
    driver.trigger(13, {"state/0/y": b"Y" * (LARGE + 1)})
    due(driver)
    driver.rest(1, 13)
    driver.trigger(14, {"state/0/y": None})
    due(driver)
    driver.rest(1, 14)
    goes_on(driver, 15, 24)
    driver.hold = lambda i: isinstance(i, do.Delete)
    due(driver)
    driver.world.clock_ms += 10
    driver.trigger(25)
    driver.hold = lambda i: isinstance(i, (do.Delete, do.StoreMetadata, do.ReadMetadata))
    for p in range(2):
        driver.ack(1, 25, p)
    sealed(driver, 25, {"state/0/x": b"A" * (LARGE + 1)})
    put = next(i for i in driver.held if isinstance(i, do.StoreMetadata))
    driver.held.remove(put)
    driver.trigger(26, {"state/0/x": b"B" * (LARGE + 1)})
    sealed(driver, 26, {})
    driver.trigger(27)
    sealed(driver, 27, {})
    driver.world.store(put.checkpoint)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, message="timeout"))
    driver.push(ev.StopRequested(failed=failed))
    deletions = [i for i in driver.held if isinstance(i, do.Delete)]
    assert deletions, "nothing is answered after the end: the test has lost its point"
    driver.hold = lambda _: False
    for deletion in deletions:
        answer = driver.answer(deletion)
        assert answer is not None
        driver.push(answer)
    assert driver.world.checkpoints[put.checkpoint.id].objects <= driver.world.objects
