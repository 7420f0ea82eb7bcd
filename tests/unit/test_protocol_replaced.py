"""What a coordinator that takes the place of a dead one has to know of files and numbers that only the driver remembers."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import LIMITS, End, decode
from spark_ckpt.protocol.run_phases import RunPhase
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due, epoch, run_of
from tests.drivers.protocol_driving import Driver, World, ack, commit, offsets, uid_of

SCHEMAS = {"state/0/_metadata/metadata": b"meta", "state/0/0/_metadata/schema": b"schema"}
AHEAD = Settings(interval_ms=1000, ahead=64)


def ids(run: int, epoch: int) -> bytes:
    return commit([uid_of(run, epoch, partition) for partition in range(2)])


def test_an_epoch_that_runs_again_in_place_keeps_what_its_first_attempt_has_written() -> None:
    """(1) The seal of epoch 0 is answered with LOST; (2) the coordinator dies; (3) Spark writes no schema that is there already."""
    one = Driver(World())
    one.start("a")
    one.trigger(0)
    one.ack(1, 0, 0)
    one.push(ev.ExecutorsLost(frozenset({"2"})))
    one.push(ev.SealRequested(0, ids(1, 0), SCHEMAS))
    lost = [i.kind for i in one.fire(ev.Timer.GRACE) if isinstance(i, do.Refused)]
    assert lost == [ErrorKind.LOST]
    other = Driver(one.world)
    other.push(ev.ResumeRequested(1, 1, 0, sealed=-1, files=dict(SCHEMAS)))
    for partition in range(2):
        other.ack(1, 0, partition, uid=f"again-{partition}")
    other.push(ev.SealRequested(0, commit(["again-0", "again-1"])))
    assert set(SCHEMAS) <= set(other.world.checkpoints[CheckpointId(1, 0)].files)


def ahead_of_its_plan() -> tuple[Driver, do.Started, int, ev.ResumeRequested]:
    """At-least-once: the driver runs an epoch whose plan died with the coordinator; what the next coordinator is told."""
    first = Driver(World(), AHEAD)
    first.start("a")
    first.fire(ev.Timer.INTERVAL)
    first.trigger(0)
    for partition in range(2):
        first.ack(1, 0, partition)
    first.push(ev.SealRequested(0, ids(1, 0), SCHEMAS))
    second = Driver(first.world, AHEAD)
    second.start("b")
    started = next(i for i in second.said if isinstance(i, do.Started))
    epoch = started.epoch
    second.trigger(epoch)
    for partition in range(2):
        second.ack(2, epoch, partition)
    second.push(ev.SealRequested(epoch, ids(2, epoch), {"state/0/0/_metadata/schema-2": b"evolved"}))
    second.hold = lambda i: isinstance(i, do.PutEntry)
    assert any(isinstance(i, do.Triggered) for i in second.trigger(epoch + 1))
    known = ev.ResumeRequested(2, started.claim, epoch + 1, sealed=epoch, files={f"commits/{epoch}": ids(2, epoch)})
    return second, started, epoch, known


def test_what_a_query_goes_back_to_is_not_made_without_files_that_are_lost() -> None:
    second, _, epoch, known = ahead_of_its_plan()
    third = Driver(second.world, AHEAD)
    said = third.push(known)
    for partition in range(2):
        said += third.ack(2, epoch, partition)
    assert not any(isinstance(i, do.Late) for i in said)
    assert max(third.world.checkpoints) == CheckpointId(1, 0)
    refused = [i.kind for i in third.push(ev.SealRequested(epoch + 1, ids(2, epoch + 1))) if isinstance(i, do.Refused)]
    assert refused == [ErrorKind.LOST]


def test_a_deleted_stream_has_used_the_number_whose_plan_was_lost() -> None:
    second, _, epoch, known = ahead_of_its_plan()
    third = Driver(copy.deepcopy(second.world), AHEAD)
    third.push(known)
    third.push(ev.StopRequested(failed=False, delete=True))
    tail = max(third.world.log)
    end = decode(tail, third.world.log[tail])
    assert isinstance(end, End)
    assert end.used == epoch + 1
    fourth = Driver(third.world, AHEAD)
    fourth.start("c", sink_seen=epoch + 1)
    assert [i.epoch for i in fourth.said if isinstance(i, do.Started)] == [epoch + 2]


def test_a_run_whose_plan_no_reader_would_take_does_not_go_on() -> None:
    for settings in (Settings(interval_ms=1000), AHEAD):
        driver = Driver(World(), settings)
        driver.start("a")
        said = driver.trigger(0, {f"sources/0/{n}": b"" for n in range(LIMITS.items + 1)})
        assert not any(isinstance(i, do.Triggered) for i in said)
        assert driver.stream.run is not None
        assert driver.stream.run.phase is RunPhase.FAILED
        assert not any(isinstance(i, do.SetTimer) for i in said)


def ack_what_was_loaded(driver: Driver, epoch: int) -> None:
    """Of a snapshot that names an object of checkpoint 0 too: what its task had loaded."""
    made, loaded = ack(1, epoch, 0), ack(1, 0, 0)
    driver.world.objects.update(handle.object for handle in made.snapshot.handles)
    handles = (*loaded.snapshot.handles, *made.snapshot.handles)
    driver.push(ev.AcksReceived((replace(made, snapshot=replace(made.snapshot, handles=handles)),)))


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_what_finished_epochs_loaded_from_stays_whoever_dies(deaths: int) -> None:
    """(1) Checkpoint 1 is in the making; (2) epoch 2 loads from checkpoint 0, and is sealed; (3) checkpoint 1 completes; (4) the
    coordinator dies, and its successor; (5) what epoch 2 had loaded is named by a checkpoint to come, and by checkpoint 0 only."""
    world, settings = World(), Settings(retained=1, interval_ms=10_000, max_concurrent=2)
    driver = Driver(world, settings)
    driver.start("a")
    due(driver)
    epoch(driver, 0)
    due(driver)
    driver.trigger(1)
    driver.seal(1, 1)
    loads = [i.base for i in driver.trigger(2) if isinstance(i, do.Triggered)]
    assert loads == [CheckpointId(1, 0)]
    driver.seal(1, 2)
    for partition in range(2):
        driver.ack(1, 1, partition)
    assert run_of(driver).base == CheckpointId(1, 1)
    commits = {f"commits/{n}": ids(1, n) for n in (1, 2)}
    for death in range(deaths):
        driver = Driver(world, settings)
        driver.push(ev.ResumeRequested(1, 1, 2 + death, (), 2, commits))
        driver.push(ev.TriggerRequested(3, offsets(3)))
    if not deaths:
        due(driver)
        driver.trigger(3)
    driver.seal(1, 3)
    if not run_of(driver).making:
        driver.fire(ev.Timer.IDLE)
    (made,) = run_of(driver).making
    ack_what_was_loaded(driver, made)
    driver.ack(1, made, 1)
    assert run_of(driver).base == CheckpointId(1, made)
    assert world.checkpoints[CheckpointId(1, made)].objects <= world.objects
    for number in (4, 5):
        due(driver)
        epoch(driver, number)
    driver.trigger(6)
    assert set(world.checkpoints) == {CheckpointId(1, 5)}, "and goes then"


def test_of_what_executors_hold_the_newest_report_waits_for_a_resume() -> None:
    """Reports come twice a second, and a storage may be away for hours."""
    one = Driver(World())
    one.start("a")
    one.epoch(1, 0)
    other = Driver(one.world)
    other.hold = lambda i: not isinstance(i, do.Started)
    other.push(ev.ResumeRequested(1, 1, 1, sealed=0, files={}))
    for number in range(1000):
        for executor in ("1", "2"):
            other.push(ev.HoldingReceived(executor, frozenset({f"u{number}"}), number))
        other.push(ev.ExecutorsLost(frozenset({f"lost-{number % 3}"})))
    waiting = [event for event in other.stream._waiting.values() if isinstance(event, ev.HoldingReceived)]
    assert [(event.executor, event.bytes) for event in waiting] == [("1", 999), ("2", 999)]
    assert sum(isinstance(event, ev.ExecutorsLost) for event in other.stream._waiting.values()) == 1000
    other.hold = lambda _: False
    other.release()
    other.epoch(1, 1)
