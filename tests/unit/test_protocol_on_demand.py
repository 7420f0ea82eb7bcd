"""Checkpoints that people ask for, and `interval=never`, where there are no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.model import CheckpointId, Decline
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.trigger import UNASKED_MS
from spark_ckpt.protocol.entries import CHECKPOINT, SAVEPOINT, STOP
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due, epoch, plain, told
from tests.drivers.protocol_driving import JOB, Driver, World, ack
from tests.drivers.protocol_runs import held, kinds, reasons
from tests.drivers.protocol_starts import own, started

MODES = {
    "every epoch": Settings(),
    "interval": Settings(interval_ms=10_000),
    "never": Settings(interval_ms=None),
}
BACKGROUND = ["interval", "never"]


def running(mode: str, world: World | None = None, **more: int) -> Driver:
    settings = MODES[mode]
    driver = Driver(world or World(), Settings(**{**settings.__dict__, **more}))
    driver.start("a")
    return driver


def acks(driver: Driver, number: int) -> list[do.Instruction]:
    return [i for p in range(2) for i in driver.ack(1, number, p)]


def ran(driver: Driver, number: int) -> list[do.Instruction]:
    """A whole epoch, with acks whether they are wanted or not."""
    said = driver.trigger(number)
    return said + acks(driver, number) + driver.seal(1, number)


def unacked(driver: Driver, *numbers: int) -> None:
    for number in numbers:
        driver.trigger(number)
        driver.seal(1, number)


def answer_of(epoch_: int) -> str:
    return f"checkpoint {CheckpointId(1, epoch_)}"


@pytest.mark.parametrize("mode", MODES)
def test_a_busy_stream_completes_one_at_the_next_epoch(mode: str) -> None:
    driver = running(mode)
    unacked(driver, 0) if mode != "every epoch" else ran(driver, 0)
    number = driver.request(CHECKPOINT)
    said = driver.trigger(1)
    assert told(said, do.Triggered).checkpoint
    acks(driver, 1)
    driver.seal(1, 1)
    # In a query that waits for each checkpoint the newest one holds all that had ended.
    assert driver.world.answers == {number: answer_of(0 if mode == "every epoch" else 1)}
    assert driver.world.savepoints == {}


@pytest.mark.parametrize("mode", MODES)
def test_an_idle_stream_completes_its_newest_epoch_or_names_the_checkpoint_that_holds_it(mode: str) -> None:
    driver = running(mode)
    ran(driver, 0)
    first = driver.request(CHECKPOINT)
    driver.fire(ev.Timer.IDLE)
    assert driver.world.answers == {first: answer_of(0)}
    second = driver.request(CHECKPOINT)
    assert "TRIGGERED" not in kinds(driver.fire(ev.Timer.IDLE))
    assert driver.world.answers[second] == answer_of(0)
    assert list(driver.world.checkpoints) == [CheckpointId(1, 0)]


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_that_has_run_nothing_answers_with_its_first_epoch(mode: str) -> None:
    driver = running(mode)
    number = driver.request(CHECKPOINT)
    assert driver.fire(ev.Timer.IDLE) == []
    ran(driver, 0)
    assert driver.world.answers == {number: answer_of(0)}


@pytest.mark.parametrize("mode", BACKGROUND)
def test_several_requests_are_answered_by_one_checkpoint(mode: str) -> None:
    driver = running(mode)
    unacked(driver, 0)
    asked = [driver.request(CHECKPOINT) for _ in range(3)]
    driver.trigger(1)
    driver.seal(1, 1)
    asked.append(driver.request(CHECKPOINT))
    assert not told(driver.trigger(2), do.Triggered).checkpoint, "the one in the making holds all that had ended"
    driver.seal(1, 2)
    acks(driver, 1)
    assert driver.world.answers == dict.fromkeys(asked, answer_of(1))
    assert list(driver.world.checkpoints) == [CheckpointId(1, 1)]


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_checkpoint_that_lacks_what_had_ended_answers_nobody(mode: str) -> None:
    """And the one that will answer waits for `maxConcurrent`, as any other."""
    driver = running(mode)
    first = driver.request(CHECKPOINT)
    driver.fire(ev.Timer.IDLE)
    unacked(driver, 0, 1, 2)
    second = driver.request(CHECKPOINT)
    assert not told(driver.trigger(3), do.Triggered).checkpoint
    driver.seal(1, 3)
    acks(driver, 0)
    assert driver.world.answers == {first: answer_of(0)}
    acks(driver, 3)
    assert driver.world.answers == {first: answer_of(0), second: answer_of(3)}


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_newer_checkpoint_that_overtakes_it_answers_in_its_place(mode: str) -> None:
    driver = running(mode, max_concurrent=2)
    unacked(driver, 0)
    first = driver.request(CHECKPOINT)
    unacked(driver, 1, 2)
    second = driver.request(CHECKPOINT)
    unacked(driver, 3)
    assert kinds(acks(driver, 3)) == ["COMPLETED", "ABORTED"]
    assert reasons(driver) == ["SUBSUMED"]
    assert driver.world.answers == {first: answer_of(3), second: answer_of(3)}


@pytest.mark.parametrize("mode", BACKGROUND)
def test_after_a_start_the_epochs_that_run_again_had_ended(mode: str) -> None:
    """(1) Epochs 1 and 2 end past checkpoint 0; (2) the driver dies; (3) the next start runs them again, and a checkpoint is asked for."""
    one = running(mode)
    unacked(one, 0)
    one.request(CHECKPOINT)
    one.fire(ev.Timer.IDLE)
    acks(one, 0)
    assert list(one.world.checkpoints) == [CheckpointId(1, 0)]
    unacked(one, 1, 2)
    two = running(mode, one.world)
    begun = next(i for i in two.said if isinstance(i, do.Started))
    assert (begun.origin, begun.rerun, [p.epoch for p in begun.planned]) == (CheckpointId(1, 0), True, [2])
    asked = two.request(CHECKPOINT, claim=begun.claim)
    two.seal(2, 1)
    two.fire(ev.Timer.IDLE)
    for p in range(2):
        two.ack(2, 1, p)
    assert asked not in two.world.answers, "epoch 2 had ended too"
    two.trigger(2)
    for p in range(2):
        two.ack(2, 2, p)
    two.seal(2, 2)
    assert two.world.answers[asked] == f"checkpoint {CheckpointId(2, 2)}"


@pytest.mark.parametrize("mode", BACKGROUND)
def test_after_a_start_no_checkpoint_is_made_that_answers_nobody(mode: str) -> None:
    """(1) Epochs 1 to 20 end past checkpoint 0; (2) the driver dies; (3) all run again while somebody waits for a checkpoint."""
    one = running(mode)
    unacked(one, 0)
    one.request(CHECKPOINT)
    one.fire(ev.Timer.IDLE)
    acks(one, 0)
    unacked(one, *range(1, 21))
    two = running(mode, one.world)
    begun = next(i for i in two.said if isinstance(i, do.Started))
    asked = two.request(CHECKPOINT, claim=begun.claim)
    two.seal(2, 1)
    assert "TRIGGERED" not in kinds(two.fire(ev.Timer.IDLE)), "epoch 2 had ended too"
    became = [number for number in range(2, 21) for said in [two.trigger(number), two.seal(2, number)] if "TRIGGERED" in kinds(said)]
    assert became == [20]
    for p in range(2):
        two.ack(2, 20, p)
    assert two.world.answers[asked] == f"checkpoint {CheckpointId(2, 20)}"


@pytest.mark.parametrize("mode", BACKGROUND)
def test_one_that_is_declined_is_not_begun_again_for_a_request_that_waits_for_more(mode: str) -> None:
    """(1) Epoch 2 is planned, and the driver dies; (2) the next start runs 1 again, and is slow with 2; (3) a checkpoint is asked for, and
    the storage takes nothing."""
    one = running(mode)
    unacked(one, 0, 1)
    one.trigger(2)
    two = running(mode, one.world)
    begun = next(i for i in two.said if isinstance(i, do.Started))
    asked = two.request(CHECKPOINT, claim=begun.claim)
    two.seal(2, 0)
    two.trigger(1)
    two.seal(2, 1)
    two.trigger(2)
    said = two.fire(ev.Timer.LONG)
    late = ack(2, 1, 0).snapshot
    for _ in range(5):
        said = [*said, *two.push(ev.DeclineReceived(Decline(2, 1, late.store, late.uid, "1", "access denied")))]
    assert "TRIGGERED" not in kinds(said)
    two.seal(2, 2)
    two.fire(ev.Timer.IDLE)
    for p in range(2):
        two.ack(2, 2, p)
    assert two.world.answers[asked] == f"checkpoint {CheckpointId(2, 2)}"


def test_it_waits_for_neither_interval_nor_pause_and_both_count_from_it() -> None:
    driver = running("interval", min_pause_ms=5_000)
    due(driver)
    epoch(driver, 0)
    unacked(driver, 1)
    number = driver.request(CHECKPOINT)
    assert told(driver.trigger(2), do.Triggered).checkpoint
    acks(driver, 2)
    driver.seal(1, 2)
    assert driver.world.answers == {number: answer_of(2)}
    due(driver)
    assert not told(driver.trigger(3), do.Triggered).checkpoint
    driver.seal(1, 3)
    assert "TRIGGERED" in kinds(driver.fire(ev.Timer.PAUSE))


@pytest.mark.parametrize("mode", BACKGROUND)
def test_one_that_fails_is_told_to_who_asked_and_the_query_goes_on(mode: str) -> None:
    driver = running(mode)
    unacked(driver, 0)
    number = driver.request(CHECKPOINT)
    unacked(driver, 1)
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    assert driver.world.answers[number].startswith("error: checkpoint 1 did not complete")
    again = driver.request(CHECKPOINT)
    driver.trigger(2)
    acks(driver, 2)
    driver.seal(1, 2)
    assert driver.world.answers[again] == answer_of(2)


def test_one_that_was_due_anyway_counts_when_it_fails() -> None:
    driver = running("interval")
    unacked(driver, 0)
    driver.request(CHECKPOINT)
    due(driver)
    said = driver.fire(ev.Timer.EXPIRY)
    assert "FAILED" in str(driver.stream.run.phase if driver.stream.run else said)


@pytest.mark.parametrize("mode", BACKGROUND)
def test_while_an_epoch_runs_for_long_the_one_before_it_is_completed_and_stays(mode: str) -> None:
    driver = running(mode)
    unacked(driver, 0)
    driver.trigger(1)
    number = driver.request(CHECKPOINT)
    said = driver.fire(ev.Timer.LONG)
    assert "Late" in kinds(said) + kinds(driver.fire(ev.Timer.IDLE) if mode == "never" else [])
    driver.seal(1, 1)
    assert reasons(driver) == []
    acks(driver, 0)
    assert driver.world.answers == {number: answer_of(0)}


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_savepoint_that_is_asked_for_with_it_takes_it_along(mode: str) -> None:
    driver = running(mode)
    unacked(driver, 0)
    checkpoint, savepoint = driver.request(CHECKPOINT), driver.request(SAVEPOINT)
    driver.trigger(1)
    acks(driver, 1)
    driver.seal(1, 1)
    assert driver.world.answers == {checkpoint: answer_of(1), savepoint: f"memory://savepoints/{savepoint}"}
    assert list(driver.world.checkpoints) == [CheckpointId(1, 1)]


@pytest.mark.parametrize("mode", MODES)
def test_the_end_answers_who_still_waits(mode: str) -> None:
    """(1) The request is met; (2) the query is stopped. With a stop that makes a savepoint, or at the query's own end, it is answered."""
    for finish in (None, ev.FinishRequested(), ev.FinishRequested(stopping=True)):
        driver = running(mode)
        if finish is not None and finish.stopping:
            driver.request(STOP)
        number = driver.request(CHECKPOINT)
        driver.fire(ev.Timer.IDLE)
        driver.trigger(0)
        if finish is None:
            driver.push(ev.StopRequested(failed=False))
            assert driver.world.answers[number].startswith("error: the run ended before it met the request")
            continue
        acks(driver, 0)
        driver.seal(1, 0)
        assert kinds(driver.push(finish))[-1] == "Finished"
        assert driver.world.answers[number] == answer_of(0)


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_run_with_a_successor_answers_nobody(mode: str) -> None:
    world = World()
    driver = running(mode, world)
    unacked(driver, 0)
    number = driver.request(CHECKPOINT)
    driver.trigger(1)
    other = Driver(world, MODES[mode])
    other.start("b")
    driver.seal(1, 1)
    acks(driver, 1)
    assert "FENCED" in str(kinds(driver.trigger(2)))
    assert world.answers.get(number) in (None, answer_of(1))


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_coordinator_that_is_replaced_has_its_successor_answer(mode: str) -> None:
    world = World()
    driver = running(mode, world)
    unacked(driver, 0)
    number = driver.request(CHECKPOINT)
    driver.trigger(1)
    other = Driver(world, MODES[mode])
    other.push(ev.ResumeRequested(1, 1, 1, sealed=0, files={"commits/0": b"v2\n{}"}))
    assert world.answers[number].startswith("error: the coordinator was replaced")


