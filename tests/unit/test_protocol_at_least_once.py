"""At-least-once: epochs do not wait for their plans, which are stored one after the other behind them."""

from __future__ import annotations

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Claim, Plan, decode, encode
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due, epoch, plain, run_of, told
from tests.drivers.protocol_driving import JOB, Driver, World, commit, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons

AHEAD = 2


def running(world: World | None = None, retained: int = 3) -> Driver:
    """Epoch 0 is a checkpoint, epoch 1 is planned behind it. The storage answers no put of a plan until it is told to."""
    driver = Driver(world or World(), Settings(retained=retained, interval_ms=10_000, ahead=AHEAD))
    driver.start("a")
    due(driver)
    epoch(driver, 0)
    epoch(driver, 1)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    return driver


def stored(driver: Driver) -> list[do.Instruction]:
    """The plan that is under way arrives."""
    put = held(driver, do.PutEntry)
    outcome = driver.world.put(put.number, put.data)
    return driver.push(ev.EntryPut(put.ticket, put.number, outcome))


def plans(world: World) -> list[int]:
    entries = [decode(number, data) for number, data in sorted(world.log.items())]
    return [entry.epoch for entry in entries if isinstance(entry, Plan)]


def test_the_claim_tells_how_many_epochs_may_run_without_a_plan() -> None:
    driver = running()
    claim = decode(1, driver.world.log[1])
    assert isinstance(claim, Claim)
    assert claim.ahead == AHEAD
    every = Driver(World(), Settings(ahead=AHEAD))
    every.start("a")
    claim = decode(1, every.world.log[1])
    assert isinstance(claim, Claim)
    assert claim.ahead == 0


def test_plans_stand_in_a_line_of_which_one_is_under_way_and_the_epoch_past_its_end_waits() -> None:
    driver = running()
    for number in range(2, AHEAD + 2):
        assert kinds(driver.trigger(number)) == ["Triggered"]
        assert kinds(driver.seal(1, number)) == ["Sealed"]
    assert len(driver.held) == 1
    assert driver.trigger(AHEAD + 2) == []
    assert kinds(stored(driver)) == ["Triggered"]
    assert len(driver.held) == 1
    stored(driver)
    stored(driver)
    assert (driver.held, plans(driver.world)) == ([], [0, 1, 2, 3, 4])


def test_a_trigger_waits_no_longer_than_the_time_out() -> None:
    driver = running()
    for number in range(2, AHEAD + 2):
        driver.trigger(number)
        driver.seal(1, number)
    driver.trigger(AHEAD + 2)
    said = driver.fire(ev.Timer.PLAN)
    assert kinds(said) == ["trigger TIMEOUT", "Failed"]
    assert "the plan of epoch 2" in told(said, do.Failed).message


def test_no_checkpoint_is_stored_before_its_plan() -> None:
    driver = running()
    driver.trigger(2)
    due(driver)
    driver.seal(1, 2)
    assert told(driver.trigger(3), do.Triggered).checkpoint
    for p in range(2):
        driver.ack(1, 3, p)
    assert kinds(driver.seal(1, 3)) == ["Sealed"]
    assert stored(driver) == []
    assert kinds(stored(driver)) == ["COMPLETED"]
    assert driver.world.checkpoints[CheckpointId(1, 3)].log == 5


def test_a_late_checkpoint_waits_for_the_plan_of_its_epoch_too() -> None:
    driver = running()
    driver.trigger(2)
    driver.seal(1, 2)
    due(driver)
    for p in range(2):
        assert driver.ack(1, 2, p) == []
    assert kinds(stored(driver)) == ["Late", "COMPLETED"]
    expiring = running()
    expiring.trigger(2)
    expiring.seal(1, 2)
    due(expiring)
    for p in range(2):
        expiring.ack(1, 2, p)
    said = expiring.fire(ev.Timer.EXPIRY)
    assert "the plan of its epoch is not stored yet" in told(said, do.Failed).message
    assert reasons(expiring) == ["EXPIRED"]


