"""The stop of a run, and the end of a deleted stream, in both modes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_ckpt.model import CheckpointId, Decline, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import End, decode
from spark_ckpt.protocol.reasons import Outcome
from tests.drivers.interval_runs import epoch, pending_two, plain, storing, told
from tests.drivers.interval_runs import running as in_background
from tests.drivers.protocol_driving import Driver, World, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons, running


def test_a_stop_in_the_middle_answers_everybody() -> None:
    driver = running()
    driver.trigger(0)
    driver.seal(1, 0)
    assert kinds(driver.push(ev.StopRequested(False))) == ["seal INTERNAL", "ABORTED", "Stopped"]
    assert kinds(driver.push(ev.StopRequested(False))) == ["Stopped"]
    assert reasons(driver) == ["STOPPED"]


@pytest.mark.parametrize("step", range(5))
def test_a_stream_is_deleted_in_the_middle_of_an_epoch_too(step: int) -> None:
    world = World()
    driver = Driver(world)
    driver.start("a")
    driver.epoch(1, 0)
    driver.hold = lambda i: isinstance(i, do.PutEntry) and step == 0
    driver.trigger(1)
    if step >= 2:
        driver.ack(1, 1, 0)
    if step >= 3:
        driver.hold = lambda i: isinstance(i, do.StoreMetadata)
        driver.seal(1, 1)
    if step == 4:
        driver.ack(1, 1, 1)
    driver.hold = lambda _: False
    driver.push(ev.StopRequested(failed=False, delete=True))
    driver.release()
    assert isinstance(decode(max(world.log), world.log[max(world.log)]), End)
    assert dict(world.checkpoints) == {}
    assert world.objects == set()


def test_a_deleted_stream_is_ended_in_the_log_before_anything_goes() -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.epoch(1, 1)
    driver.hold = lambda i: isinstance(i, do.Delete)
    assert kinds(driver.push(ev.StopRequested(failed=False, delete=True))) == ["Stopped"]
    assert decode(4, world.log[4]) == End(1, 1, used=1, floor=2)
    assert held(driver, do.Delete).checkpoints == (CheckpointId(1, 0), CheckpointId(1, 1))
    failed = running()
    failed.epoch(1, 0)
    failed.push(ev.StopRequested(failed=True, delete=True))
    assert set(failed.world.checkpoints) == {CheckpointId(1, 0)}


@pytest.mark.parametrize("failures", [1, 9])
def test_an_end_whose_answer_was_lost_is_looked_for(failures: int) -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.hold = lambda i: isinstance(i, (do.PutEntry, do.ReadEntry))
    driver.push(ev.StopRequested(failed=False, delete=True))
    end = held(driver, do.PutEntry)
    world.put(end.number, end.data)
    driver.push(ev.EntryPut(end.ticket, end.number, Outcome.UNKNOWN))
    said: list[do.Instruction] = []
    for _ in range(failures):
        if not said:
            said = driver.push(ev.ReadFailed(held(driver, do.ReadEntry).ticket, "no answer"))
        if not said:
            again = held(driver, do.PutEntry)
            said = driver.push(ev.EntryPut(again.ticket, again.number, Outcome.EXISTS))
    driver.hold = lambda _: False
    assert kinds([*said, *driver.release()]) == (["Stopped"] if failures == 1 else ["Log", "Stopped"])
    assert set(world.checkpoints) == (set() if failures == 1 else {CheckpointId(1, 0)})


@pytest.mark.parametrize("outcome", [Outcome.HOPELESS, Outcome.FAILED])
def test_a_put_that_is_answered_after_the_end_could_not_be_noted_changes_nothing(outcome: Outcome) -> None:
    world = World()
    driver = in_background(world)
    put = storing(driver)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.PutEntry))
    said = driver.push(ev.StopRequested(failed=False, delete=True))
    while "Stopped" not in kinds(said):
        end = held(driver, do.PutEntry)
        said = driver.push(ev.EntryPut(end.ticket, end.number, outcome, message="AccessDenied"))
    world.store(put.checkpoint)
    assert driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.STORED, size=10)) == []
    assert world.checkpoints[put.checkpoint.id].objects <= world.objects


def test_a_stop_aborts_what_is_pending_and_deletes_nothing() -> None:
    driver = in_background(max_concurrent=2)
    pending_two(driver)
    driver.ack(1, 0, 0)
    objects = set(driver.world.objects)
    assert kinds(driver.push(ev.StopRequested(False))) == ["ABORTED", "ABORTED", "Stopped"]
    assert reasons(driver) == ["STOPPED", "STOPPED"]
    assert driver.world.objects == objects


@pytest.mark.parametrize("end_first", [True, False])
@pytest.mark.parametrize("outcome", [Outcome.STORED, Outcome.UNKNOWN])
def test_a_stream_is_deleted_once_every_put_is_answered(end_first: bool, outcome: Outcome) -> None:
    """Found on a slow machine: `_metadata` landed after its deletion."""
    world = World()
    driver = in_background(world, max_concurrent=2)
    pending_two(driver)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.PutEntry))
    for p in range(2):
        driver.ack(1, 0, p)
    put = held(driver, do.StoreMetadata)
    assert "Stopped" not in kinds(driver.push(ev.StopRequested(failed=False, delete=True)))
    end = held(driver, do.PutEntry)
    world.store(put.checkpoint)
    answers: list[ev.Event] = [
        ev.EntryPut(end.ticket, end.number, world.put(end.number, end.data)),
        ev.MetadataPut(put.ticket, put.checkpoint.id, outcome),
    ]
    first, second = answers if end_first else reversed(answers)
    assert driver.push(first) == []
    assert put.checkpoint.id in world.checkpoints, "nothing goes before it is known that nothing more comes"
    assert kinds(driver.push(second)) == ["Stopped"]
    assert dict(world.checkpoints) == {}
    assert world.objects == set()


def test_a_checkpoint_that_landed_after_it_had_been_dropped_goes_with_its_stream() -> None:
    world = World()
    driver = in_background(world, tolerable_failures=5)
    put = storing(driver)
    driver.hold = lambda _: False
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    plain(driver, 1)
    epoch(driver, 2)
    epoch(driver, 3)
    world.store(put.checkpoint)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.STORED))
    assert set(world.checkpoints) == {CheckpointId(1, 0), CheckpointId(1, 2)}
    assert kinds(driver.push(ev.StopRequested(failed=False, delete=True))) == ["Stopped"]
    assert dict(world.checkpoints) == {}
    assert world.objects == set()


@pytest.mark.parametrize("background", [False, True])
def test_a_checkpoint_of_which_nobody_knows_whether_it_was_stored_goes_with_its_stream(background: bool) -> None:
    world = World()
    driver = in_background(world) if background else running(world)
    if background:
        put = storing(driver)
    else:
        driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.ReadMetadata))
        driver.epoch(1, 0)
        put = held(driver, do.StoreMetadata)
    world.store(put.checkpoint)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN))
    assert held(driver, do.ReadMetadata).id == put.checkpoint.id
    assert kinds(driver.push(ev.StopRequested(failed=False, delete=True)))[-1] == "Stopped"
    assert dict(world.checkpoints) == {}
    assert world.objects == set()


def failed() -> Driver:
    driver = running()
    driver.epoch(1, 0)
    driver.trigger(1)
    assert "Failed" in kinds(
        driver.push(ev.DeclineReceived(Decline(1, 1, StoreId(0, 0, "default"), uid_of(1, 1, 0), "1", "disk full"))) + driver.seal(1, 1)
    )
    return driver


def fenced() -> Driver:
    driver = running()
    driver.epoch(1, 0)
    Driver(driver.world).start("b")
    assert "Failed" in kinds(driver.trigger(1))
    return driver


def damaged() -> Driver:
    driver = running()
    driver.epoch(1, 0)
    driver.push(ev.DamageReported(None, CheckpointId(1, 0), "checksum"))
    return driver


@pytest.mark.parametrize(
    ("over", "why"), [(failed, "the query failed"), (damaged, "the query failed"), (fenced, "another run has claimed the stream")]
)
def test_a_stop_that_deletes_nothing_says_so(over: Callable[[], Driver], why: str) -> None:
    driver = over()
    said = driver.push(ev.StopRequested(failed=False, delete=True))
    assert kinds(said) == ["Log", "Stopped"]
    assert why in told(said, do.Log).message
    assert CheckpointId(1, 0) in driver.world.checkpoints
    assert kinds(over().push(ev.StopRequested(failed=True))) == ["Stopped"]


def test_a_stop_that_waits_until_damage_is_noted_says_what_it_does_not_delete() -> None:
    driver = running()
    driver.epoch(1, 0)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.push(ev.DamageReported(None, CheckpointId(1, 0), "checksum"))
    assert driver.push(ev.StopRequested(failed=False, delete=True)) == []
    said = driver.release()
    assert kinds(said) == ["Log", "Stopped"]
    assert "nothing was deleted (spark.ckpt.onStop=DELETE): the query failed" in told(said, do.Log).message