@pytest.mark.parametrize("mode", BACKGROUND)
def test_a_new_coordinator_knows_that_no_epoch_has_ended_since_a_start_under_new_numbers(mode: str) -> None:
    """(1) Epochs 1 to 3 end past checkpoint 0; (2) a person discards them, and the next start begins with epoch 4; (3) its coordinator is
    replaced before anything comes in; (4) a checkpoint is asked for: checkpoint 0 holds all."""
    one = running(mode)
    one.request(CHECKPOINT)
    one.fire(ev.Timer.IDLE)
    ran(one, 0)
    unacked(one, 1, 2, 3)
    two = Driver(one.world, MODES[mode])
    begun = started(two.start("b", restore=replace(own(1, 0), discard=True)))
    assert (begun.origin, begun.epoch, begun.rerun) == (CheckpointId(1, 0), 4, False)
    files: Any = {path: content for path, content in begun.files.items() if path.startswith("commits/")}
    other = Driver(one.world, MODES[mode])
    other.push(ev.ResumeRequested(2, begun.claim, begun.epoch, sealed=0, files=files))
    asked = other.request(CHECKPOINT, claim=begun.claim)
    other.fire(ev.Timer.IDLE)
    assert one.world.answers[asked] == answer_of(0)


@pytest.mark.parametrize("action", [CHECKPOINT, STOP])
def test_a_new_coordinator_answers_who_waits_while_many_epochs_run_again(action: str) -> None:
    """(1) Epochs 1 to 60 end past checkpoint 0; (2) a start runs them again; (3) somebody asks for what only the last of them has; (4)
    checkpoint 50 completes; (5) the coordinator is replaced."""
    one = running("never")
    one.request(CHECKPOINT)
    one.fire(ev.Timer.IDLE)
    ran(one, 0)
    unacked(one, *range(1, 61))
    two = Driver(one.world, MODES["never"])
    begun = started(two.start("b"))
    assert (begun.epoch, begun.rerun) == (1, True)
    two.seal(2, 1)
    asked = two.request(action, claim=begun.claim)
    for number in range(2, 50):
        two.trigger(number)
        two.seal(2, number)
    two.request(SAVEPOINT, claim=begun.claim)
    two.trigger(50)
    for p in range(2):
        two.ack(2, 50, p)
    two.seal(2, 50)
    assert CheckpointId(2, 50) in one.world.checkpoints
    assert asked not in one.world.answers
    other = Driver(one.world, MODES["never"])
    other.push(ev.ResumeRequested(2, begun.claim, 51, sealed=50))
    assert one.world.answers[asked].startswith("error: the coordinator was replaced")


