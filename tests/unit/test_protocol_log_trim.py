"""Old entries of the log go, and nobody notices: not who starts, not who goes back, not who slept for a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, End, Entry, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.large_files import LARGE
from spark_ckpt.protocol.log_trim import DAY_MS, LogTrim
from spark_ckpt.protocol.machine import Tickets
from spark_ckpt.protocol.planned_files import PlannedFiles
from spark_ckpt.protocol.run import Settings
from tests.unit.protocol_driving import Driver, World, offsets
from tests.unit.test_protocol_restore import own
from tests.unit.test_protocol_start import refusal, started

HOUR_MS = 60 * 60 * 1000
SAVEPOINT = "s3://b/savepoints/x"


def ids_of(world: World) -> list[int]:
    return sorted(world.log)


def entry_of(world: World, number: int) -> Entry:
    return decode(number, world.log[number])


def tail_of(world: World) -> Entry:
    return entry_of(world, max(world.log))


def running(world: World, nonce: str = "a", restore: ev.Restore | None = None, **settings: int) -> Driver:
    driver = Driver(world, Settings(**{"retained": 2, "trim_every": 1, **settings}))  # type: ignore[arg-type]
    started(driver.start(nonce, restore=restore))
    return driver


def epochs(driver: Driver, run: int, first: int, last: int, every_ms: int = HOUR_MS) -> None:
    for epoch in range(first, last + 1):
        driver.world.clock_ms += every_ms
        driver.epoch(run, epoch)


def looks(driver: Driver) -> list[Instruction]:
    """From now on, each LIST past an entry."""
    seen: list[Instruction] = []

    def see(i: Instruction) -> bool:
        if isinstance(i, do.LookPast):
            seen.append(i)
        return False

    driver.hold = see
    return seen


# --- which go


def test_entries_below_all_checkpoints_go_when_they_are_a_day_old() -> None:
    driver = running(World())
    epochs(driver, 1, 0, 99)
    kept = ids_of(driver.world)
    assert kept[0] == 1, "the claim under which the others were written"
    assert kept[1:] == list(range(kept[1], 102)), "no gap above the floor"
    assert len(kept) <= 24 + 4, "a day's entries, and a few"


def test_the_floor_is_the_oldest_checkpoints_entry_and_is_said_before_anything_goes() -> None:
    driver = running(World())
    epochs(driver, 1, 0, 9)
    plan = tail_of(driver.world)
    assert isinstance(plan, Plan)
    oldest = min(c.log for c in driver.world.checkpoints.values() if c.id.epoch < 9)
    assert plan.floor <= oldest
    assert plan.floor >= 8, "the third newest was still to be deleted when it was put"
    driver.world.clock_ms += 3 * DAY_MS
    driver.epoch(1, 10)
    driver.hold = lambda i: isinstance(i, do.DeleteEntries)
    driver.trigger(11)
    (going,) = driver.held
    assert isinstance(going, do.DeleteEntries)
    said = tail_of(driver.world).floor
    assert max(going.numbers) < said
    assert 1 not in going.numbers


def test_nothing_goes_while_it_is_not_known_when_the_entry_was_stored() -> None:
    driver = running(World())
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    for epoch in range(8):
        driver.world.clock_ms += DAY_MS
        driver.trigger(epoch)
        put = driver.held.pop()
        assert isinstance(put, do.PutEntry)
        driver.push(replace(driver.answer(put), stored_ms=None))  # type: ignore[type-var,arg-type]
        driver.rest(1, epoch)
    assert ids_of(driver.world) == list(range(1, 10))


def test_runs_of_one_epoch_each_leave_a_days_entries_behind() -> None:
    """A query that is started every hour, runs what there is, and ends."""
    world = World()
    for run in range(1, 120):
        driver = running(world, f"n{run}")
        world.clock_ms += HOUR_MS
        driver.epoch(run, run - 1)
        driver.push(ev.StopRequested(failed=False))
    assert len(ids_of(world)) <= 2 * 24 + 12
    assert ids_of(world)[0] > 100
    assert started(running(world, "last").said).origin == CheckpointId(119, 118)


def test_a_pass_comes_with_time_too() -> None:
    driver = running(World(), trim_every=1000)
    seen: list[Instruction] = []

    def see(i: Instruction) -> bool:
        if isinstance(i, do.ListOldEntries):
            seen.append(i)
        return False

    driver.hold = see
    epochs(driver, 1, 0, 99, HOUR_MS // 2)
    assert 45 <= len(seen) <= 55, "one an hour"


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
    planned, tickets = PlannedFiles(), Tickets()
    planned.since = 400
    trim = LogTrim(planned, DAY_MS, 1)
    names = dict.fromkeys((50, 240), frozenset({"run-00000001/drv/0-" + "0" * 32}))
    old = tuple((n, 0) for n in range(1, 301) if n != 120)
    said = trim.begin(1000, 390, 2 * DAY_MS, tickets)
    deleted: set[int] = set()
    while said:
        (asked,) = said
        if isinstance(asked, do.ListOldEntries):
            said = trim.listed(ev.OldEntriesListed(asked.ticket, 1, tuple(e for e in old if e[0] > asked.after)), tickets)
        elif isinstance(asked, do.ReadPlans):
            told = {n: None if n == 120 else names.get(n, frozenset()) for n in asked.numbers}
            said = trim.read(ev.PlansRead(asked.ticket, told), tickets)
        else:
            assert isinstance(asked, do.DeleteEntries)
            deleted.update(asked.numbers)
            said = trim.deleted(tickets)
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


def test_a_deletion_of_entries_that_fails_is_tried_again() -> None:
    driver = running(World())
    driver.hold = lambda i: isinstance(i, do.DeleteEntries)
    epochs(driver, 1, 0, 60)
    assert len(driver.held) == 1, "one pass at a time"
    failed = driver.held.pop()
    assert isinstance(failed, do.DeleteEntries)
    driver.hold = lambda _: False
    said = driver.push(ev.TrimFailed(failed.ticket, "no answer"))
    assert any(isinstance(i, do.Log) and "tried again: no answer" in i.message for i in said)
    epochs(driver, 1, 61, 62)
    assert len(ids_of(driver.world)) <= 28


# --- who starts


def test_a_start_reads_what_is_left() -> None:
    world = World()
    epochs(running(world), 1, 0, 99)
    one = started(running(world, "b").said)
    assert (one.origin, one.epoch, one.rerun) == (CheckpointId(1, 99), 100, False)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    assert (claim.used, claim.floor) == (99, entry_of(world, claim.claim - 1).floor)


def test_what_a_claim_adopted_stays_until_its_run_has_passed_over_it() -> None:
    world = World()
    first = running(world, retained=5)
    epochs(first, 1, 0, 9)
    for c in (7, 8, 9):
        world.damaged[CheckpointId(1, c)] = "broken"
    world.clock_ms += 5 * DAY_MS
    second = running(world, "b", retained=5)
    again = started(second.said)
    assert (again.origin, again.epoch, [p.epoch for p in again.planned]) == (CheckpointId(1, 6), 7, [8, 9])
    second.rest(2, 7)
    epochs(second, 2, 8, 8)
    world.clock_ms += 5 * DAY_MS
    assert world.checkpoints[CheckpointId(2, 7)].lowest_entry < world.checkpoints[CheckpointId(2, 7)].log
    assert world.checkpoints[CheckpointId(2, 8)].log_from == 11, "the plan of epoch 9 under the first run"
    third = started(running(world, "c", retained=5).said)
    assert (third.origin, third.epoch, third.rerun) == (CheckpointId(2, 8), 9, True)


def test_the_checkpoints_of_a_run_that_could_be_ahead_are_gone_and_nothing_is_used_twice() -> None:
    world = World()
    driver = Driver(world, Settings(interval_ms=60_000, ahead=2))
    started(driver.start("a"))
    for epoch in range(3):
        driver.trigger(epoch)
        driver.rest(1, epoch)
        driver.fire(ev.Timer.INTERVAL)
    driver.trigger(3)
    assert tail_of(world).floor > 0
    world.checkpoints.clear()
    refused = refusal(Driver(world).start("b"))
    assert refused.kind is ErrorKind.DAMAGED
    assert "its epochs could run before their plans were stored" in refused.message


def test_a_start_whose_tail_was_deleted_meanwhile_looks_again() -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 2)
    sleeper = Driver(world)
    sleeper.hold = lambda i: isinstance(i, do.ReadEntry)
    sleeper.start("s")
    (asked,) = sleeper.held
    assert isinstance(asked, do.ReadEntry)
    epochs(first, 1, 3, 80)
    assert asked.number not in world.log
    sleeper.hold = lambda _: False
    one = started(sleeper.release())
    assert one.origin == CheckpointId(1, 80)


# --- who goes back further


def with_savepoint(discard: bool) -> tuple[World, list[Instruction]]:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 80)
    assert tail_of(world).floor > world.sources[SAVEPOINT].log
    return world, Driver(world).start("b", restore=ev.Restore(SAVEPOINT, discard=discard))


def test_a_savepoint_older_than_the_log_cannot_have_its_plans_run_again() -> None:
    world, said = with_savepoint(discard=False)
    refused = refusal(said)
    assert refused.kind is ErrorKind.CONFLICT
    assert "older than what the stream's log is sure to hold" in refused.message
    assert "spark.ckpt.restore.plans=DISCARD" in refused.message
    assert not isinstance(tail_of(world), Claim), "nothing was written"


def test_a_savepoint_older_than_the_log_goes_on_behind_every_number() -> None:
    world, said = with_savepoint(discard=True)
    one = started(said)
    assert (one.origin, one.epoch, one.version) == (CheckpointId(2, 2), 81, 3)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    assert (claim.first, claim.used, claim.adopts, claim.inherits) == (81, 80, (), (CheckpointId(2, 2),))
    copy = world.checkpoints[CheckpointId(2, 2)]
    assert (copy.log, copy.claim) == (claim.claim, claim.claim)
    again = started(Driver(world).start("c"))
    assert (again.origin, again.epoch) == (CheckpointId(2, 2), 81), "it goes on from there, whoever starts next"


def test_a_savepoint_whose_claim_a_sleeper_has_overwritten_is_the_streams_own() -> None:
    """(1) A run sleeps; (2) the next one claims the entry that it would have appended, and makes a savepoint; (3) days later that entry is
    gone; (4) the sleeper wakes up, stores its plan in the hole, and is fenced; (5) a person goes back to the savepoint."""
    world = World()
    sleeper = running(world)
    epochs(sleeper, 1, 0, 2)
    second = running(world, "b")
    its_claim = tail_of(world).claim
    epochs(second, 2, 3, 5)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(2, 4)]
    third = running(world, "c")
    epochs(third, 3, 6, 80)
    assert its_claim not in world.log
    sleeper.trigger(3)
    assert isinstance(entry_of(world, its_claim), Plan)
    said = Driver(world).start("d", restore=ev.Restore(SAVEPOINT))
    assert "older than what the stream's log is sure to hold" in refusal(said).message
    one = started(Driver(world).start("e", restore=ev.Restore(SAVEPOINT, discard=True)))
    assert (one.origin, one.epoch) == (CheckpointId(4, 4), 81)


def test_what_is_below_the_floor_does_not_run_again_although_it_is_still_there() -> None:
    """Whoever said so may delete it at any moment: (1) a run says a floor and sleeps; (2) a person goes back behind it; (3) it wakes up."""
    world = World()
    first = running(world)
    first.hold = lambda i: isinstance(i, do.ListOldEntries)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 40)
    assert ids_of(world) == list(range(1, 43)), "nothing is deleted yet"
    assert refusal(Driver(world).start("b", restore=ev.Restore(SAVEPOINT))).kind is ErrorKind.CONFLICT


def test_what_is_below_the_floor_and_younger_than_a_day_runs_again() -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 20)
    assert tail_of(world).floor > world.sources[SAVEPOINT].log
    second = running(world, "b", restore=ev.Restore(SAVEPOINT))
    one = started(second.said)
    assert (one.origin, one.epoch, one.rerun, [p.epoch for p in one.planned]) == (CheckpointId(2, 2), 3, True, list(range(4, 21)))
    assert tail_of(world).floor == world.sources[SAVEPOINT].log, "it has fallen, for the entries from there on count again"
    world.clock_ms += 5 * DAY_MS
    second.rest(2, 3)
    epochs(second, 2, 4, 6)
    third = started(running(world, "c", restore=ev.Restore(SAVEPOINT)).said)
    assert [p.epoch for p in third.planned] == list(range(8, 21)), "none of them is deleted before it has run"


def test_it_runs_again_although_the_claim_under_which_it_was_made_is_gone() -> None:
    """A run that was claimed days ago, savepoint, a new release is deployed, back to the savepoint."""
    world = World()
    first = running(world)
    epochs(first, 1, 0, 40)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 40)]
    epochs(first, 1, 41, 42)
    second = running(world, "b")
    epochs(second, 2, 43, 50)
    assert 1 not in world.log
    one = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (one.origin, one.epoch, [p.epoch for p in one.planned]) == (CheckpointId(3, 40), 41, list(range(42, 51)))


def test_a_savepoint_that_says_it_is_of_a_later_epoch_than_any_is_not_this_streams() -> None:
    world, _ = with_savepoint(discard=True)
    source = world.sources[SAVEPOINT]
    files = {path.replace("/2", "/5000"): content for path, content in source.files.items()}
    world.sources["s3://b/savepoints/y"] = replace(source, id=CheckpointId(1, 5000), files=files)
    refused = refusal(Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True)))
    assert "belongs to another stream" in refused.message


def test_numbers_of_epochs_that_ran_ahead_are_not_used_again_by_who_goes_back_behind_the_floor() -> None:
    world, _ = with_savepoint(discard=True)
    ahead = Driver(world, Settings(interval_ms=60_000, ahead=64))
    began = started(ahead.start("ahead"))
    assert began.epoch == 81
    world.sources["s3://b/savepoints/y"] = world.sources[SAVEPOINT]
    again = started(Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True)))
    assert again.epoch == 80 + 64 + 1


def test_numbers_go_on_when_a_savepoint_older_than_the_log_follows_another_restore() -> None:
    world, said = with_savepoint(discard=True)
    one = started(said)
    second = Driver(world, Settings(retained=2, trim_every=1))
    started(second.start("c"))
    epochs(second, one.run + 1, 81, 90)
    world.sources["s3://b/savepoints/y"] = world.sources[SAVEPOINT]
    third_said = Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True))
    assert started(third_said).epoch == 91


def test_numbers_that_a_lost_claim_had_adopted_are_not_used_again() -> None:
    world = World()
    first = running(world, retained=30)
    epochs(first, 1, 0, 9)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 0)]
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=30)
    began = started(second.said)
    second.rest(2, 1)
    epochs(second, 2, 2, 3)
    running(world, "c", retained=30)
    del world.log[began.claim]
    chosen = ev.Restore("s3://b/s/run-00000002/chk-2", CheckpointId(2, 2))
    assert "DISCARD" in refusal(Driver(world).start("d", restore=chosen)).message
    again = started(Driver(world).start("e", restore=replace(chosen, discard=True)))
    assert (again.origin, again.epoch) == (CheckpointId(2, 2), 10)


def test_a_lost_plan_that_was_adopted_is_no_dead_end() -> None:
    world = World()
    first = running(world, retained=30)
    epochs(first, 1, 0, 9)
    for epoch in range(5, 10):
        world.damaged[CheckpointId(1, epoch)] = "broken"
    second = running(world, "b", retained=30)
    assert started(second.said).origin == CheckpointId(1, 4)
    second.rest(2, 5)
    del world.log[9]
    assert "log entry 9 is missing" in refusal(Driver(world).start("c")).message
    chosen = ev.Restore("s3://b/s/run-00000002/chk-5", CheckpointId(2, 5), discard=True)
    again = started(Driver(world).start("d", restore=chosen))
    assert (again.origin, again.epoch) == (CheckpointId(2, 5), 10)


def test_a_restore_after_the_end_that_was_cut_short_is_done_again() -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    source = world.checkpoints[CheckpointId(1, 2)]
    world.sources[SAVEPOINT] = source
    first.push(ev.StopRequested(failed=False, delete=True))
    world.objects |= source.objects
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore(SAVEPOINT))
    assert isinstance(tail_of(world), Claim), "the claim is stored, the copy is not"
    again = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (again.epoch, again.rerun) == (3, True)


# --- who slept


def test_an_append_after_a_night_is_looked_past_and_others_are_not() -> None:
    driver = running(World())
    seen = looks(driver)
    epochs(driver, 1, 0, 3)
    assert seen == []
    epochs(driver, 1, 4, 4, DAY_MS // 2 + 1)
    assert len(seen) == 1
    epochs(driver, 1, 5, 6)
    assert len(seen) == 1


def others_go_on(world: World) -> None:
    """Two runs, one after the other: the second one leaves nothing of what the first one has appended."""
    for run in (2, 3):
        other = running(world, f"r{run}")
        first = started(other.said).epoch
        epochs(other, run, first, first + 40)


def in_a_hole() -> tuple[World, Driver, do.PutEntry]:
    """A run sleeps before it appends, and others use its number and leave it."""
    world = World()
    sleeper = running(world)
    epochs(sleeper, 1, 0, 2)
    sleeper.hold = lambda i: isinstance(i, do.PutEntry)
    sleeper.trigger(3)
    (put,) = sleeper.held
    assert isinstance(put, do.PutEntry)
    others_go_on(world)
    assert put.number not in world.log
    return world, sleeper, put


def test_an_append_in_a_hole_fences_the_run_before_its_epoch_runs() -> None:
    world, sleeper, put = in_a_hole()
    kept = set(world.checkpoints)
    sleeper.hold = lambda _: False
    said = sleeper.release()
    assert put.number in world.log, "it was stored"
    assert not any(isinstance(i, do.Triggered) for i in said)
    (refused,) = (i for i in said if isinstance(i, do.Refused))
    assert refused.kind is ErrorKind.FENCED
    assert set(world.checkpoints) == kept
    assert started(Driver(world).start("after")).origin == max(kept), "what stands in the hole is nothing to anybody"


def test_a_claim_in_a_hole_is_void() -> None:
    world = World()
    epochs(running(world), 1, 0, 2)
    sleeper = Driver(world)
    sleeper.hold = lambda i: isinstance(i, do.PutEntry)
    sleeper.start("s")
    (put,) = sleeper.held
    assert isinstance(put, do.PutEntry)
    others_go_on(world)
    assert put.number not in world.log
    sleeper.hold = lambda _: False
    refused = refusal(sleeper.release())
    assert refused.kind is ErrorKind.FENCED
    assert put.number in world.log, "it was stored"
    assert started(Driver(world).start("after")).claim == max(world.log)


def test_an_end_in_a_hole_deletes_nothing() -> None:
    world = World()
    sleeper = running(world)
    epochs(sleeper, 1, 0, 2)
    sleeper.hold = lambda i: isinstance(i, do.PutEntry)
    sleeper.push(ev.StopRequested(failed=False, delete=True))
    (put,) = sleeper.held
    assert isinstance(put, do.PutEntry)
    assert isinstance(decode(put.number, put.data), End)
    others_go_on(world)
    assert put.number not in world.log
    kept = set(world.checkpoints)
    sleeper.hold = lambda _: False
    said = sleeper.release()
    assert set(world.checkpoints) == kept
    assert any(isinstance(i, do.Log) and "nothing was deleted" in i.message for i in said)


def test_an_append_whose_answer_was_lost_is_looked_past() -> None:
    driver = running(World())
    epochs(driver, 1, 0, 0)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.trigger(1)
    put = driver.held.pop()
    assert isinstance(put, do.PutEntry)
    driver.answer(put)
    seen = looks(driver)
    driver.push(replace(ev.EntryPut(put.ticket, put.number, driver.world.put(put.number, put.data))))
    assert len(seen) == 1
    driver.rest(1, 1)
    epochs(driver, 1, 2, 2)
    assert len(seen) == 2, "when the one before was stored is not known either"
    epochs(driver, 1, 3, 3)
    assert len(seen) == 2


def test_a_persons_request_right_behind_it_fences_nobody() -> None:
    driver = running(World())
    epochs(driver, 1, 0, 1)
    driver.world.clock_ms += 2 * DAY_MS
    driver.hold = lambda i: isinstance(i, do.LookPast)
    driver.trigger(2)
    assert len(driver.held) == 1
    driver.request("savepoint", claim=1)
    driver.hold = lambda _: False
    assert any(isinstance(i, do.Triggered) for i in driver.release())


# --- who takes over in the middle


def test_a_coordinator_that_takes_over_asks_for_nothing_below_the_floor() -> None:
    driver = running(World())
    epochs(driver, 1, 0, 80)
    two = Driver(driver.world, Settings(retained=2, trim_every=1))
    said = two.push(ev.ResumeRequested(1, 1, 81, sealed=80))
    assert [type(i) for i in said if isinstance(i, (do.Resumed, do.Refused))] == [do.Resumed]
    epochs(two, 1, 81, 140)
    assert len(ids_of(driver.world)) <= 28
    assert ids_of(driver.world)[0] == 1


def test_a_coordinator_that_takes_over_appends_what_its_claim_has_only_adopted() -> None:
    world = World()
    first = running(world, retained=4)
    epochs(first, 1, 0, 3)
    for c in (2, 3):
        world.damaged[CheckpointId(1, c)] = "broken"
    second = running(world, "b", retained=4)
    assert [p.epoch for p in started(second.said).planned] == [3]
    second.rest(2, 2)
    two = Driver(world, Settings(retained=4, trim_every=1))
    two.push(ev.ResumeRequested(2, started(second.said).claim, 3, sealed=2))
    told = two.push(ev.TriggerRequested(3, offsets(3)))
    assert any(isinstance(i, do.Triggered) and i.epoch == 3 for i in told)
    plan = tail_of(world)
    assert isinstance(plan, Plan)
    assert (plan.epoch, plan.claim, plan.rerun) == (3, started(second.said).claim, True)


def test_an_entry_of_version_1_says_no_floor() -> None:
    plan = decode(2, b'{"v":1,"type":"plan","claim":1,"run":1,"epoch":0,"offsets":"v1","files":{},"rerun":false}')
    assert plan.floor == 0
    assert decode(2, encode(replace(plan, floor=2))) == replace(plan, floor=2)
