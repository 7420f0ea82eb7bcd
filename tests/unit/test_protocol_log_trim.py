"""Old entries of the log go: which, in what order, and what a start and a coordinator that takes over find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Questions, Tickets
from spark_ckpt.protocol.retention.log_trim import DAY_MS, LogTrim
from spark_ckpt.protocol.retention.planned_files import PlannedFiles
from spark_ckpt.protocol.settings import Settings
from tests.drivers.long_logs import HOUR_MS, entry_of, epochs, ids_of, running, tail_of
from tests.drivers.protocol_driving import Driver, World, offsets
from tests.drivers.protocol_starts import refusal, started

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


# --- a storage whose clock was wrong


@pytest.mark.parametrize("ahead", [1, 30])
def test_entries_dated_in_the_future_go_with_those_behind_them(ahead: int) -> None:
    """The clock of the storage jumps by a year for a while, and is set back. Else nothing would go for a year."""
    driver = running(World())
    epochs(driver, 1, 0, 9)
    driver.world.clock_ms += 365 * DAY_MS
    epochs(driver, 1, 10, 9 + ahead, HOUR_MS // 60)
    driver.world.clock_ms -= 365 * DAY_MS
    epochs(driver, 1, 10 + ahead, 110 + ahead)
    kept = ids_of(driver.world)
    assert kept[0] == 1
    assert kept[1:] == list(range(kept[1], kept[-1] + 1))
    assert len(kept) <= 24 + 4


def test_more_entries_dated_in_the_future_than_one_list_shows_go_too() -> None:
    planned, questions = PlannedFiles(), Questions(Tickets())
    trim = LogTrim(1, planned, DAY_MS, 1, questions, list)
    now = 10 * DAY_MS
    dates = {**dict.fromkeys(range(2, 300), now + 365 * DAY_MS), **dict.fromkeys(range(300, 340), 0), 340: now, 341: 0}
    said, deleted = trim.begin(5000, 4000, now), list[int]()
    while said:
        (asked,) = said
        if isinstance(asked, do.ListOldEntries):
            found = tuple((n, date) for n, date in dates.items() if n > asked.after)
            said = questions.answer(ev.OldEntriesListed(asked.ticket, 1, found[:100], more=len(found) > 100))
        elif isinstance(asked, do.ReadPlans):
            said = questions.answer(ev.PlansRead(asked.ticket, dict.fromkeys(asked.numbers, frozenset())))
        else:
            assert isinstance(asked, do.DeleteEntries)
            deleted += asked.numbers
            said = questions.answer(ev.EntriesDeleted(asked.ticket))
    assert deleted == list(range(2, 340))


def test_an_entry_that_was_stored_after_the_runs_own_stays() -> None:
    """By less than a month: that may be its date, or will be when somebody wakes up."""
    trim = LogTrim(1, PlannedFiles(), DAY_MS, 1, Questions(Tickets()), list)
    trim.begin(5000, 4000, 10 * DAY_MS)
    assert trim.old(((2, 0), (3, 38 * DAY_MS), (4, 0))) == [2]
