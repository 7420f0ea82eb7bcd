"""What people ask of a running stream, in both modes: savepoints, and a stop with one."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import segment_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, STOP, Plan, decode
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due, epoch, plain, told
from tests.drivers.protocol_driving import Driver, World, ack, commit, offsets, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons

MODES = {"every epoch": Settings(retained=1), "interval": Settings(retained=1, interval_ms=10_000)}


def running(mode: str, world: World | None = None) -> Driver:
    driver = Driver(world or World(), MODES[mode])
    driver.start("a")
    return driver


def plans(world: World) -> list[Plan]:
    entries = (decode(number, data) for number, data in world.log.items())
    return [entry for entry in entries if isinstance(entry, Plan)]


def acks(driver: Driver, number: int, run: int = 1) -> list[do.Instruction]:
    return [i for p in range(2) for i in driver.ack(run, number, p)]


def ran(driver: Driver, number: int) -> list[do.Instruction]:
    """A whole epoch, with acks whether they are wanted or not."""
    said = driver.trigger(number)
    return said + acks(driver, number) + driver.seal(1, number)


@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_of_a_busy_stream_is_that_of_the_next_epoch(mode: str) -> None:
    driver = running(mode)
    ran(driver, 0)
    number = driver.request(SAVEPOINT)
    assert told(driver.trigger(1), do.Triggered).checkpoint
    assert driver.world.answers == {}
    acks(driver, 1)
    driver.seal(1, 1)
    assert driver.world.savepoints[f"memory://savepoints/{number}"].id == CheckpointId(1, 1)
    assert driver.world.answers == {number: f"memory://savepoints/{number}"}


@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_of_an_idle_stream_is_that_of_the_newest_epoch(mode: str) -> None:
    driver = running(mode)
    ran(driver, 0)
    number = driver.request(SAVEPOINT)
    driver.fire(ev.Timer.IDLE)
    assert driver.world.savepoints[f"memory://savepoints/{number}"].id == CheckpointId(1, 0)
    again = driver.request(SAVEPOINT)
    driver.fire(ev.Timer.IDLE)
    assert list(driver.world.answers) == [number, again]
    assert [c.id for c in driver.world.savepoints.values()] == [CheckpointId(1, 0)] * 2
    assert set(driver.world.checkpoints) == {CheckpointId(1, 0)}


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_that_has_run_nothing_makes_its_savepoint_of_the_first_epoch(mode: str) -> None:
    driver = running(mode)
    number = driver.request(SAVEPOINT)
    assert driver.fire(ev.Timer.IDLE) == []
    ran(driver, 0)
    assert driver.world.answers == {number: f"memory://savepoints/{number}"}


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_that_is_being_copied_is_not_deleted(mode: str) -> None:
    driver = running(mode)
    driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    copy = held(driver, do.StoreSavepoint)
    for number in range(1, 9):
        if mode == "interval":
            plain(driver, number) if number % 2 else epoch(driver, number)
        else:
            ran(driver, number)
    assert CheckpointId(1, 0) in driver.world.checkpoints
    assert copy.checkpoint.objects <= driver.world.objects
    driver.push(ev.SavepointStored(copy.ticket, copy.number, "memory://there"))
    for number in range(9, 13):
        if mode == "interval":
            plain(driver, number) if number % 2 else epoch(driver, number)
        else:
            ran(driver, number)
    assert CheckpointId(1, 0) not in driver.world.checkpoints
    assert not copy.checkpoint.objects & driver.world.objects


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_that_fails_is_tried_again_and_its_failure_told(mode: str) -> None:
    driver = running(mode)
    number = driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    copy = held(driver, do.StoreSavepoint)
    driver.push(ev.SavepointStored(copy.ticket, number, None, "slow down"))
    again = held(driver, do.StoreSavepoint)
    assert (again.attempt, again.checkpoint, again.request) == (1, copy.checkpoint, copy.request)
    driver.push(ev.SavepointStored(again.ticket, number, None, "no such bucket", hopeless=True))
    assert driver.world.answers == {number: "error: no such bucket"}
    assert "no such bucket" in next(i.message for i in driver.said if isinstance(i, do.Log))


@pytest.mark.parametrize("mode", MODES)
def test_a_stored_savepoint_is_announced_with_the_checkpoint_that_it_copies(mode: str) -> None:
    driver = running(mode)
    number = driver.request(SAVEPOINT)
    ran(driver, 0)
    told_of = [i.summary for i in driver.said if isinstance(i, do.Announce) and i.event is do.Announcement.SAVEPOINT]
    made = driver.world.checkpoints[CheckpointId(1, 0)]
    (summary,) = told_of
    assert (summary["run"], summary["epoch"], summary["time_ms"]) == (1, 0, made.time_ms)
    assert (summary["savepoint"], summary["full_bytes"]) == (f"memory://savepoints/{number}", made.size)


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_with_a_savepoint_is_finished_when_that_is_stored(mode: str) -> None:
    driver = running(mode)
    ran(driver, 0)
    number = driver.request(STOP, drain=True)
    said = driver.trigger(1)
    assert told(said, do.Stopping).drain
    acks(driver, 1)
    driver.seal(1, 1)
    ran(driver, 2)
    assert driver.world.answers == {}
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    assert "Finished" not in kinds(driver.push(ev.FinishRequested(stopping=True, drained=True)))
    finished = told(driver.release(), do.Finished)
    assert finished.savepoint == f"memory://savepoints/{number}"
    assert driver.world.savepoints[finished.savepoint].id == CheckpointId(1, 2)
    assert kinds(driver.push(ev.StopRequested(False))) == ["Stopped"]


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_without_a_drain_does_not_answer_who_asked_for_one(mode: str) -> None:
    """(1) A stop waits for its savepoint; (2) somebody else asks for a stop with a drain."""
    driver = running(mode)
    ran(driver, 0)
    first = driver.request(STOP)
    driver.fire(ev.Timer.IDLE)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    driver.push(ev.FinishRequested(stopping=True))
    second = driver.request(STOP, drain=True)
    assert told(driver.fire(ev.Timer.IDLE), do.Stopping).drain
    assert told(driver.release(), do.Finished).savepoint == f"memory://savepoints/{first}"
    driver.push(ev.StopRequested(False))
    assert driver.world.answers[second].startswith("error: the run ended before it met the request")
    assert list(driver.world.savepoints) == [f"memory://savepoints/{first}"]


@pytest.mark.parametrize("mode", MODES)
def test_who_asked_for_a_drain_still_waits_when_a_stop_without_one_has_failed(mode: str) -> None:
    """(1) A stop waits for its savepoint; (2) somebody else asks for a stop with a drain; (3) the savepoint cannot be made; (4) the query
    is drained."""
    driver = running(mode)
    ran(driver, 0)
    first = driver.request(STOP)
    driver.fire(ev.Timer.IDLE)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    driver.push(ev.FinishRequested(stopping=True))
    second = driver.request(STOP, drain=True)
    driver.fire(ev.Timer.IDLE)
    copy = held(driver, do.StoreSavepoint)
    driver.hold = lambda _: False
    assert "finish STORAGE" in kinds(driver.push(ev.SavepointStored(copy.ticket, first, None, "denied", hopeless=True)))
    assert driver.world.answers == {first: "error: denied"}
    ran(driver, 1)
    assert "Finished" in kinds([*driver.push(ev.FinishRequested(stopping=True, drained=True)), *acks(driver, 1)])
    assert driver.world.answers[second] == f"memory://savepoints/{second}"
    assert driver.world.savepoints[f"memory://savepoints/{second}"].id == CheckpointId(1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_query_is_not_drained_for_somebody_whom_a_new_coordinator_has_told_to_ask_again(mode: str) -> None:
    """(1) A drain is taken up; (2) the coordinator dies; (3) the query goes to its drain before it has heard of another one; (4) the new
    coordinator answers who asked, and then gets the drain's trigger."""
    world = World()
    driver = running(mode, world)
    ran(driver, 0)
    number = driver.request(STOP, drain=True)
    driver.fire(ev.Timer.IDLE)
    for again in (False, True):
        driver = Driver(world, MODES[mode])
        driver.push(ev.ResumeRequested(1, 1, 1, (), 0, {"commits/0": commit([uid_of(1, 0, p) for p in range(2)])}))
        assert world.answers[number].startswith("error: the coordinator was replaced")
        if again:
            driver.request(STOP, drain=True)
            driver.fire(ev.Timer.IDLE)
        said = driver.push(ev.TriggerRequested(1, offsets(0), {}, drain=True))
        assert ("Triggered" in kinds(said), "trigger DECLINED" in kinds(said)) == (again, not again)
        assert (1 in [entry.epoch for entry in plans(world)]) == again


