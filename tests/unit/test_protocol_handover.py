"""State that a task needs and another executor has committed since the newest checkpoint: who hands it over, and when it is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Decline, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import due, epoch, plain, told
from tests.drivers.protocol_driving import Driver, World, ack, commit, uid_of
from tests.drivers.protocol_runs import held, kinds

WANTED = uid_of(1, 0, 0)
"""What epoch 1 loads of partition 0."""
HANDLES = ack(1, 0, 0).snapshot.handles
LOST = do.NotHandedOver(WANTED, HandoverFailure.LOST)


def running() -> Driver:
    """Epoch 0 has ended without a checkpoint, and the tasks of epoch 1 run."""
    driver = Driver(World(), Settings(interval_ms=10_000, tolerable_failures=1))
    driver.start("a")
    epoch(driver, 0)
    driver.trigger(1)
    return driver


def want(driver: Driver, *executors: str, uid: str = WANTED, of: int = 0) -> list[Instruction]:
    return driver.push(ev.StateWanted(uid, of, frozenset(executors)))


def report(driver: Driver, executor: str, *uids: str) -> list[Instruction]:
    return driver.push(ev.HoldingReceived(executor, frozenset(uids)))


def test_the_holder_is_told_and_its_acknowledgement_answers() -> None:
    driver = running()
    assert want(driver, "1", "2") == [do.HandOver(WANTED)]
    for _ in range(5):
        assert report(driver, "1", WANTED, "other") == []
        assert report(driver, "2", "other") == []
    assert driver.ack(1, 0, 0) == [do.HandedOver(WANTED, HANDLES)]
    assert driver.ack(1, 0, 0) == [], "one answer"


def test_what_was_acknowledged_before_is_given_at_once() -> None:
    driver = running()
    driver.ack(1, 0, 0)
    assert want(driver, "1", "2") == [do.HandedOver(WANTED, HANDLES)]


def test_what_is_on_its_way_into_a_checkpoint_or_complete_since_is_given_at_once() -> None:
    """Tasks carry the barrier of their epoch: what has completed since they do not know."""
    driver = running()
    driver.seal(1, 1)
    due(driver)
    driver.trigger(2)
    driver.ack(1, 1, 0)
    wanted = ack(1, 1, 0).snapshot
    assert want(driver, "1", uid=wanted.uid, of=1) == [do.HandedOver(wanted.uid, wanted.handles)]
    assert "COMPLETED" in kinds(driver.ack(1, 1, 1))
    assert want(driver, "1", uid=wanted.uid, of=1) == [do.HandedOver(wanted.uid, wanted.handles)]


def test_asked_again_it_is_answered_again() -> None:
    driver = running()
    want(driver, "1")
    report(driver, "1", "other")
    assert want(driver, "1") == [do.HandOver(WANTED)]
    assert report(driver, "1", "other") == [LOST], "and the first question counts"
    assert want(driver, "1") == [do.HandOver(WANTED)], "another attempt of the task has its answer too"
    assert report(driver, "1", "other") == []
    assert report(driver, "1", "other") == [LOST]


def test_lost_is_what_each_has_reported_twice_not_to_hold() -> None:
    """The first report since may have been made before the question, and before the commit."""
    driver = running()
    report(driver, "1", "other")
    report(driver, "2", "other")
    want(driver, "1", "2")
    for _ in range(4):
        assert report(driver, "1", "other") == []
    assert report(driver, "2") == []
    assert report(driver, "2") == [LOST]


def test_the_first_report_of_an_executor_that_was_never_heard_of_is_waited_for() -> None:
    driver = running()
    want(driver, "1", "2")
    for _ in range(9):
        assert report(driver, "1", "other") == []
    assert report(driver, "2", WANTED) == []
    for _ in range(9):
        assert report(driver, "1", "other") == []
    assert driver.ack(1, 0, 0) == [do.HandedOver(WANTED, HANDLES)]


def test_an_executor_that_takes_no_part_in_the_run_is_not_waited_for() -> None:
    """It may run another query, or none any more."""
    driver = running()
    report(driver, "3", "of another query")
    want(driver, "1")
    report(driver, "1")
    assert report(driver, "1") == [LOST]


def test_a_silent_executor_is_waited_for_until_spark_has_lost_it() -> None:
    driver = running()
    report(driver, "2", WANTED)
    want(driver, "1", "2")
    for _ in range(9):
        assert report(driver, "1") == []
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    assert driver.push(ev.ExecutorsLost(frozenset({"2"}))) == []
    assert report(driver, "1") == [], "what the lost one said last may still be on its way"
    assert driver.held == []
    report(driver, "1")
    left = held(driver, do.ReadLeftAcks)
    assert (left.run, left.epoch) == (1, 0)
    assert driver.push(ev.LeftAcksRead(left.ticket, ())) == [LOST]


def test_what_an_agent_has_stored_after_its_executors_death_is_found() -> None:
    """It was leaving, or had been told to hand over."""
    driver = running()
    want(driver, "1", "2")
    report(driver, "2", WANTED)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    report(driver, "1")
    report(driver, "1")
    left = held(driver, do.ReadLeftAcks)
    assert driver.push(ev.LeftAcksRead(left.ticket, (ack(1, 0, 0), ack(1, 0, 1)))) == [do.HandedOver(WANTED, HANDLES)]
    assert want(driver, "1", uid=uid_of(1, 0, 1)) == [do.HandedOver(uid_of(1, 0, 1), ack(1, 0, 1).snapshot.handles)]


def test_an_acknowledgement_that_overtakes_the_look_answers() -> None:
    driver = running()
    want(driver, "1", "2")
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    report(driver, "1")
    report(driver, "1")
    left = held(driver, do.ReadLeftAcks)
    assert driver.ack(1, 0, 0) == [do.HandedOver(WANTED, HANDLES)]
    assert driver.push(ev.LeftAcksRead(left.ticket, (ack(1, 0, 0),))) == []


def test_a_look_that_fails_is_done_again_and_one_that_cannot_succeed_finds_nothing() -> None:
    driver = running()
    want(driver, "1", "2")
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    report(driver, "1")
    report(driver, "1")
    first = held(driver, do.ReadLeftAcks)
    assert driver.push(ev.ReadFailed(first.ticket, "away")) == []
    second = held(driver, do.ReadLeftAcks)
    assert second == replace(first, ticket=second.ticket, attempt=1)
    assert driver.push(ev.ReadFailed(second.ticket, "no right to list", hopeless=True)) == [LOST]


def test_one_look_is_for_all_and_those_that_come_meanwhile_have_another() -> None:
    driver = running()
    other = uid_of(1, 0, 1)
    want(driver, "1", "2")
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    report(driver, "1")
    report(driver, "1")
    first = held(driver, do.ReadLeftAcks)
    want(driver, "1", uid=other)
    report(driver, "1")
    report(driver, "1")
    assert driver.held == []
    assert driver.push(ev.LeftAcksRead(first.ticket, ())) == [LOST]
    second = held(driver, do.ReadLeftAcks)
    assert driver.push(ev.LeftAcksRead(second.ticket, ())) == [replace(LOST, uid=other)]


def test_a_lost_executor_that_still_talks_holds_nothing() -> None:
    driver = running()
    want(driver, "1", "2")
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    report(driver, "2", WANTED)
    report(driver, "1")
    report(driver, "2", WANTED)
    assert report(driver, "1") == [LOST]


def test_a_holder_that_no_longer_reports_it_has_said_so_twice() -> None:
    driver = running()
    want(driver, "1")
    report(driver, "1", WANTED)
    report(driver, "1", WANTED)
    assert report(driver, "1") == [LOST], "its acknowledgement would have come before this report"


def test_a_holder_that_cannot_store_it_declines() -> None:
    driver = running()
    want(driver, "1")
    report(driver, "1", WANTED)
    decline = Decline(1, 0, StoreId(0, 0, "default"), WANTED, "1", "disk full")
    refused = do.NotHandedOver(WANTED, HandoverFailure.DECLINED, "disk full")
    assert driver.push(ev.DeclineReceived(decline)) == [refused]
    assert driver.push(ev.DeclineReceived(decline)) == []


def test_what_names_a_deleted_object_is_lost() -> None:
    """An aborted checkpoint's uploads were deleted; the agent that made one takes it for stored."""
    driver = running()
    due(driver)
    driver.seal(1, 1)
    driver.trigger(2)
    driver.ack(1, 2, 0)
    driver.push(ev.DeclineReceived(Decline(1, 2, StoreId(0, 1, "default"), uid_of(1, 2, 1), "1", "injected")))
    driver.seal(1, 2)
    for number in (3, 5):
        plain(driver, number)
        assert "COMPLETED" in kinds(epoch(driver, number + 1))
    plain(driver, 7)
    driver.trigger(8)
    gone = ack(1, 7, 0, obj=ack(1, 2, 0).snapshot.handles[0].object)
    assert gone.snapshot.handles[0].object not in driver.world.objects
    want(driver, "1", uid=gone.snapshot.uid, of=7)
    assert replace(LOST, uid=gone.snapshot.uid) in driver.push(ev.AcksReceived((gone,)))


