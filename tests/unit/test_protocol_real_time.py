"""Epochs in real time: the barrier comes first, the record of what was read with the end, and the storage keeps no row waiting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Claim, Plan, decode, encode
from spark_ckpt.protocol.instructions import Gate
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import told
from tests.drivers.protocol_driving import JOB, Driver, World, commit, offsets, uid_of
from tests.drivers.protocol_runs import held, kinds
from tests.drivers.protocol_starts import after, numbers, own, refusal, started
from tests.drivers.real_time_runs import acknowledge, begin, end, entries, epoch, records, running, starts

LISTED = {"sources/0/0": b'v1\n{"t":{"0":7}}'}


def settled(world: World | None = None, settings: Settings | None = None) -> Driver:
    """Epoch 0 is a checkpoint, and an append since says so: from now on nobody waits for a record."""
    driver = running(world, settings)
    for number in range(2):
        epoch(driver, 1, number)
    begin(driver, 2)
    end(driver, 1, 2)
    acknowledge(driver, 1, 2)
    return driver


def answered(driver: Driver) -> list[do.Instruction]:
    """What was held arrives."""
    put = held(driver, do.PutEntry)
    return driver.push(ev.EntryPut(put.ticket, put.number, driver.world.put(put.number, put.data)))


def test_the_record_comes_with_the_end_and_the_checkpoint_as_always() -> None:
    driver = settled()
    said = begin(driver, 3)
    assert kinds(said) == ["Triggered", "TRIGGERED"]
    assert told(said, do.Triggered).checkpoint
    assert not any(number == 3 for number, _ in records(driver.world))
    assert kinds(end(driver, 1, 3)) == ["Sealed"]
    assert records(driver.world)[-1] == (3, True)
    assert kinds(acknowledge(driver, 1, 3)) == ["COMPLETED"]
    made = driver.world.checkpoints[CheckpointId(1, 3)]
    assert made.files["offsets/3"] == offsets(3)
    assert made.log == max(driver.world.log)


def test_until_there_is_a_checkpoint_the_log_says_that_an_epoch_begins() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    assert begin(driver, 0, dict(LISTED)) == []
    assert kinds(answered(driver)) == ["Triggered", "TRIGGERED"]
    record = entries(driver.world)[-1]
    assert isinstance(record, Plan)
    assert (record.offsets, record.files) == (b"", LISTED)
    end(driver, 1, 0)
    assert begin(driver, 1) == []
    answered(driver)
    assert "Triggered" in kinds(answered(driver))
    assert records(driver.world) == [(0, False), (0, True), (1, False)]


def test_no_row_waits_for_the_record_of_the_epoch_before() -> None:
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    begin(driver, 3)
    assert "Sealed" in kinds(end(driver, 1, 3))
    assert "Triggered" in kinds(begin(driver, 4))
    assert "Sealed" in kinds(end(driver, 1, 4))
    assert begin(driver, 5) == [], "two records are on their way, and the log tells of neither"
    assert "Triggered" in kinds(answered(driver))


def test_a_record_that_cannot_be_stored_in_time_fails_the_query() -> None:
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    for number in (3, 4):
        begin(driver, number)
        end(driver, 1, number)
    begin(driver, 5)
    said = driver.fire(ev.Timer.PLAN)
    assert refusal(said).kind is ErrorKind.TIMEOUT
    assert "the record of epoch 3" in told(said, do.Failed).message


def test_at_most_two_checkpoints_are_in_the_making_and_none_is_waited_for() -> None:
    driver = settled()
    for number in (3, 4):
        assert told(begin(driver, number), do.Triggered).checkpoint
        end(driver, 1, number)
    assert not told(begin(driver, 5), do.Triggered).checkpoint
    end(driver, 1, 5)
    acknowledge(driver, 1, 3)
    assert told(begin(driver, 6), do.Triggered).late == 5, "there is room for one, and epoch 5 was the newest that had ended"
    end(driver, 1, 6)
    acknowledge(driver, 1, 4)
    acknowledge(driver, 1, 5)
    assert told(begin(driver, 7), do.Triggered).checkpoint


def behind(driver: Driver, stretches: int) -> Driver:
    """Epochs 3 and 4 are checkpoints in the making, which leave epoch 5 no room; each of the three runs for so many times 5 s. One of the
    checkpoints completes while epoch 6 runs, which is none either."""
    for number in (3, 4, 5):
        begin(driver, number)
        for _ in range(stretches):
            assert "Late" not in kinds(driver.fire(ev.Timer.LONG))
        end(driver, 1, number)
    assert not told(begin(driver, 6), do.Triggered).checkpoint
    acknowledge(driver, 1, 3)
    return driver


@pytest.mark.parametrize(("stretches", "bridged_at"), [(0, 2), (1, 3), (2, 1), (59, 1)])
def test_no_upload_begins_that_the_end_of_the_epoch_would_give_up(stretches: int, bridged_at: int) -> None:
    """A slow storage is behind. The epoch in hand is about to end where the one before it had ended by then; it is long again where that is
    more than a stretch ago."""
    driver = behind(settled(), stretches)
    for stretch in range(1, bridged_at + 1):
        said = driver.fire(ev.Timer.LONG)
        assert ("Late" in kinds(said)) == (stretch == bridged_at), (stretch, kinds(said))
    assert told(said, do.Late).epoch == 5


def test_a_savepoint_does_not_wait_for_the_end_of_the_epoch() -> None:
    driver = behind(settled(), 1)
    number = driver.request(SAVEPOINT)
    assert told(driver.fire(ev.Timer.LONG), do.Late).epoch == 5
    acknowledge(driver, 1, 5)
    assert driver.world.answers[number] == f"memory://savepoints/{number}"


def test_a_long_epoch_is_looked_after_once_and_from_then_on_as_if_idle() -> None:
    driver = settled()
    begin(driver, 3)
    driver.hold = lambda i: isinstance(i, do.ReadEntry)
    driver.fire(ev.Timer.LONG)
    held(driver, do.ReadEntry)
    driver.held = []
    driver.fire(ev.Timer.LONG)
    assert not driver.held
    end(driver, 1, 3)
    begin(driver, 4)
    driver.fire(ev.Timer.LONG)
    held(driver, do.ReadEntry)


def test_with_an_interval_an_epoch_is_a_checkpoint_when_one_is_due() -> None:
    driver = running(settings=Settings(interval_ms=10_000))
    assert not told(begin(driver, 0), do.Triggered).checkpoint
    end(driver, 1, 0)
    driver.fire(ev.Timer.INTERVAL)
    acknowledge(driver, 1, 0)
    assert CheckpointId(1, 0) in driver.world.checkpoints
    assert not told(begin(driver, 1), do.Triggered).checkpoint


def test_a_successor_ends_the_query_with_its_record_or_while_an_epoch_runs() -> None:
    def successor(driver: Driver) -> None:
        number = max(driver.world.log) + 1
        driver.world.log[number] = encode(Claim(number, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))

    driver = settled()
    begin(driver, 3)
    successor(driver)
    assert "Failed" in kinds(end(driver, 1, 3))
    assert kinds(begin(driver, 4)) == ["trigger FENCED"]
    driver = settled()
    begin(driver, 3)
    successor(driver)
    assert kinds(driver.fire(ev.Timer.LONG)) == ["Failed"]
    assert kinds(end(driver, 1, 3)) == ["seal FENCED"]


@pytest.mark.parametrize(
    "other", [Plan(2, 9, 3, offsets(3), real_time=True), Plan(1, 1, 7, offsets(7))], ids=["another run's record", "no record"]
)
def test_what_is_no_late_record_of_its_own_ends_the_query(other: Plan) -> None:
    driver = settled()
    begin(driver, 3)
    driver.world.log[max(driver.world.log) + 1] = encode(other)
    assert "Failed" in kinds(end(driver, 1, 3))
    assert kinds(begin(driver, 4)) == ["trigger FENCED"]


def test_of_two_looks_at_the_log_the_earlier_one_counts_no_more() -> None:
    """(1) A look is slow, (2) an epoch begins, for which nothing is appended, (3) it runs for long: a second look, which finds nothing,
    (4) the epoch's record is stored and the next one put, (5) the first look finds the record: no number may be left out for it."""
    driver = settled()
    last = max(driver.world.log)
    driver.hold = lambda i: isinstance(i, do.ReadEntry)
    driver.fire(ev.Timer.IDLE)
    slow = held(driver, do.ReadEntry)
    driver.held = []
    begin(driver, 3)
    driver.fire(ev.Timer.LONG)
    second = held(driver, do.ReadEntry)
    assert second.number == slow.number == last + 1
    driver.held = []
    nothing = driver.answer(second)
    assert nothing is not None
    driver.push(nothing)
    end(driver, 1, 3)
    begin(driver, 4)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    end(driver, 1, 4)
    put = held(driver, do.PutEntry)
    stored = ev.EntryPut(put.ticket, put.number, driver.world.put(put.number, put.data))
    found = driver.answer(slow)
    assert found is not None
    driver.push(found)
    driver.hold = lambda _: False
    driver.push(stored)
    begin(driver, 5)
    end(driver, 1, 5)
    assert max(driver.world.log) == last + 3
    assert sorted(driver.world.log)[-4:] == list(range(last, last + 4))