@pytest.mark.parametrize("mode", MODES)
def test_a_query_that_ends_by_itself_has_not_been_drained(mode: str) -> None:
    driver = running(mode)
    number = driver.request(STOP, drain=True)
    ran(driver, 0)
    assert "Finished" in kinds([*driver.push(ev.FinishRequested()), *acks(driver, 0)])
    driver.push(ev.StopRequested(False))
    assert driver.world.answers[number].startswith("error: the run ended before it met the request")
    assert driver.world.savepoints == {}


@pytest.mark.parametrize("mode", MODES)
def test_nobody_is_told_that_a_query_has_stopped_which_goes_on(mode: str) -> None:
    """(1) A savepoint is being copied; (2) a stop's savepoint is stored, and the query's end waits for the other copy; (3) the coordinator
    is replaced; (4) the new one knows nothing of the stop, and the query goes on."""
    world = World()
    driver = running(mode, world)
    driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    number = driver.request(STOP)
    driver.fire(ev.Timer.IDLE)
    driver.push(ev.FinishRequested(stopping=True))
    stop = next(copy for copy in driver.held if isinstance(copy, do.StoreSavepoint) and copy.number == number)
    assert kinds(driver.push(ev.SavepointStored(stop.ticket, number, "memory://there"))) == ["SAVEPOINT"]
    assert number not in world.answers
    other = Driver(world, MODES[mode])
    other.push(ev.ResumeRequested(1, 1, 1, sealed=0))
    assert kinds(other.push(ev.FinishRequested(stopping=True))) == ["finish STORAGE"]
    assert world.answers[number].startswith("error: the coordinator was replaced")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("failed", [False, True])
