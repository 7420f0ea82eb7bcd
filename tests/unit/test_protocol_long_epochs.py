"""The interval mode with epochs that run for longer than the interval, or than a checkpoint may take."""

from __future__ import annotations

from spark_ckpt.model import CheckpointId, Decline, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, STOP
from tests.drivers.interval_runs import EVERY, due, epoch, running, told
from tests.drivers.protocol_driving import Driver, World, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons


def long(driver: Driver) -> list[do.Instruction]:
    """The epoch in hand has run for a whole interval."""
    return driver.fire(ev.Timer.LONG)


def bridging(driver: Driver) -> Driver:
    """Epoch 0 has ended, epoch 1 runs for long, and is no checkpoint itself; a checkpoint of epoch 0 is in the making."""
    driver.trigger(0)
    driver.seal(1, 0)
    assert not told(driver.trigger(1), do.Triggered).checkpoint
    assert long(driver) == []
    said = due(driver)
    assert kinds(said) == ["TRIGGERED", "Late"]
    assert told(said, do.Late).epoch == 0
    return driver


def test_the_time_out_of_a_checkpoint_begins_when_its_epoch_has_ended() -> None:
    driver = running()
    due(driver)
    assert told(driver.trigger(0), do.Triggered).checkpoint
    driver.ack(1, 0, 0)
    assert ev.Timer.EXPIRY not in driver.timers, "however long the epoch runs, no time passes"
    driver.seal(1, 0)
    said = driver.fire(ev.Timer.EXPIRY)
    assert kinds(said) == ["ABORTED", "Failed"]
    assert "1 of 2 snapshots" in told(said, do.Failed).message


def test_a_late_checkpoint_is_measured_from_the_trigger_of_its_epoch() -> None:
    driver = running()
    before = driver.now
    driver.trigger(0)
    triggered = driver.now
    driver.now += 500
    driver.seal(1, 0)
    driver.now += 500
    assert kinds(due(driver)) == ["TRIGGERED", "Late"]
    driver.ack(1, 0, 0)
    driver.ack(1, 0, 1)
    assert before < driver.world.checkpoints[CheckpointId(1, 0)].time_ms <= triggered


def test_the_epoch_before_a_long_one_becomes_the_checkpoint_while_that_runs() -> None:
    driver = bridging(running())
    driver.ack(1, 0, 0)
    assert kinds(driver.ack(1, 0, 1)) == ["Late", "COMPLETED"]
    assert set(driver.world.checkpoints) == {CheckpointId(1, 0)}
    assert due(driver) == [], "nothing newer has ended"
    assert kinds(driver.seal(1, 1)) == ["Sealed"]
    assert told(driver.trigger(2), do.Triggered).checkpoint


def test_one_that_is_due_before_the_epoch_is_long_waits_for_the_next_barrier() -> None:
    driver = running()
    driver.trigger(0)
    driver.seal(1, 0)
    driver.trigger(1)
    assert due(driver) == []
    driver.seal(1, 1)
    assert told(driver.trigger(2), do.Triggered).checkpoint


def test_it_comes_beside_the_checkpoint_of_the_long_epoch_but_not_beside_another_that_is_under_way() -> None:
    driver = running()
    driver.trigger(0)
    due(driver)
    driver.seal(1, 0)
    assert told(driver.trigger(1), do.Triggered).checkpoint
    long(driver)
    assert kinds(due(driver)) == ["TRIGGERED", "Late"]
    for p in range(2):
        driver.ack(1, 0, p)
    assert set(driver.world.checkpoints) == {CheckpointId(1, 0)}
    assert kinds(driver.seal(1, 1)) == ["Sealed"]
    driver.trigger(2)
    long(driver)
    assert due(driver) == [], "checkpoint 1 is under way"


def test_the_pause_is_kept() -> None:
    driver = running(min_pause_ms=3_000)
    due(driver)
    epoch(driver, 0)
    driver.trigger(1)
    driver.seal(1, 1)
    driver.trigger(2)
    long(driver)
    assert due(driver) == []
    assert kinds(driver.fire(ev.Timer.PAUSE)) == ["TRIGGERED", "Late"]


def test_it_is_given_up_when_the_long_epoch_ends_and_the_next_one_is_due() -> None:
    driver = bridging(running(min_pause_ms=3_000, max_concurrent=1))
    driver.ack(1, 0, 0)
    assert kinds(driver.seal(1, 1)) == ["Sealed", "Late", "ABORTED"]
    assert reasons(driver) == ["SUBSUMED"]
    assert told(driver.trigger(2), do.Triggered).checkpoint, "what was given up pauses nothing"


def test_its_put_that_is_under_way_when_the_long_epoch_ends_completes_it() -> None:
    driver = bridging(running())
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    for p in range(2):
        driver.ack(1, 0, p)
    assert kinds(driver.seal(1, 1)) == ["Sealed"]
    assert kinds(driver.release()) == ["Late", "COMPLETED"]


