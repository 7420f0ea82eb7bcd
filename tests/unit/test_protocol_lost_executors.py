"""Executors that are lost: when their snapshots are looked for, and when these are known to be gone."""

from __future__ import annotations

import pytest

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from tests.drivers import interval_runs, protocol_runs
from tests.drivers.interval_runs import due, plain
from tests.drivers.protocol_driving import Driver, ack, commit, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons


def sealed_without_a_snapshot() -> Driver:
    """Each epoch is a checkpoint: the second snapshot of epoch 0 is being uploaded."""
    driver = protocol_runs.running()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    return driver


def lost_and_reported(driver: Driver, executor: str) -> list[Instruction]:
    """What executor 1, which lives, has reported before counts no more: it says it again."""
    said = driver.push(ev.ExecutorsLost(frozenset({executor})))
    return said + driver.push(ev.HoldingReceived("1", frozenset([uid_of(1, 0, 1)])))


@pytest.mark.parametrize("finishes", [False, True])
def test_an_executor_that_was_lost_before_a_late_checkpoint_begins_is_missed(finishes: bool) -> None:
    """(1) Epoch 0 is sealed, no checkpoint; (2) an executor is lost, with its snapshot; (3) the epoch becomes a checkpoint."""
    driver = interval_runs.running()
    driver.trigger(0)
    driver.seal(1, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    assert "Late" in kinds(driver.push(ev.FinishRequested()) if finishes else due(driver))
    driver.ack(1, 0, 0)
    said = kinds(driver.fire(ev.Timer.GRACE))
    assert reasons(driver) == ["LOST"]
    assert ("finish LOST" in said) == finishes
    assert "Failed" not in said


def test_an_executor_that_was_lost_while_the_epoch_ran_is_missed_by_its_late_checkpoint() -> None:
    driver = interval_runs.running()
    driver.trigger(0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.seal(1, 0)
    due(driver)
    driver.fire(ev.Timer.GRACE)
    assert reasons(driver) == ["LOST"]


def test_a_snapshot_of_an_older_epoch_is_missed_if_its_executor_was_lost_before_this_one() -> None:
    """Partition 1 takes no part in epoch 1: its snapshot is of epoch 0, and lay in the spool of the executor that was lost then."""
    driver = interval_runs.running()
    plain(driver, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.trigger(1)
    driver.push(ev.SealRequested(1, commit([uid_of(1, 1, 0), uid_of(1, 0, 1)])))
    driver.ack(1, 1, 0)
    driver.fire(ev.Timer.GRACE)
    assert reasons(driver) == ["LOST"]


def test_an_executor_that_was_lost_before_an_epoch_has_nothing_of_it() -> None:
    driver = interval_runs.running()
    plain(driver, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.trigger(1)
    driver.seal(1, 1)
    assert ev.Timer.GRACE not in driver.timers


def test_each_loss_gives_the_live_executors_their_whole_grace() -> None:
    """The second loss comes a moment before the grace of the first one is over; what they had said since that counts no more."""
    driver = sealed_without_a_snapshot()
    lost_and_reported(driver, "2")
    first = driver.timers[ev.Timer.GRACE]
    driver.push(ev.ExecutorsLost(frozenset({"3"})))
    assert driver.push(ev.TimerFired(first, ev.Timer.GRACE)) == []
    driver.push(ev.HoldingReceived("1", frozenset([uid_of(1, 0, 1)])))
    assert driver.fire(ev.Timer.GRACE) == []
    assert kinds(driver.ack(1, 0, 1))[0] == "Sealed"


@pytest.mark.parametrize("finds", [True, False])
def test_what_was_looked_for_before_another_loss_decides_nothing(finds: bool) -> None:
    driver = sealed_without_a_snapshot()
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    lost_and_reported(driver, "2")
    driver.fire(ev.Timer.GRACE)
    left = held(driver, do.ReadLeftAcks)
    driver.push(ev.ExecutorsLost(frozenset({"3"})))
    found = (ack(1, 0, 1),) if finds else ()
    assert kinds(driver.push(ev.LeftAcksRead(left.ticket, found)))[:1] == (["Sealed"] if finds else [])
    if not finds:
        driver.fire(ev.Timer.GRACE)
        left = held(driver, do.ReadLeftAcks)
        assert kinds(driver.push(ev.LeftAcksRead(left.ticket, ()))) == ["ABORTED", "seal LOST"]