def test_a_stop_is_answered_when_the_query_ends_with_its_savepoint(mode: str, failed: bool) -> None:
    """(1) A stop's savepoint is stored; (2) that of somebody else is, or the run ends before."""
    driver = running(mode)
    driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    number = driver.request(STOP)
    driver.fire(ev.Timer.IDLE)
    driver.push(ev.FinishRequested(stopping=True))
    stop = next(copy for copy in driver.held if isinstance(copy, do.StoreSavepoint) and copy.number == number)
    driver.held.remove(stop)
    driver.push(ev.SavepointStored(stop.ticket, number, "memory://there"))
    if failed:
        driver.push(ev.StopRequested(failed=True))
        said = driver.world.answers[number]
        assert said.startswith("error: the run ended before it met the request")
        assert said.endswith("the savepoint memory://there is stored")
    else:
        assert told(driver.release(), do.Finished).savepoint == "memory://there"
        assert driver.world.answers[number] == "memory://there"


@pytest.mark.parametrize("mode", MODES)
def test_a_query_goes_on_when_the_savepoint_to_stop_with_fails(mode: str) -> None:
    driver = running(mode)
    number = driver.request(STOP)
    ran(driver, 0)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    driver.push(ev.FinishRequested(stopping=True))
    copy = held(driver, do.StoreSavepoint)
    said = driver.push(ev.SavepointStored(copy.ticket, number, None, "denied", hopeless=True))
    assert kinds(said) == ["Log", "finish STORAGE"]
    assert "denied" in told(said, do.Refused).message
    assert driver.world.answers == {number: "error: denied"}
    assert "Triggered" in kinds(driver.trigger(1))