def test_whoever_asked_is_gone_when_another_epoch_runs() -> None:
    driver = running()
    want(driver, "1")
    driver.seal(1, 1)
    driver.trigger(2)
    report(driver, "1")
    assert report(driver, "1") == []
    assert driver.stream.run is not None
    assert driver.stream.run.handover.wanted == frozenset()


def test_a_run_that_ends_answers_what_is_open_and_what_comes_later() -> None:
    driver = running()
    want(driver, "1")
    said = driver.push(ev.StopRequested(failed=True))
    assert kinds(said) == ["NotHandedOver", "Stopped"]
    assert told(said, do.NotHandedOver).reason is HandoverFailure.DECLINED
    assert kinds(want(driver, "1")) == ["NotHandedOver"]


def test_a_fenced_run_answers_too() -> None:
    driver = running()
    want(driver, "1")
    rival = Driver(driver.world, Settings(interval_ms=10_000))
    rival.start("b")
    driver.seal(1, 1)
    said = driver.trigger(2)
    assert "NotHandedOver" in kinds(said)
    assert f"trigger {ErrorKind.FENCED.value}" in kinds(said)
    assert kinds(want(driver, "1")) == ["NotHandedOver"]


def test_a_query_that_goes_back_in_place_begins_without_what_was_wanted() -> None:
    driver = running()
    want(driver, "1")
    report(driver, "1")
    driver.start("b")
    assert report(driver, "1") == []
    assert report(driver, "1") == []