def test_a_plan_whose_answer_is_lost_is_put_again_before_the_next() -> None:
    driver = running()
    driver.trigger(2)
    driver.seal(1, 2)
    driver.trigger(3)
    put = held(driver, do.PutEntry)
    driver.push(ev.EntryPut(put.ticket, put.number, Outcome.UNKNOWN, "lost"))
    again = held(driver, do.PutEntry)
    assert (again.number, again.attempt, again.data) == (put.number, 1, put.data)
    driver.held.append(again)
    stored(driver)
    stored(driver)
    assert plans(driver.world) == [0, 1, 2, 3]


def test_a_request_in_the_line_is_taken_up_between_two_plans() -> None:
    driver = running()
    driver.trigger(2)
    driver.seal(1, 2)
    number = driver.request(SAVEPOINT)
    assert kinds(stored(driver)) == ["TRIGGERED", "Late"]
    driver.hold = lambda _: False
    for i in list(driver.held):
        driver.held.remove(i)
        assert isinstance(i, do.PutEntry)
        driver.push(ev.EntryPut(i.ticket, i.number, driver.world.put(i.number, i.data)))
    for p in range(2):
        driver.ack(1, 2, p)
    assert driver.world.answers[number] == f"memory://savepoints/{number}"
    assert plans(driver.world) == [0, 1, 2]