@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_a_run_answers_who_still_waits(mode: str) -> None:
    driver = running(mode)
    first = driver.request(STOP)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    second = driver.request(SAVEPOINT)
    driver.fire(ev.Timer.IDLE)
    driver.push(ev.StopRequested(False))
    assert {n: a[:16] for n, a in driver.world.answers.items()} == {first: "error: the run e", second: "error: the run e"}
    copy = held(driver, do.StoreSavepoint)
    assert driver.push(ev.SavepointStored(copy.ticket, second, "memory://there")) == []


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_an_answer_at_the_end_of_a_run_is_put_until_it_is_there(mode: str, delete: bool) -> None:
    driver = running(mode)
    first = driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, (do.AnswerRequest, do.StoreSavepoint))
    ran(driver, 0)
    copy = held(driver, do.StoreSavepoint)
    driver.push(ev.SavepointStored(copy.ticket, first, "memory://there"))
    second = driver.request(SAVEPOINT)
    driver.trigger(1)
    assert kinds(driver.push(ev.StopRequested(failed=False, delete=delete)))[-1] == "Stopped"
    asked = [put for put in driver.held if isinstance(put, do.AnswerRequest)]
    assert [(put.number, put.path) for put in asked] == [(first, "memory://there"), (second, None)]
    for attempt in range(3):
        asked, driver.held = [put for put in driver.held if isinstance(put, do.AnswerRequest)], []
        assert [put.attempt for put in asked] == [attempt, attempt]
        for put in asked:
            assert driver.push(ev.RequestAnswered(put.ticket, put.number, Outcome.FAILED, "slow down")) == []
    assert driver.release() == []
    assert driver.world.answers[first] == "memory://there"
    assert driver.world.answers[second].startswith("error: the run ended")


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_that_cannot_be_stored_after_the_end_is_told(mode: str) -> None:
    driver = running(mode)
    number = driver.request(STOP)
    driver.fire(ev.Timer.IDLE)
    driver.hold = lambda i: isinstance(i, do.AnswerRequest)
    driver.push(ev.StopRequested(failed=True))
    put = held(driver, do.AnswerRequest)
    said = driver.push(ev.RequestAnswered(put.ticket, number, Outcome.HOPELESS, "no such bucket"))
    assert "no such bucket" in told(said, do.Log).message


@pytest.mark.parametrize("mode", MODES)
def test_a_natural_end_waits_for_savepoints_too(mode: str) -> None:
    driver = running(mode)
    number = driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    assert kinds(driver.push(ev.FinishRequested())) == []
    assert kinds(driver.release()) == ["SAVEPOINT", "Finished"]
    assert number in driver.world.answers


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_before_the_first_epoch_has_nothing_to_save(mode: str) -> None:
    driver = running(mode)
    number = driver.request(STOP)
    assert kinds(driver.fire(ev.Timer.IDLE)) == ["Stopping"]
    said = driver.push(ev.FinishRequested(stopping=True))
    assert kinds(said) == ["finish STORAGE"]
    assert "nothing to save" in driver.world.answers[number]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_dead_coordinator_took_up_is_answered_by_the_next(mode: str) -> None:
    world = World()
    driver = running(mode, world)
    number = driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    other = Driver(world, MODES[mode])
    other.push(ev.ResumeRequested(1, 1, 1, sealed=0))
    assert world.answers[number].startswith("error: the coordinator was replaced")
    said = other.push(ev.FinishRequested(stopping=True))
    assert kinds(said) == ["finish STORAGE"]


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_that_takes_many_epochs_is_answered_by_the_next_coordinator(mode: str) -> None:
    """What is copied is still there, and says how far back the request may be."""
    world = World()
    driver = running(mode, world)
    number = driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    ran(driver, 0)
    for epoch_ in range(1, 60):
        due(driver) if mode == "interval" else None
        ran(driver, epoch_)
    assert number not in world.answers
    other = Driver(world, MODES[mode])
    other.push(ev.ResumeRequested(1, 1, 60, sealed=59))
    assert world.answers[number].startswith("error: the coordinator was replaced")