def test_what_follows_runs_under_numbers_past_all_that_may_have_run() -> None:
    world = World()
    driver = settled(world)
    begin(driver, 3)
    end(driver, 1, 3)
    begin(driver, 4)
    claims = [entry for entry in entries(world) if isinstance(entry, Claim)]
    assert claims[0].ahead == 2
    one = started(starts(world, "b")[1])
    assert (one.origin, one.epoch, one.version, one.planned) == (CheckpointId(1, 2), 6, 3, ())
    assert (one.real_time, one.gate, one.rerun) == (True, Gate.BACKGROUND, False)
    assert set(one.files) >= {"offsets/5", "commits/5", "offsets/4", "commits/4"}


def test_a_micro_batch_start_voids_records_too() -> None:
    world = World()
    driver = settled(world)
    begin(driver, 3)
    end(driver, 1, 3)
    following = Driver(world)
    one = started(following.start("b"))
    assert (one.origin, one.epoch, one.version, one.real_time, one.gate) == (CheckpointId(1, 2), 6, 3, False, Gate.EPOCH)
    following.epoch(2, 6)
    again = started(Driver(world).start("c"))
    assert (again.origin, again.epoch, again.version) == (CheckpointId(2, 6), 7, None)


@pytest.mark.parametrize("ended", [False, True])
def test_without_a_checkpoint_the_next_start_begins_where_the_sources_began(ended: bool) -> None:
    world = World()
    driver = running(world)
    begin(driver, 0, dict(LISTED))
    if ended:
        end(driver, 1, 0)
    for nonce in "bcd":  # what the first record says is known however often the stream is started before it says more
        one = started(starts(world, nonce)[1])
        assert (one.origin, one.epoch, one.version) == (None, 1, 0)
        assert one.files["sources/0/0"] == LISTED["sources/0/0"]
        assert set(one.files) == {"sources/0/0", "offsets/0", "commits/0"}
    following = Driver(world)
    assert started(following.start("e")).epoch == 1
    following.trigger(1)
    one = started(Driver(world).start("f"))
    assert (one.epoch, one.rerun, one.files["sources/0/0"]) == (1, True, LISTED["sources/0/0"])