def test_before_there_is_a_run_nothing_is_waited_for() -> None:
    driver = Driver(World(), Settings(interval_ms=10_000))
    assert kinds(want(driver, "1")) == ["NotHandedOver"]


@pytest.mark.parametrize("holds", [True, False])
def test_a_coordinator_that_takes_anothers_place_is_asked_again(holds: bool) -> None:
    driver = running()
    want(driver, "1", "2")
    report(driver, "1")
    report(driver, "2")
    successor = Driver(driver.world, Settings(interval_ms=10_000))
    files = {"commits/0": commit([uid_of(1, 0, p) for p in range(2)])}
    events: list[ev.Event] = [
        ev.ResumeRequested(1, 1, 1, (), 0, files),
        ev.StateWanted(WANTED, 0, frozenset(["1", "2"])),
        ev.ExecutorsLost(frozenset({"3"})),
        ev.HoldingReceived("1", frozenset()),
    ]
    said = [i for event in events for i in successor.push(event)]
    assert do.HandOver(WANTED) in said
    assert report(successor, "1") == [], "what the dead one has heard counts for nothing"
    assert report(successor, "2", *[WANTED] * holds) == []
    assert report(successor, "2", *[WANTED] * holds) == ([] if holds else [LOST])
    if holds:
        assert do.HandedOver(WANTED, HANDLES) in successor.ack(1, 0, 0)


def test_where_every_epoch_is_a_checkpoint_it_is_the_same() -> None:
    driver = Driver(World())
    driver.start("a")
    driver.epoch(1, 0)
    driver.trigger(1)
    assert CheckpointId(1, 0) in driver.world.checkpoints
    assert want(driver, "1") == [do.HandedOver(WANTED, HANDLES)]
    other = "of no checkpoint"
    assert want(driver, "1", uid=other) == [do.HandOver(other)]
    driver.push(ev.SealRequested(1, commit([uid_of(1, 1, p) for p in range(2)])))
    report(driver, "1")
    assert report(driver, "1") == [replace(LOST, uid=other)]


class Counted(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


def lookups_of_a_round(executors: int, each: int) -> tuple[int, int]:
    """While every executor holds `each` states that are wanted and not stored yet: in the rounds up to the second report, and in a later
    one."""
    driver = running()
    held = {Counted(f"executor {n}"): frozenset(Counted(f"{n} {k}") for k in range(each)) for n in range(executors)}
    part = frozenset(held)
    for uids in held.values():
        for uid in uids:
            driver.stream.handle(ev.StateWanted(uid, 0, part), 0)

    def rounds(number: int) -> int:
        Counted.lookups = 0
        for _ in range(number):
            for executor, uids in held.items():
                assert driver.stream.handle(ev.HoldingReceived(executor, uids), 0) == []
        return Counted.lookups

    return rounds(2), rounds(1)


def test_a_report_costs_what_it_says_however_many_executors_and_questions_there_are() -> None:
    """Acknowledgements come behind the reports: thousands of executors that report twice a second must not hold them up."""
    few, many = lookups_of_a_round(10, 4), lookups_of_a_round(40, 4)
    assert many[0] <= 5 * few[0], "four times as many reports"
    assert many[1] <= 5 * few[1]


def test_what_is_dropped_after_all_have_reported_is_lost_with_that_report_and_by_the_last_of_its_holders() -> None:
    driver = running()
    want(driver, "1", "2")
    for _ in range(3):
        assert report(driver, "1", WANTED) == []
        assert report(driver, "2", WANTED) == []
    assert report(driver, "2") == []
    assert report(driver, "1") == [LOST]


def test_an_executor_that_joins_is_asked_about_older_questions_as_well() -> None:
    driver = running()
    other = uid_of(1, 0, 1)
    want(driver, "1")
    for _ in range(3):
        report(driver, "1", WANTED, other)
    want(driver, "1", "2", uid=other)
    for _ in range(2):
        assert report(driver, "1") == []
    assert report(driver, "2") == []
    assert report(driver, "2") == [LOST, replace(LOST, uid=other)]