def test_an_unknown_request_is_answered() -> None:
    driver = running("every epoch")
    number = driver.request("explode")
    driver.fire(ev.Timer.IDLE)
    assert "'explode'" in driver.world.answers[number]


def test_a_savepoint_is_not_subsumed_and_counts_neither_as_pending_nor_as_failure() -> None:
    driver = running("interval")
    plain(driver, 0)
    number = driver.request(SAVEPOINT)
    assert told(driver.trigger(1), do.Triggered).checkpoint
    driver.seal(1, 1)
    due(driver)
    assert told(driver.trigger(2), do.Triggered).checkpoint
    driver.seal(1, 2)
    assert kinds(acks(driver, 2)) == ["COMPLETED"]
    assert kinds(acks(driver, 1)) == ["COMPLETED", "SAVEPOINT"]
    assert driver.world.savepoints[f"memory://savepoints/{number}"].id == CheckpointId(1, 1)
    second = driver.request(SAVEPOINT)
    driver.trigger(3)
    driver.seal(1, 3)
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    assert reasons(driver) == ["EXPIRED"]
    assert driver.world.answers[second].startswith("error: checkpoint 3 did not complete")
    assert "Triggered" in kinds(driver.trigger(4))


def test_an_idle_stream_uploads_its_newest_epoch_for_a_savepoint_at_once() -> None:
    driver = running("interval")
    driver.trigger(0)
    driver.seal(1, 0)
    driver.request(SAVEPOINT)
    said = driver.fire(ev.Timer.IDLE)
    assert kinds(said) == ["TRIGGERED", "Late"]
    done = driver.ack(1, 0, 0) + driver.ack(1, 0, 1)
    assert kinds(done) == ["Late", "COMPLETED", "SAVEPOINT"]
    assert len(driver.world.savepoints) == 1


def resumed(world: World, **known: Any) -> tuple[Driver, list[do.Instruction]]:
    other = Driver(world, MODES["interval"])
    return other, other.push(ev.ResumeRequested(1, 1, **known))


def test_a_coordinator_is_replaced_while_epochs_run_past_the_newest_checkpoint() -> None:
    world = World()
    driver = running("interval", world)
    due(driver)
    epoch(driver, 0)
    for number in (1, 2):
        driver.trigger(number)
        driver.seal(1, number)
    driver.trigger(3)
    log = dict(world.log)
    assert driver.stream.run is not None
    files = {path: driver.stream.run.folder.files.as_mapping()[path] for path in ("commits/1", "commits/2")}
    other, said = resumed(world, epoch=3, sealed=2, files=files)
    assert kinds(said) == ["Resumed", "STANDS"]
    again = told(other.trigger(3), do.Triggered)
    assert (again.epoch, again.checkpoint, again.base) == (3, False, CheckpointId(1, 0))
    assert world.log == log
    sealed = told(other.seal(1, 3), do.Sealed)
    assert sealed.lag.epochs == 3
    assert told(other.seal(1, 3), do.Sealed).summary is None
    assert told(other.trigger(4), do.Triggered).checkpoint, "what was in the making is forgotten, so one is due"
    acks(other, 4)
    other.seal(1, 4)
    assert set(world.checkpoints) == {CheckpointId(1, 0), CheckpointId(1, 4)}
    assert set(world.checkpoints[CheckpointId(1, 4)].files) == {"offsets/3", "commits/3", "offsets/4", "commits/4"}


