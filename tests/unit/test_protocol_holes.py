"""Nobody writes unnoticed where old entries were deleted: runs that slept."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import End, decode
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from tests.drivers.long_logs import epochs, looks, running
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import refusal, started

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
