"""What a run owes to a query's hooks: their states are in each of its checkpoints, and they are told what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import CHECKPOINT, SAVEPOINT, STOP
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import EVERY, due, told
from tests.drivers.protocol_driving import JOB, Driver, World, commit, uid_of
from tests.drivers.protocol_runs import kinds, reasons
from tests.drivers.protocol_starts import elsewhere, own, refusal, started

NAMES = ("a", "b")


def starts(
    world: World | None = None, settings: Settings | None = None, nonce: str = "n", hooks: tuple[str, ...] = NAMES, **more: Any
) -> Driver:
    driver = Driver(world or World(), settings)
    driver.push(ev.StartRequested("q", JOB, (), nonce, "host", hooks=hooks, **more))
    return driver


def given(epoch: int, attempt: str = "") -> ev.HookStates:
    return ev.HookStates({"a": f"a{epoch}{attempt}".encode(), "b": None})


def seal(driver: Driver, epoch: int, states: ev.HookStates | None = None, run: int = 1, uids: list[str] | None = None) -> list[Instruction]:
    ids = uids or [uid_of(run, epoch, p) for p in range(2)]
    return driver.push(ev.SealRequested(epoch, commit(ids), hooks=states if states is not None else given(epoch)))


def acks(driver: Driver, epoch: int, run: int = 1) -> list[Instruction]:
    return [i for p in range(2) for i in driver.ack(run, epoch, p)]


def whole(driver: Driver, epoch: int, run: int = 1) -> list[Instruction]:
    said = driver.trigger(epoch)
    acked = acks(driver, epoch, run) if told(said, do.Triggered).checkpoint else []
    return [*said, *acked, *seal(driver, epoch, run=run)]


def heard(said: list[Instruction]) -> list[tuple[int, bool]]:
    return [(i.epoch, i.completed) for i in said if isinstance(i, do.TellHooks)]


def states(driver: Driver, run: int, epoch: int) -> dict[str, bytes]:
    return dict(driver.world.checkpoints[CheckpointId(run, epoch)].hooks)


def test_a_checkpoint_holds_the_states_and_hooks_are_told_before_the_query_goes_on() -> None:
    driver = starts()
    said = whole(driver, 0)
    assert states(driver, 1, 0) == {"a": b"a0"}, "a hook that has no state has none in the checkpoint"
    assert kinds(said) == ["Triggered", "TRIGGERED", "TellHooks", "Sealed", "COMPLETED"]
    assert heard(said) == [(0, True)]


def test_a_query_without_hooks_is_told_nothing() -> None:
    driver = starts(hooks=())
    assert heard(driver.epoch(1, 0)) == []
    assert states(driver, 1, 0) == {}


def test_states_of_hooks_that_are_not_the_querys_are_not_stored() -> None:
    driver = starts(hooks=("a",))
    driver.trigger(0)
    acks(driver, 0)
    seal(driver, 0, ev.HookStates({"a": b"1", "stranger": b"2"}))
    assert states(driver, 1, 0) == {"a": b"1"}


FAILED = "the hook 'b' failed in snapshot(0): ValueError: no"


@pytest.mark.parametrize(
    ("states_given", "message"),
    [
        (ev.HookStates({"a": b"1"}, FAILED), FAILED),
        (ev.HookStates({"a": b"1"}), "the hook 'b' gave no state at the end of epoch 0"),
    ],
)
def test_without_the_state_of_each_hook_there_is_no_checkpoint(states_given: ev.HookStates, message: str) -> None:
    driver = starts()
    driver.trigger(0)
    acks(driver, 0)
    said = seal(driver, 0, states_given)
    refused = next(i for i in said if isinstance(i, do.Refused))
    assert (refused.kind, refused.message) == (ErrorKind.DECLINED, message)
    assert heard(said) == [(0, False)]
    assert reasons(driver) == ["DECLINED"]
    assert driver.world.checkpoints == {}


def test_in_the_background_an_epoch_that_a_hook_declines_is_no_checkpoint_and_the_next_one_is() -> None:
    driver = starts(settings=replace(EVERY, tolerable_failures=1))
    due(driver)
    driver.trigger(0)
    acks(driver, 0)
    said = seal(driver, 0, ev.HookStates({}, "no"))
    assert heard(said) == [(0, False)]
    assert any(isinstance(i, do.Sealed) for i in said), "the epoch is over and valid"
    assert not any(isinstance(i, do.Failed) for i in said)
    assert due(driver) == [], "nor does it become one late"
    assert heard(whole(driver, 1)) == [(1, True)]
    assert states(driver, 1, 1) == {"a": b"a1"}


def test_who_asks_after_a_declined_epoch_without_a_next_one_is_told_why() -> None:
    driver = starts(settings=replace(EVERY, tolerable_failures=100))
    whole(driver, 0)
    driver.trigger(1)
    acks(driver, 1)
    seal(driver, 1, ev.HookStates({}, "the hook 'a' is busy"))
    asked = [driver.request(CHECKPOINT), driver.request(SAVEPOINT)]
    driver.fire(ev.Timer.IDLE)
    for number in asked:
        assert "epoch 1, the newest, can become no checkpoint: the hook 'a' is busy" in str(driver.world.answers[number])


def test_who_asks_for_the_end_after_a_declined_epoch_is_told_why_and_the_query_goes_on() -> None:
    driver = starts(settings=replace(EVERY, tolerable_failures=100))
    whole(driver, 0)
    driver.trigger(1)
    acks(driver, 1)
    seal(driver, 1, ev.HookStates({}, "the hook 'a' is busy"))
    asked = driver.request(STOP)
    assert told(driver.fire(ev.Timer.IDLE), do.Stopping)
    assert told(driver.push(ev.FinishRequested(stopping=True)), do.Refused).kind is ErrorKind.DECLINED
    assert "epoch 1, the newest, can become no checkpoint: the hook 'a' is busy" in str(driver.world.answers[asked])
    again = driver.request(STOP)
    due(driver)
    assert heard(whole(driver, 2)) == [(2, True)]
    driver.push(ev.FinishRequested(stopping=True))
    assert again in driver.world.answers
    assert "error" not in str(driver.world.answers[again])


def test_what_hooks_decline_counts_as_failed() -> None:
    driver = starts(settings=EVERY)
    due(driver)
    driver.trigger(0)
    acks(driver, 0)
    assert told(seal(driver, 0, ev.HookStates({}, "no")), do.Failed).kind is ErrorKind.DECLINED


def test_an_epoch_that_was_to_be_no_checkpoint_may_be_declined() -> None:
    driver = starts(settings=EVERY)
    assert not told(driver.trigger(0), do.Triggered).checkpoint
    said = seal(driver, 0, ev.HookStates({}, "the hook 'a' is busy"))
    assert kinds(said) == ["Sealed", "Log"]
    assert "the hook 'a' is busy" in told(said, do.Log).message
    finished = driver.push(ev.FinishRequested())
    assert told(finished, do.Refused).kind is ErrorKind.DECLINED
    assert "the hook 'a' is busy" in told(finished, do.Refused).message


def test_a_late_checkpoint_holds_the_states_of_its_own_epoch() -> None:
    """(1) Epoch 0 ends and is no checkpoint; (2) it becomes one late; (3) epoch 1 ends before its snapshots are stored."""
    driver = starts(settings=EVERY)
    whole(driver, 0)
    assert "Late" in kinds(due(driver))
    driver.trigger(1)
    seal(driver, 1)
    assert heard(acks(driver, 0)) == [(0, True)]
    assert states(driver, 1, 0) == {"a": b"a0"}


def test_one_that_was_overtaken_is_told_as_aborted() -> None:
    driver = starts(settings=replace(EVERY, max_concurrent=2))
    due(driver)
    for epoch in range(2):
        driver.trigger(epoch)
        seal(driver, epoch)
        due(driver)
    assert heard(acks(driver, 1)) == [(1, True), (0, False)]


def test_of_an_epoch_that_runs_again_in_place_the_last_states_count() -> None:
    driver = starts()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    seal(driver, 0, given(0, "-first"))
    lost = driver.fire(ev.Timer.GRACE)
    assert told(lost, do.Refused).kind is ErrorKind.LOST
    assert heard(lost) == [(0, False)]
    for p in range(2):
        driver.ack(1, 0, p, uid=f"again-{p}")
    assert heard(seal(driver, 0, given(0, "-second"), uids=["again-0", "again-1"])) == [(0, True)]
    assert states(driver, 1, 0) == {"a": b"a0-second"}


def test_a_start_gives_the_states_back() -> None:
    one = starts()
    assert started(one.said).hooks == {}
    whole(one, 0)
    two = starts(one.world, nonce="m", hooks=("a", "new"))
    assert started(two.said).hooks == {"a": b"a0"}


def test_a_start_without_a_hook_whose_state_is_there_is_refused_and_changes_nothing() -> None:
    one = starts()
    whole(one, 0)
    entries = dict(one.world.log)
    refused = refusal(starts(one.world, nonce="m", hooks=("b",)).said)
    assert refused.kind is ErrorKind.CONFLICT
    assert "holds the state of hooks that this query does not have ('a'); register" in refused.message
    assert one.world.log == entries
    assert started(starts(one.world, nonce="o").said).origin == CheckpointId(1, 0)


def test_forged_names_of_hooks_write_no_lines_of_their_own_and_not_many() -> None:
    one = starts(hooks=("a",))
    whole(one, 0)
    there = CheckpointId(1, 0)
    forged = {"\nERROR all is well\x1b[2J": b"1", "y" * 1000: b"", **{f"z{n:05}": b"" for n in range(10_000)}}
    one.world.checkpoints[there] = replace(one.world.checkpoints[there], hooks=forged)
    message = refusal(starts(one.world, nonce="m", hooks=("a",)).said).message
    assert message.isprintable()
    assert "('\\x0aERROR all is well\\x1b[2J', '" + "y" * 100 + "', 'z00000', " in message
    assert "'z00013', …); register" in message


def test_the_way_out_a_hook_that_has_no_state_any_more() -> None:
    one = starts()
    whole(one, 0)
    two = starts(one.world, nonce="m")
    two.trigger(1)
    acks(two, 1, run=2)
    seal(two, 1, ev.HookStates({"a": None, "b": None}), run=2)
    assert started(starts(two.world, nonce="o", hooks=()).said).origin == CheckpointId(2, 1)


def test_an_older_checkpoint_gives_its_own_states() -> None:
    one = starts()
    for epoch in range(3):
        whole(one, epoch)
    two = starts(one.world, nonce="m", restore=own(1, 1))
    assert (started(two.said).origin, started(two.said).hooks) == (CheckpointId(1, 1), {"a": b"a1"})


def test_a_copy_of_a_savepoint_of_another_stream_has_the_states() -> None:
    world = World()
    world.sources["s3://b/saved"] = source = replace(elsewhere(), hooks={"a": b"theirs"})
    world.objects |= source.objects
    forked = starts(world, restore=ev.Restore("s3://b/saved"))
    begun = started(forked.said)
    assert begun.hooks == {"a": b"theirs"}
    assert begun.origin is not None
    assert states(forked, begun.origin.run, begun.origin.epoch) == {"a": b"theirs"}


def test_a_savepoint_of_another_stream_is_refused_without_its_hook() -> None:
    world = World()
    world.sources["s3://b/saved"] = source = replace(elsewhere(), hooks={"a": b"theirs"})
    world.objects |= source.objects
    assert refusal(starts(world, hooks=(), restore=ev.Restore("s3://b/saved")).said).kind is ErrorKind.CONFLICT
    assert world.log == {}


def test_a_new_coordinator_tells_again_what_is_complete() -> None:
    one = starts()
    whole(one, 0)
    other = Driver(one.world)
    said = other.push(ev.ResumeRequested(1, 1, 1, sealed=0, hooks=NAMES))
    assert heard(said) == [(0, True)]
    assert kinds(said) == ["Resumed", "TellHooks", "STANDS"]
    assert heard(whole(other, 1)) == [(1, True)]


def test_a_new_coordinator_knows_the_states_of_the_epoch_that_ended_last() -> None:
    one = starts(settings=EVERY)
    whole(one, 0)
    other = Driver(one.world, EVERY)
    other.push(ev.ResumeRequested(1, 1, 1, (), 0, {"commits/0": commit([uid_of(1, 0, p) for p in range(2)])}, NAMES, given(0)))
    assert heard(acks(other, 0)) == [(0, True)]
    assert states(other, 1, 0) == {"a": b"a0"}