def test_a_successor_fences_a_run_whose_epochs_are_ahead_of_its_plans() -> None:
    world = World()
    driver = running(world)
    driver.trigger(2)
    world.log[4] = encode(Claim(4, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    assert kinds(stored(driver)) == ["Failed"]
    assert kinds(driver.seal(1, 2)) == ["seal FENCED"]
    assert len(world.log) == 4


def test_a_deletion_waits_for_a_plan_that_was_put_after_the_completion_was_known() -> None:
    world = World()
    driver = running(world, retained=1)
    driver.hold = lambda _: False
    plain(driver, 2)
    due(driver)
    driver.trigger(3)
    driver.seal(1, 3)
    driver.hold = lambda i: isinstance(i, (do.PutEntry, do.Delete))
    driver.trigger(4)
    for p in range(2):
        driver.ack(1, 3, p)
    due(driver)
    driver.seal(1, 4)
    driver.trigger(5)
    stored(driver)
    assert [i for i in driver.held if isinstance(i, do.Delete)] == []
    assert run_of(driver).base == CheckpointId(1, 3)
    for p in range(2):
        driver.ack(1, 5, p)
    driver.seal(1, 5)
    stored(driver)
    assert [i for i in driver.held if isinstance(i, do.Delete)] == [], "epoch 4 may have loaded from checkpoint 0"
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(6)
    assert CheckpointId(1, 0) in held(driver, do.Delete).checkpoints


def test_without_a_checkpoint_plans_are_waited_for_and_run_again_as_planned() -> None:
    world = World()
    driver = Driver(world, Settings(interval_ms=10_000, ahead=AHEAD))
    driver.start("a")
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    for number in range(2):
        assert driver.trigger(number) == []
        assert kinds(stored(driver)) == ["Triggered"]
        driver.seal(1, number)
    again = Driver(world, Settings(interval_ms=10_000, ahead=AHEAD))
    started = told(again.start("b"), do.Started)
    assert (started.epoch, started.rerun, [p.epoch for p in started.planned]) == (0, True, [1])
    assert kinds(again.seal(2, 0)) == ["Sealed"]
    assert kinds(again.trigger(1)) == ["Triggered"]


def test_what_followed_the_checkpoint_runs_anew_past_every_number_that_may_have_been_used() -> None:
    world = World()
    driver = running(world)
    for number in (2, 3):
        driver.trigger(number)
        driver.seal(1, number)
    stored(driver)  # the plan of epoch 2; that of epoch 3 is lost with the driver
    again = Driver(world, Settings(interval_ms=10_000, ahead=AHEAD))
    started = told(again.start("b"), do.Started)
    first = 2 + AHEAD + 1
    assert (started.epoch, started.rerun, started.planned, started.version) == (first, False, (), 1)
    assert started.origin == CheckpointId(1, 0)
    files = {path: started.files[path] for path in started.files if path.startswith(("offsets/", "commits/"))}
    before = world.checkpoints[CheckpointId(1, 0)].files
    assert files == {f"{kind}/{first - back}": before[f"{kind}/0"] for kind in ("offsets", "commits") for back in (1, 2)}
    assert told(again.trigger(first), do.Triggered).version == 1
    assert told(again.seal(2, first), do.Sealed).lag.epochs == 1
    assert told(again.trigger(first + 1), do.Triggered).version is None


def test_the_next_start_goes_on_from_the_new_numbers_or_past_them() -> None:
    world = World()
    driver = running(world)
    driver.trigger(2)
    second = Driver(world, Settings(interval_ms=10_000))
    first = told(second.start("b"), do.Started).epoch
    assert first == 1 + AHEAD + 1
    second.trigger(first)
    second.seal(2, first)
    second.trigger(first + 1)
    exact = Driver(world, Settings(interval_ms=10_000))
    started = told(exact.start("c"), do.Started)
    assert (started.epoch, started.rerun, started.version) == (first, True, 1)
    assert [p.epoch for p in started.planned] == [first + 1]
    exact.seal(3, first)
    due(exact)
    for p in range(2):
        exact.ack(3, first, p)
    after = told(Driver(world, Settings(interval_ms=10_000)).start("d"), do.Started)
    assert (after.origin, after.epoch, after.rerun, after.version) == (CheckpointId(3, first), first + 1, True, None)


def test_a_checkpoint_before_new_numbers_is_not_gone_back_to_unasked() -> None:
    world = World()
    driver = running(world)
    driver.hold = lambda _: False
    due(driver)
    for p in range(2):
        driver.ack(1, 1, p)
    driver.trigger(2)
    again = Driver(world, Settings(interval_ms=10_000))
    assert told(again.start("b"), do.Started).origin == CheckpointId(1, 1)
    world.damaged[CheckpointId(1, 1)] = "cut short"
    refused = told(Driver(world, Settings(interval_ms=10_000)).start("c"), do.Refused)
    assert "restore.plans=DISCARD" in refused.message
    anew = told(Driver(world, Settings(interval_ms=10_000, ahead=AHEAD)).start("d"), do.Started)
    assert (anew.origin, anew.planned, anew.version) == (CheckpointId(1, 0), (), 1)
    assert anew.epoch > 1 + AHEAD


def test_new_numbers_that_a_start_carries_on_void_nothing() -> None:
    """Found by the simulation: the successor died between its claim and the plans that it was to run again."""
    world = World()
    running(world).trigger(2)
    second = Driver(world, Settings(interval_ms=10_000))
    first = told(second.start("b"), do.Started).epoch
    second.trigger(first)
    cut_short = Driver(world, Settings(interval_ms=10_000))
    cut_short.hold = lambda i: isinstance(i, do.PutEntry) and isinstance(decode(i.number, i.data), Plan)
    cut_short.start("c")
    claim = decode(max(world.log), world.log[max(world.log)])
    assert isinstance(claim, Claim)
    assert claim.first == first
    started = told(Driver(world, Settings(interval_ms=10_000)).start("d"), do.Started)
    assert (started.epoch, started.rerun, started.version) == (first, True, 1)


def test_nothing_runs_ahead_before_a_successor_is_sure_to_find_the_first_checkpoint() -> None:
    """Found by the simulation: (1) a successor lists; (2) the first checkpoint completes; (3) the successor claims without it."""
    world = World()
    driver = Driver(world, Settings(interval_ms=10_000, ahead=AHEAD))
    driver.start("a")
    due(driver)
    driver.trigger(0)
    for p in range(2):
        driver.ack(1, 0, p)
    late = Driver(world, Settings(interval_ms=10_000, ahead=AHEAD))
    late.hold = lambda i: isinstance(i, do.PutEntry)
    late.start("b")
    driver.seal(1, 0)
    assert run_of(driver).base == CheckpointId(1, 0)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    assert driver.trigger(1) == []
    late.hold = lambda _: False
    late.release()
    assert kinds(stored(driver)) == ["trigger FENCED", "Failed"]


def test_an_epoch_that_ran_ahead_of_a_plan_that_died_with_the_coordinator_is_lost() -> None:
    """Found by the simulation: the new coordinator knows nothing of it."""
    driver = running()
    driver.trigger(2)
    other = Driver(driver.world, Settings(interval_ms=10_000, ahead=AHEAD))
    files = {f"commits/{n}": commit(uid_of(1, n, p) for p in range(2)) for n in (0, 1)}
    other.push(ev.ResumeRequested(1, 1, 2, sealed=1, files=files))
    assert kinds(other.seal(1, 2)) == ["seal LOST"]


UNSTORABLE = {"../elsewhere": b"x"}
"""A file that no plan can name."""


@pytest.mark.parametrize("outcome", [Outcome.STORED, Outcome.UNKNOWN])
def test_a_plan_that_cannot_be_stored_ends_the_run_when_it_is_its_turn(outcome: Outcome) -> None:
    """UNKNOWN: the plan before it is read back, and looked past."""
    driver = running()
    driver.trigger(2)
    driver.seal(1, 2)
    put = held(driver, do.PutEntry)
    driver.trigger(3, UNSTORABLE)
    driver.hold = lambda _: False
    driver.world.put(put.number, put.data)
    said = driver.push(ev.EntryPut(put.ticket, put.number, outcome))
    assert kinds(said) == ["Failed"]
    assert "the plan of epoch 3 could not be stored" in told(said, do.Failed).message


def test_a_run_that_its_own_append_has_ended_looks_at_no_old_entries() -> None:
    driver = Driver(World(), Settings(retained=1, interval_ms=10_000, ahead=AHEAD, trim_every=1))
    driver.start("a")
    due(driver)
    epoch(driver, 0)
    epoch(driver, 1)
    due(driver)
    epoch(driver, 2)
    driver.hold = lambda i: isinstance(i, (do.PutEntry, do.ListOldEntries))
    driver.trigger(3)
    driver.rest(1, 3)
    put = held(driver, do.PutEntry)
    driver.trigger(4, UNSTORABLE)
    answer = driver.answer(put)
    assert answer is not None
    assert kinds(driver.push(answer))[-1] == "Failed"
    assert driver.held == []


def test_a_new_coordinator_answers_for_a_copy_of_an_epoch_that_was_far_ahead_of_its_plan() -> None:
    """(1) 60 plans are in line; (2) a request takes the first one's number; (3) the newest epoch becomes the checkpoint that is copied for
    it, 60 entries behind; (4) the coordinator is replaced, and older checkpoints are gone."""
    world, settings = World(), Settings(retained=1, interval_ms=10_000, ahead=64)
    one = Driver(world, settings)
    one.start("a")
    due(one)
    epoch(one, 0)
    epoch(one, 1)
    one.hold = lambda i: isinstance(i, do.PutEntry)
    newest = 61
    for number in range(2, newest + 1):
        one.trigger(number)
        one.seal(1, number)
    asked = one.request(SAVEPOINT)
    one.hold = lambda i: isinstance(i, do.StoreSavepoint)
    one.release()
    for partition in range(2):
        one.ack(1, newest, partition)
    for number in (newest + 1, newest + 2):
        one.trigger(number)
        one.seal(1, number)
    assert held(one, do.StoreSavepoint)
    other = Driver(world, settings)
    other.push(ev.ResumeRequested(1, 1, newest + 2, sealed=newest + 2))
    assert world.answers[asked].startswith("error: the coordinator was replaced")