def test_operators_that_begin_in_epoch_0_only_begin_there_again() -> None:
    world = World()
    begin(running(world), 0, dict(LISTED))
    one = started(starts(world, "b", from_zero=True)[1])
    assert (one.epoch, one.version, one.files) == (0, None, LISTED)


@pytest.mark.parametrize("dies_at_once", [False, True])
@pytest.mark.parametrize("starts_before", [1, 2])
@pytest.mark.parametrize("completed", [False, True])
def test_what_has_begun_in_epoch_0_once_more_as_micro_batches_goes_on(starts_before: int, completed: bool, dies_at_once: bool) -> None:
    """(1) Real time uses some numbers, and has no checkpoint; (2) the query goes on as micro-batches, in epoch 0; (3) and starts again.
    `dies_at_once`: a start in real time that has claimed, and recorded nothing."""
    world = World()
    for nonce in "ab"[:starts_before]:
        driver, _ = starts(world, nonce, from_zero=True)
        begin(driver, 0, dict(LISTED))
        end(driver, starts_before, 0)
        begin(driver, 1)
    claims = [entry for entry in entries(world) if isinstance(entry, Claim)]
    assert [claim.used for claim in claims] == [-1, 1][:starts_before], "another start in real time goes on behind them"
    if dies_at_once:
        starts(world, "d", from_zero=True)
    micro = Driver(world)
    assert started(micro.push(ev.StartRequested("q", JOB, (), "m", "host", from_zero=True))).epoch == 0
    if completed:
        micro.epoch(starts_before + dies_at_once + 1, 0)
    else:
        micro.trigger(0)
    again = started(Driver(world).push(ev.StartRequested("q", JOB, (), "n", "host", from_zero=True)))
    assert (again.epoch, again.rerun) == ((1, False) if completed else (0, True))