# --- never


def test_without_a_request_there_is_none() -> None:
    driver = running("never")
    unacked(driver, *range(20))
    driver.fire(ev.Timer.IDLE)
    assert ev.Timer.INTERVAL not in driver.timers
    assert driver.world.checkpoints == {}
    sealed = next(i for i in reversed(driver.said) if isinstance(i, do.Sealed))
    assert sealed.lag.epochs == 20


def test_all_that_was_planned_since_runs_again_at_the_next_start() -> None:
    world = World()
    driver = running("never", world)
    unacked(driver, *range(4))
    driver.push(ev.StopRequested(failed=False))
    other = Driver(world, MODES["never"])
    started = told(other.start("b", JOB), do.Started)
    assert (started.origin, started.epoch) == (None, 0)
    assert [plan.epoch for plan in started.planned] == [1, 2, 3]


def test_the_end_of_the_query_completes_its_last_epoch() -> None:
    driver = running("never")
    unacked(driver, 0, 1)
    assert "TRIGGERED" in kinds(driver.push(ev.FinishRequested()))
    acks(driver, 1)
    assert list(driver.world.checkpoints) == [CheckpointId(1, 1)]


def test_a_coordinator_that_is_replaced_makes_none_of_its_own_accord() -> None:
    world = World()
    driver = running("never", world)
    unacked(driver, 0, 1)
    assert driver.stream.run is not None
    files: Any = {path: content for path, content in driver.stream.run.folder.files.as_mapping().items() if path.startswith("commits/")}
    other = Driver(world, MODES["never"])
    assert kinds(other.push(ev.ResumeRequested(1, 1, 1, sealed=1, files=files))) == ["Resumed"]
    assert not told(other.trigger(2), do.Triggered).checkpoint