def test_it_counts_for_no_failure() -> None:
    """The spools may have given up what it needs."""
    driver = bridging(running(tolerable_failures=0))
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["Late", "ABORTED"]
    assert kinds(due(driver)) == ["TRIGGERED", "Late"]
    gone = Decline(1, 0, StoreId(0, 0, "default"), uid_of(1, 0, 0), "1", "it was not needed any more")
    assert kinds(driver.push(ev.DeclineReceived(gone))) == ["Late", "ABORTED"]
    assert reasons(driver) == ["EXPIRED", "DECLINED"]
    assert kinds(driver.seal(1, 1)) == ["Sealed"]


def test_it_holds_the_drivers_files_as_they_were_when_its_epoch_ended() -> None:
    driver = running()
    driver.trigger(0, {"sources/0/0": b"a"})
    driver.seal(1, 0)
    driver.trigger(1, {"sources/0/1": b"b", "sources/0/0": None})
    long(driver)
    due(driver)
    for p in range(2):
        driver.ack(1, 0, p)
    assert set(driver.world.checkpoints[CheckpointId(1, 0)].files) == {"offsets/0", "commits/0", "sources/0/0"}


def test_a_query_that_is_stopped_in_a_long_epoch_goes_on_before_that_epoch() -> None:
    world = World()
    driver = bridging(running(world))
    for p in range(2):
        driver.ack(1, 0, p)
    assert kinds(driver.push(ev.StopRequested(failed=False))) == ["Stopped"]
    again = Driver(world, EVERY)
    started = told(again.start("b"), do.Started)
    assert (started.origin, started.epoch, started.rerun, started.planned) == (CheckpointId(1, 0), 1, True, ())


def test_a_query_that_is_stopped_before_the_checkpoint_is_there_tells_its_end() -> None:
    driver = bridging(running())
    driver.ack(1, 0, 0)
    assert kinds(driver.push(ev.StopRequested(failed=False))) == ["ABORTED", "Stopped"]
    assert reasons(driver) == ["STOPPED"]


def test_epochs_that_ran_before_their_plan_was_stored_are_bridged_too() -> None:
    driver = bridging(running(ahead=5))
    for p in range(2):
        driver.ack(1, 0, p)
    assert set(driver.world.checkpoints) == {CheckpointId(1, 0)}


def test_a_savepoint_that_is_asked_for_in_a_long_epoch_is_made_of_the_one_before() -> None:
    driver = bridging(running())
    for p in range(2):
        driver.ack(1, 0, p)
    number = driver.request(SAVEPOINT)
    said = driver.fire(ev.Timer.IDLE)
    assert kinds(said) == ["SAVEPOINT"]
    assert driver.world.answers[number].startswith("memory://")
    assert kinds(driver.seal(1, 1)) == ["Sealed"]


def test_one_that_is_not_stored_yet_is_stored_for_it_however_soon_the_long_epoch_ends() -> None:
    driver = running(tolerable_failures=0)
    driver.trigger(0)
    driver.seal(1, 0)
    driver.trigger(1)
    number = driver.request(SAVEPOINT)
    assert kinds(long(driver)) == ["TRIGGERED", "Late"]
    assert kinds(driver.seal(1, 1)) == ["Sealed"]
    driver.ack(1, 0, 0)
    assert "SAVEPOINT" in kinds(driver.ack(1, 0, 1))
    assert number in driver.world.answers


def test_a_request_to_stop_is_heard_in_a_long_epoch_and_met_behind_it() -> None:
    driver = running()
    driver.trigger(0)
    driver.request(STOP)
    assert kinds(long(driver)) == ["Stopping"]
    driver.seal(1, 0)
    assert kinds(driver.push(ev.FinishRequested(stopping=True))) == ["TRIGGERED", "Late"]
    driver.ack(1, 0, 0)
    assert kinds(driver.ack(1, 0, 1))[-1] == "Finished"


def test_a_successor_is_noticed_in_a_long_epoch() -> None:
    world = World()
    driver = running(world)
    driver.trigger(0)
    Driver(world, EVERY).start("b")
    assert kinds(long(driver)) == ["Failed"]


def test_a_look_at_the_log_that_is_answered_after_the_long_epoch_is_not_waited_for() -> None:
    driver = running()
    driver.trigger(0)
    driver.hold = lambda i: isinstance(i, do.ReadEntry)
    long(driver)
    look = held(driver, do.ReadEntry)
    driver.seal(1, 0)
    driver.fire(ev.Timer.IDLE)
    assert driver.push(ev.EntryRead(look.ticket, look.number, None)) == []
    assert set(driver.world.log) == {1, 2}, "nothing is appended twice"