def test_a_coordinator_that_is_replaced_while_idle_makes_the_newest_epoch_a_checkpoint() -> None:
    world = World()
    driver = running("interval", world)
    for number in range(2):
        driver.trigger(number)
        driver.seal(1, number)
    assert driver.stream.run is not None
    files = {path: content for path, content in driver.stream.run.folder.files.as_mapping().items() if path.startswith("commits/")}
    other, said = resumed(world, epoch=1, sealed=1, files={**files, "state/0/_metadata/schema": b"s"})
    assert kinds(said) == ["Resumed", "TRIGGERED", "Late"]
    assert kinds(acks(other, 1)) == ["Late", "COMPLETED"]
    made = world.checkpoints[CheckpointId(1, 1)]
    assert (made.log, set(made.files)) == (3, {"offsets/0", "commits/0", "offsets/1", "commits/1", "state/0/_metadata/schema"})
    assert [s.uid for s in made.snapshots] == [uid_of(1, 1, 0), uid_of(1, 1, 1)]


def test_a_resumed_run_whose_plans_are_missing_is_refused() -> None:
    world = World()
    running("interval", world)
    _, said = resumed(world, epoch=3, sealed=2)
    assert kinds(said) == ["resume LOST"]


def test_what_a_savepoint_that_is_late_may_name_stays_until_it_is_made() -> None:
    """(1) Epochs 0 and 1 are in the making, 1 for a savepoint; (2) 0 completes, and then 2, which drops 0; (3) an agent acknowledges
    epoch 1 with an object that it has stored for epoch 0."""
    driver = Driver(World(), Settings(retained=1, interval_ms=10_000, max_concurrent=3))
    driver.start("a")
    due(driver)
    driver.trigger(0)
    number = driver.request(SAVEPOINT)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    assert told(driver.trigger(1), do.Triggered).checkpoint
    driver.seal(1, 1)
    driver.ack(1, 0, 1)
    assert driver.stream.run is not None
    assert driver.stream.run.completed == (CheckpointId(1, 0),)
    due(driver)
    ran(driver, 2)
    assert driver.stream.run.completed == (CheckpointId(1, 2),)
    driver.trigger(3)
    of_epoch_0 = segment_key(1, 0, "p0")
    driver.push(ev.AcksReceived((ack(1, 1, 0, obj=of_epoch_0),)))
    driver.ack(1, 1, 1)
    assert driver.world.answers == {number: f"memory://savepoints/{number}"}
    acks(driver, 3)
    driver.seal(1, 3)
    due(driver)
    ran(driver, 4)
    ran(driver, 5)
    driver.trigger(6)
    assert of_epoch_0 not in driver.world.objects


def test_nor_does_what_newer_checkpoints_held_go_before_a_savepoint_that_they_have_overtaken() -> None:
    """(1) Epoch 0 is in the making, for a savepoint; (2) 1 completes, and then 2, which drops 1; (3) an agent acknowledges epoch 0 with an
    object that it has stored for epoch 1, whose newest state needs it no more."""
    driver = Driver(World(), Settings(retained=1, interval_ms=10_000, max_concurrent=3))
    driver.start("a")
    number = driver.request(SAVEPOINT)
    driver.fire(ev.Timer.IDLE)
    assert told(driver.trigger(0), do.Triggered).checkpoint
    driver.seal(1, 0)
    for newer in (1, 2):
        due(driver)
        ran(driver, newer)
    assert driver.stream.run is not None
    assert driver.stream.run.completed == (CheckpointId(1, 2),)
    driver.trigger(3)
    driver.push(ev.AcksReceived((ack(1, 0, 0, obj=segment_key(1, 1, "p0")),)))
    driver.ack(1, 0, 1)
    assert driver.world.answers == {number: f"memory://savepoints/{number}"}