@pytest.mark.parametrize("presses", [lambda d: d.push(ev.HoldingReceived("1", frozenset(), 6 * 1024**3)), None])
def test_a_spool_that_fills_up_and_too_many_epochs_make_one_due(presses: Callable[[Driver], object] | None) -> None:
    driver = running("never", most_behind=3)
    for number in range(3):
        assert not told(driver.trigger(number), do.Triggered).checkpoint
        driver.seal(1, number)
        if number == 0 and presses is not None:
            presses(driver)
            break
    assert told(driver.trigger(number + 1), do.Triggered).checkpoint
    acks(driver, number + 1)
    driver.seal(1, number + 1)
    driver.push(ev.HoldingReceived("1", frozenset(), 0))
    assert not told(driver.trigger(number + 2), do.Triggered).checkpoint


def warnings(said: list[do.Instruction]) -> list[str]:
    return [i.message for i in said if isinstance(i, do.Log) and i.level is do.Level.WARN]


def test_who_does_not_ask_is_reminded_each_hour() -> None:
    driver = running("never")
    assert warnings(driver.fire(ev.Timer.UNASKED)) == [], "nothing has run"
    unacked(driver, 0, 1)
    for hours in (1, 2):
        driver.now += UNASKED_MS
        (said,) = warnings(driver.fire(ev.Timer.UNASKED))
        assert f"{60 * hours} minutes old" in said
        assert "2 epochs would run again" in said
        assert "`spark-ckpt checkpoint`" in said
    driver.request(CHECKPOINT)
    driver.trigger(2)
    acks(driver, 2)
    driver.seal(1, 2)
    unacked(driver, 3)
    assert warnings(driver.fire(ev.Timer.UNASKED)) == [], "there is a new one since the last look"
    assert len(warnings(driver.fire(ev.Timer.UNASKED))) == 1


@pytest.mark.parametrize("mode", ["every epoch", "interval"])
def test_others_need_no_reminder(mode: str) -> None:
    driver = running(mode)
    plain(driver, 0) if mode == "interval" else ran(driver, 0)
    assert ev.Timer.UNASKED not in driver.timers


def test_a_copy_that_is_under_way_is_none_of_its_business() -> None:
    driver = running("never")
    driver.request(SAVEPOINT)
    driver.hold = lambda i: isinstance(i, do.StoreSavepoint)
    driver.fire(ev.Timer.IDLE)
    ran(driver, 0)
    held(driver, do.StoreSavepoint)
    number = driver.request(CHECKPOINT)
    driver.fire(ev.Timer.IDLE)
    assert driver.world.answers == {number: answer_of(0)}