def test_what_was_planned_as_micro_batches_runs_so_first_in_a_run_of_its_own() -> None:
    world = after(2)
    micro = Driver(world)
    micro.start("m")
    micro.trigger(2)
    driver, said = starts(world, "r")
    one = started(said)
    assert (one.real_time, one.rerun, one.epoch, one.gate) == (False, True, 2, Gate.EPOCH)
    claims = [entry for entry in entries(world) if isinstance(entry, Claim)]
    assert claims[-1].ahead == 0
    assert "Sealed" in kinds(driver.rest(3, 2))
    assert kinds(driver.push(ev.FinishRequested())) == ["Finished"]
    one = started(driver.push(ev.StartRequested("q", JOB, (), "s", "host", real_time=True, again=True)))
    assert (one.real_time, one.origin, one.epoch, one.version) == (True, CheckpointId(3, 2), 3, None)


def test_back_and_forth() -> None:
    world = after(2)
    driver, said = starts(world, "r")
    assert numbers(started(said)) == [2]
    epoch(driver, 2, 2)
    epoch(driver, 2, 3)
    micro = Driver(world)
    one = started(micro.start("m"))
    assert (one.origin, one.epoch) == (CheckpointId(2, 3), 6)
    micro.epoch(3, 6)
    one = started(starts(world, "t")[1])
    assert (one.origin, one.epoch, one.version) == (CheckpointId(3, 6), 7, None)


def test_going_back_past_records_voids_what_followed() -> None:
    world = World()
    driver = settled(world)
    epoch(driver, 1, 3)
    said = starts(world, "b", restore=own(1, 2))[1]
    one = started(said)
    assert (one.origin, one.epoch, one.planned) == (CheckpointId(1, 2), 6, ())
    assert "runs anew" in told(said, do.Log).message


def test_a_stream_in_micro_batches_again_goes_back_past_records_only_where_sinks_may_get_rows_twice() -> None:
    """What it has run since was exactly once, and would run anew too."""
    world = World()
    epoch(settled(world), 1, 3)
    again = Driver(world, Settings(retained=10))
    again.epoch(2, started(again.start("b")).epoch)
    refused = refusal(Driver(world).start("c", restore=own(1, 2)))
    assert refused.kind is ErrorKind.CONFLICT
    assert "cannot run again as planned; with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD" in refused.message
    discards = replace(own(1, 2), discard=True)
    for said in (Driver(world).start("d", restore=discards), starts(world, "e", restore=own(1, 2))[1]):
        assert started(said).origin == CheckpointId(1, 2)


def test_a_savepoint_is_made_while_the_query_runs() -> None:
    driver = settled()
    begin(driver, 3)
    number = driver.request(SAVEPOINT)
    driver.fire(ev.Timer.LONG)
    assert driver.world.answers[number] == f"memory://savepoints/{number}"


def resumed(world: World, epoch: int, sealed: int, running: bool, files: Mapping[str, bytes | None] | None = None) -> Driver:
    driver = Driver(world)
    kept = [n for n in (sealed - 1, sealed) if n >= 0]
    sent: dict[str, Any] = {f"commits/{n}": commit([uid_of(1, n, p) for p in range(2)]) for n in kept}
    sent |= {f"offsets/{n}": offsets(n) for n in kept} | dict(files or {})
    said = driver.push(ev.ResumeRequested(1, 1, epoch, sealed=sealed, files=sent, real_time=True, running=running))
    assert "Resumed" in kinds(said)
    return driver


def test_a_new_coordinator_goes_on_with_the_epoch_that_runs_and_records_what_was_not() -> None:
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    begin(driver, 3)
    end(driver, 1, 3)
    begin(driver, 4)
    following = resumed(driver.world, 4, 3, running=True)
    assert records(driver.world)[-1] == (3, True)
    assert "Sealed" in kinds(end(following, 1, 4))
    assert "Triggered" in kinds(begin(following, 5))
    end(following, 1, 5)
    acknowledge(following, 1, 5)
    assert CheckpointId(1, 5) in driver.world.checkpoints


def test_a_new_coordinator_looks_at_the_log_while_the_epoch_runs() -> None:
    driver = settled()
    begin(driver, 3)
    following = resumed(driver.world, 3, 2, running=True)
    number = following.request(SAVEPOINT)
    following.fire(ev.Timer.LONG)
    assert following.world.answers[number] == f"memory://savepoints/{number}"
    begin(driver, 3)
    following = resumed(driver.world, 3, 2, running=True)
    claim = max(driver.world.log) + 1
    driver.world.log[claim] = encode(Claim(claim, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    assert "Failed" in kinds(following.fire(ev.Timer.LONG))


def test_what_the_driver_had_written_with_an_epoch_is_in_the_checkpoint_that_a_new_coordinator_completes() -> None:
    """(1) Epoch 3 begins, and ends with a file; its record is not stored; (2) epoch 4 begins with another, and the coordinator dies;
    (3) the driver says both once more."""
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    begin(driver, 3)
    end(driver, 1, 3)
    begin(driver, 4)
    written: dict[str, bytes | None] = {"state/1/_metadata/metadata": b"new", "sources/1/0": b"begins"}
    following = resumed(driver.world, 4, 3, running=True, files=written)
    end(following, 1, 4)
    begin(following, 5)
    end(following, 1, 5)
    acknowledge(following, 1, 5)
    assert driver.world.checkpoints[CheckpointId(1, 5)].files.items() >= written.items()


@pytest.mark.parametrize("running_on", [False, True])
def test_a_late_record_of_the_coordinator_before_fences_nobody(running_on: bool) -> None:
    """(1) A record is on its way; (2) the coordinator is replaced, which does not see it; (3) it lands where the next one is to go.
    `running_on`: it says that epoch 2 has begun, which runs meanwhile; else what epoch 0 has read, which is in a checkpoint by then."""
    driver = running()
    begin(driver, 0)
    if running_on:
        end(driver, 1, 0)
        begin(driver, 1)
        acknowledge(driver, 1, 0)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    number = 2 if running_on else 1
    end(driver, 1, number - 1)
    if running_on:
        begin(driver, 2)
        assert told(answered(driver), do.Triggered).epoch == 2
    acknowledge(driver, 1, number - 1)
    assert CheckpointId(1, number - 1) in driver.world.checkpoints
    late = held(driver, do.PutEntry)
    following = Driver(driver.world)
    following.hold = lambda i: isinstance(i, do.PutEntry)
    sent: dict[str, bytes | None] = {}
    for n in range(number):
        sent |= {f"offsets/{n}": offsets(n), f"commits/{n}": commit([uid_of(1, n, p) for p in range(2)])}
    following.push(ev.ResumeRequested(1, 1, number, sealed=number - 1, files=sent, real_time=True, running=running_on))
    said = end(following, 1, number) if running_on else begin(following, number)
    assert driver.world.put(late.number, late.data) is Outcome.STORED
    following.hold = lambda _: False
    said += answered(following)
    assert "Refused" not in kinds(said)
    if not running_on:
        end(following, 1, number)
    epoch(following, 1, number + 1)
    assert records(driver.world)[-1] == (number + 1, True)


@pytest.mark.parametrize("stands_in_line", [False, True])
def test_what_a_record_that_is_found_does_not_say_of_files_the_next_one_says(stands_in_line: bool) -> None:
    """(1) Epoch 3 ends, and its record is on its way; (2) epoch 4 begins, and the driver writes; (3) another coordinator records epoch 3,
    with what was written since, (4) but the first record lands before that one. What is written once more is newer than both."""
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    before: dict[str, bytes | None] = {"sources/0/1": b"stays", "sources/1/0": b"to change"}
    begin(driver, 3, before)
    end(driver, 1, 3)
    first = held(driver, do.PutEntry)
    begin(driver, 4)
    written: dict[str, bytes | None] = {"state/1/_metadata/metadata": b"new", "sources/1/0": b"begins"}
    following = Driver(driver.world)
    following.hold = lambda i: isinstance(i, do.PutEntry)
    sent: dict[str, bytes | None] = {f"commits/{n}": commit([uid_of(1, n, p) for p in range(2)]) for n in (2, 3)}
    sent |= {f"offsets/{n}": offsets(n) for n in (2, 3)}
    following.push(ev.ResumeRequested(1, 1, 4, sealed=3, files=sent | before | written, real_time=True, running=True))
    assert driver.world.put(first.number, first.data) is Outcome.STORED
    newer: dict[str, bytes | None] = {"state/1/_metadata/metadata": b"newest"}
    if stands_in_line:
        end(following, 1, 4, newer)
    else:
        begin(following, 4, newer)
    following.hold = lambda _: False
    answered(following)
    if not stands_in_line:
        end(following, 1, 4)
    told_of = [(entry.epoch, dict(entry.files)) for entry in entries(driver.world)[-2:]]
    assert told_of == [(3, before), (4, written | newer)]


def test_a_new_coordinator_is_asked_again_for_the_barrier() -> None:
    driver = settled()
    following = resumed(driver.world, 3, 2, running=False)
    assert "Triggered" in kinds(begin(following, 3))
    following = resumed(driver.world, 3, 2, running=True)
    assert kinds(begin(following, 3)) == ["Triggered"]


def test_without_a_record_in_its_log_a_stream_stays_readable_for_older_releases() -> None:
    world = after(1)
    assert {json.loads(data)["v"] for data in world.log.values()} == {3}
    epoch(running(), 1, 0)
    driver = running()
    epoch(driver, 1, 0)
    assert [json.loads(data)["v"] for _, data in sorted(driver.world.log.items())] == [3, 4, 4]
    assert decode(2, driver.world.log[2]).claim == 1


def test_a_seal_that_no_reader_would_take_is_refused() -> None:
    driver = settled()
    begin(driver, 3)
    number = max(driver.world.log) + 1
    driver.world.log[number] = b"{}"
    assert "Failed" in kinds(end(driver, 1, 3))


def test_an_answer_that_is_lost_is_looked_for() -> None:
    driver = settled()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    begin(driver, 3)
    end(driver, 1, 3)
    put = held(driver, do.PutEntry)
    driver.world.put(put.number, put.data)
    driver.hold = lambda _: False
    driver.push(ev.EntryPut(put.ticket, put.number, Outcome.UNKNOWN, "lost"))
    assert records(driver.world)[-1] == (3, True)
    assert "Triggered" in kinds(begin(driver, 4))


def test_a_start_is_told_which_sources_may_not_give_their_rows_again() -> None:
    said = starts(World(), "a", forgetful=("memory",))[1]
    assert "memory may not give them again" in told(said, do.Log).message
    assert started(said).gate is Gate.BACKGROUND


def test_a_drain_is_declined() -> None:
    driver = settled()
    said = driver.push(ev.TriggerRequested(3, b"", drain=True))
    assert refusal(said).kind is ErrorKind.DECLINED
