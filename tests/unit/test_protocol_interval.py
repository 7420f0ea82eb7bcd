"""A run in the interval mode: when checkpoints begin, how several complete, and every way one can end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Decline, Handle, StoreId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Claim, decode, encode
from spark_ckpt.protocol.instructions import Gate, Instruction
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.settings import Settings
from tests.drivers.interval_runs import EVERY, due, epoch, pending_two, plain, run_of, running, storing, storing_two, told
from tests.drivers.protocol_driving import JOB, Driver, World, ack, commit, offsets, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons


def test_an_epoch_between_two_checkpoints_asks_for_no_snapshot_and_waits_for_nothing() -> None:
    driver = running()
    triggered = driver.trigger(0)
    assert told(triggered, do.Triggered) == do.Triggered(1, 0, None, driver.now, checkpoint=False, late=None)
    sealed = driver.seal(1, 0)
    assert kinds(sealed) == ["Sealed"]
    answer = told(sealed, do.Sealed)
    assert answer.summary is None
    assert (answer.lag.epochs, answer.lag.bytes) == (1, 0)
    assert driver.world.checkpoints == {}


def test_the_interval_makes_the_next_epoch_a_checkpoint_and_the_one_after_not() -> None:
    driver = running()
    driver.trigger(0)
    due(driver)
    driver.seal(1, 0)
    assert kinds(epoch(driver, 1)) == ["Triggered", "TRIGGERED", "Sealed", "COMPLETED"]
    assert set(driver.world.checkpoints) == {CheckpointId(1, 1)}
    assert set(driver.world.checkpoints[CheckpointId(1, 1)].files) == {"offsets/0", "commits/0", "offsets/1", "commits/1"}
    assert kinds(epoch(driver, 2)) == ["Triggered", "Sealed"]
    due(driver)
    assert kinds(epoch(driver, 3))[-1] == "Sealed"


def test_while_idle_the_newest_finished_epoch_becomes_the_checkpoint() -> None:
    driver = running()
    epoch(driver, 0)
    assert kinds(due(driver)) == ["TRIGGERED", "Late"]
    triggered = driver.trigger(1)
    assert (told(triggered, do.Triggered).checkpoint, told(triggered, do.Triggered).late) == (False, 0)
    driver.ack(1, 0, 0)
    done = driver.ack(1, 0, 1)
    assert kinds(done) == ["Late", "COMPLETED"]
    assert told(done, do.Late).epoch is None
    assert due(driver) == []
    assert kinds(driver.seal(1, 1)) == ["Sealed"]


def test_an_idle_stream_makes_no_checkpoint_twice() -> None:
    driver = running()
    epoch(driver, 0)
    due(driver)
    for p in range(2):
        driver.ack(1, 0, p)
    assert due(driver) == []
    assert told(driver.trigger(1), do.Triggered).checkpoint


def test_the_first_delay_is_between_pause_and_interval_and_depends_on_the_nonce() -> None:
    delays = set()
    for n in range(50):
        driver = Driver(World(), Settings(interval_ms=1000, min_pause_ms=400))
        stream = driver.stream
        events: list[ev.Event] = [ev.StartRequested("q", JOB, (), f"nonce-{n}", "host")]
        while events:
            for i in stream.handle(events.pop(0), 1):
                if isinstance(i, do.SetTimer) and i.timer is ev.Timer.INTERVAL:
                    delays.add(i.after_ms)
                elif not isinstance(i, (do.SetTimer, do.Started)):
                    reply = driver.answer(i)
                    events += [reply] if reply else []
    assert min(delays) >= 400
    assert max(delays) <= 1000
    assert len(delays) > 20


def test_pause_and_concurrency_hold_back_a_checkpoint_that_is_due() -> None:
    driver = running(min_pause_ms=3000)
    driver.trigger(0)
    due(driver)
    driver.seal(1, 0)
    assert told(driver.trigger(1), do.Triggered).checkpoint
    driver.seal(1, 1)
    due(driver)
    assert not told(driver.trigger(2), do.Triggered).checkpoint, "one is pending"
    for p in range(2):
        driver.ack(1, 1, p)
    driver.seal(1, 2)
    assert not told(driver.trigger(3), do.Triggered).checkpoint, "the pause"
    driver.fire(ev.Timer.PAUSE)
    driver.seal(1, 3)
    assert told(driver.trigger(4), do.Triggered).checkpoint


def test_a_newer_checkpoint_subsumes_an_older_one_whose_acks_come_too_late() -> None:
    driver = running(max_concurrent=2)
    pending_two(driver)
    driver.ack(1, 0, 0)
    driver.ack(1, 1, 0)
    said = driver.ack(1, 1, 1)
    assert kinds(said) == ["COMPLETED", "ABORTED"]
    assert reasons(driver) == ["SUBSUMED"]
    assert driver.ack(1, 0, 1) == []
    assert set(driver.world.checkpoints) == {CheckpointId(1, 1)}
    due(driver)
    driver.trigger(2)
    driver.hold = lambda i: isinstance(i, do.Delete)
    for p in range(2):
        driver.ack(1, 2, p)
    driver.seal(1, 2)
    assert driver.held == []
    driver.trigger(3)
    assert held(driver, do.Delete).objects == ("run-00000001/seg/0-p0", "run-00000001/seg/0-p1")


def test_an_older_checkpoint_completes_after_a_newer_one_if_its_metadata_is_under_way() -> None:
    driver = running(max_concurrent=2)
    pending_two(driver)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    for number in range(2):
        for p in range(2):
            driver.ack(1, number, p)
    first, second = driver.held
    driver.held, driver.hold = [], lambda _: False
    assert isinstance(first, do.StoreMetadata)
    assert isinstance(second, do.StoreMetadata)
    driver.world.store(second.checkpoint)
    assert kinds(driver.push(ev.MetadataPut(second.ticket, second.checkpoint.id, Outcome.STORED))) == ["COMPLETED"]
    driver.world.store(first.checkpoint)
    assert kinds(driver.push(ev.MetadataPut(first.ticket, first.checkpoint.id, Outcome.STORED))) == ["COMPLETED"]
    assert run_of(driver).completed == (CheckpointId(1, 0), CheckpointId(1, 1))
    assert run_of(driver).base == CheckpointId(1, 1)


def test_a_subsumed_checkpoints_object_stays_if_a_pending_one_names_it() -> None:
    driver = running(max_concurrent=3)
    pending_two(driver)
    due(driver)
    driver.trigger(2)
    shared = "run-00000001/seg/0-p0"
    driver.ack(1, 0, 0)
    driver.push(ev.AcksReceived((ack(1, 2, 0, obj=shared),)))
    for p in range(2):
        driver.ack(1, 1, p)
    assert reasons(driver) == ["SUBSUMED"]
    driver.ack(1, 2, 1)
    driver.seal(1, 2)
    for number in range(3, 6):
        due(driver)
        epoch(driver, number)
    assert CheckpointId(1, 2) not in run_of(driver).completed[:-3]
    assert shared in driver.world.objects
    assert driver.world.checkpoints[CheckpointId(1, 3)].objects <= driver.world.objects


def test_failures_in_a_row_are_tolerated_and_a_success_resets_them() -> None:
    driver = running(tolerable_failures=1)

    def expire(number: int) -> list[Instruction]:
        plain(driver, number)
        driver.trigger(number + 1)
        driver.seal(1, number + 1)
        return driver.fire(ev.Timer.EXPIRY)

    assert kinds(expire(0)) == ["ABORTED"]
    plain(driver, 2)
    assert kinds(epoch(driver, 3))[-1] == "COMPLETED"
    assert kinds(expire(4)) == ["ABORTED"]
    said = expire(6)
    assert kinds(said) == ["ABORTED", "Failed"]
    failed = told(said, do.Failed)
    assert failed.kind is ErrorKind.TIMEOUT
    assert "2 checkpoints in a row failed" in failed.message
    assert kinds(driver.trigger(8)) == ["trigger TIMEOUT"]
    assert reasons(driver) == ["EXPIRED"] * 3


def test_a_declined_snapshot_counts_and_one_that_nobody_needs_does_not() -> None:
    driver = running()
    due(driver)
    driver.trigger(0)
    driver.push(ev.DeclineReceived(Decline(1, 0, StoreId(0, 0, "default"), "loser", "1", "disk full")))
    driver.seal(1, 0)
    driver.push(ev.DeclineReceived(Decline(1, 7, StoreId(0, 0, "default"), uid_of(1, 0, 0), "1", "no such checkpoint")))
    said = driver.push(ev.DeclineReceived(Decline(1, 0, StoreId(0, 0, "default"), uid_of(1, 0, 0), "1", "disk full")))
    assert kinds(said) == ["ABORTED", "Failed"]
    assert "disk full" in told(said, do.Failed).message


def test_an_executors_loss_aborts_what_only_it_had_and_does_not_count() -> None:
    driver = running()
    due(driver)
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.seal(1, 0)
    assert kinds(driver.fire(ev.Timer.GRACE)) == ["ABORTED"]
    assert reasons(driver) == ["LOST"]
    plain(driver, 1)
    assert kinds(epoch(driver, 2))[-1] == "COMPLETED"


def test_acks_left_in_the_storage_and_snapshots_that_live_executors_hold_save_a_checkpoint() -> None:
    driver = running()
    due(driver)
    driver.trigger(0)
    driver.seal(1, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.push(ev.HoldingReceived("1", frozenset([uid_of(1, 0, 1)]), 77))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    driver.fire(ev.Timer.GRACE)
    left = held(driver, do.ReadLeftAcks)
    assert driver.push(ev.LeftAcksRead(left.ticket, (ack(1, 0, 0),))) == []
    done = told(driver.ack(1, 0, 1), do.Announce)
    assert (done.event.value, done.summary["lag_epochs"], done.summary["lag_bytes"]) == ("COMPLETED", 0, 77)


def test_an_unreadable_commit_aborts_its_checkpoint_and_does_not_stop_others() -> None:
    driver = running(tolerable_failures=1)
    due(driver)
    driver.trigger(0)
    assert kinds(driver.push(ev.SealRequested(0, b"v2\n{"))) == ["Sealed", "ABORTED"]
    driver.trigger(1)
    assert kinds(driver.push(ev.SealRequested(1, b"v2\n{"))) == ["Sealed", "Log"]
    assert due(driver) == []
    assert kinds(epoch(driver, 2))[-1] == "COMPLETED"


@pytest.mark.parametrize("lands", [True, False])
def test_a_time_out_while_the_outcome_of_the_final_put_is_unknown_discards_nothing(lands: bool) -> None:
    world = World()
    driver = running(world, tolerable_failures=5, retained=1)
    put = storing(driver)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, 0, "lost"))
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    read = held(driver, do.ReadMetadata)
    assert driver.push(ev.MetadataRead(read.ticket, read.id, None)) == []
    again = held(driver, do.ReadMetadata)
    epoch(driver, 1)
    assert put.checkpoint.objects <= world.objects
    if lands:
        world.store(put.checkpoint)
        assert kinds(driver.push(ev.MetadataRead(again.ticket, again.id, put.checkpoint))) == ["COMPLETED"]
        assert run_of(driver).base == CheckpointId(1, 0)
    driver.hold = lambda _: False
    plain(driver, 2)
    epoch(driver, 3)
    epoch(driver, 4)
    assert run_of(driver).base == CheckpointId(1, 3)
    assert put.checkpoint.objects & world.objects == frozenset()
    assert set(world.checkpoints) == {CheckpointId(1, 3)}
    assert world.checkpoints[CheckpointId(1, 3)].given_up == (() if lands else (0,))
    if not lands:
        assert driver.push(ev.MetadataRead(again.ticket, again.id, None)) == []


def test_what_is_given_up_while_a_newer_one_is_put_goes_with_the_one_after_which_says_so() -> None:
    world = World()
    driver = running(world, max_concurrent=2, tolerable_failures=5, retained=3)
    put, expiry, newer = storing_two(driver)
    assert newer.checkpoint.id == CheckpointId(1, 1)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, 0, "lost"))
    assert kinds(driver.push(ev.TimerFired(expiry, ev.Timer.EXPIRY))) == ["ABORTED"]
    world.store(put.checkpoint)
    world.store(newer.checkpoint)
    assert "COMPLETED" in kinds(driver.push(ev.MetadataPut(newer.ticket, newer.checkpoint.id, Outcome.STORED)))
    driver.hold = lambda i: isinstance(i, do.ReadMetadata)
    due(driver)
    epoch(driver, 2)
    assert set(world.checkpoints) == {CheckpointId(1, 0), CheckpointId(1, 1), CheckpointId(1, 2)}
    assert [world.checkpoints[CheckpointId(1, n)].given_up for n in (1, 2)] == [(), (0,)]
    due(driver)
    epoch(driver, 3)
    assert CheckpointId(1, 0) not in world.checkpoints


def test_the_log_stays_whole_until_a_checkpoint_is_known_to_be_complete() -> None:
    """(1) The first one's `_metadata` has no answer, and never lands; (2) its time is over; (3) epochs go on, a day passes; (4) the next
    start finds no checkpoint, and needs every plan."""
    world = World()
    driver = running(world, tolerable_failures=5)
    plain(driver, 0)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.ReadMetadata))
    epoch(driver, 1)
    put = held(driver, do.StoreMetadata)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, 0, "lost"))
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    driver.trigger(2)
    assert decode(max(world.log), world.log[max(world.log)]).floor == 0
    started = told(Driver(world, EVERY).start("b"), do.Started)
    assert (started.origin, started.epoch, [p.epoch for p in started.planned]) == (None, 0, [1, 2])


def test_a_checkpoint_that_an_epoch_loaded_from_stays_until_a_later_one_completes() -> None:
    world = World()
    driver = running(world, retained=1)
    due(driver)
    epoch(driver, 0)
    plain(driver, 1)
    driver.trigger(2)
    driver.seal(1, 2)
    driver.trigger(3)
    for p in range(2):
        driver.ack(1, 2, p)
    driver.seal(1, 3)
    driver.trigger(4)
    assert set(world.checkpoints) == {CheckpointId(1, 0), CheckpointId(1, 2)}, "epoch 3 may have loaded from checkpoint 0"
    due(driver)
    driver.seal(1, 4)
    epoch(driver, 5)
    driver.trigger(6)
    assert set(world.checkpoints) == {CheckpointId(1, 5)}


def test_a_completion_while_a_plan_is_under_way_deletes_nothing_on_its_strength() -> None:
    world = World()
    driver = running(world, retained=1)
    due(driver)
    epoch(driver, 0)
    plain(driver, 1)
    driver.trigger(2)
    driver.seal(1, 2)
    driver.hold = lambda i: isinstance(i, (do.PutEntry, do.Delete))
    driver.trigger(3)
    put = held(driver, do.PutEntry)
    for p in range(2):
        driver.ack(1, 2, p)
    world.put(put.number, put.data)
    driver.push(ev.EntryPut(put.ticket, put.number, Outcome.STORED))
    assert driver.held == []
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.seal(1, 3)
    driver.trigger(4)
    assert held(driver, do.Delete).checkpoints == (CheckpointId(1, 0),)


def test_fenced_with_checkpoints_under_way_it_tells_nobody_and_deletes_nothing() -> None:
    world = World()
    driver = running(world, max_concurrent=2, retained=1)
    pending_two(driver)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    for p in range(2):
        driver.ack(1, 0, p)
    put = held(driver, do.StoreMetadata)
    world.log[4] = encode(Claim(4, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    assert kinds(driver.trigger(2)) == ["trigger FENCED", "Failed"]
    world.store(put.checkpoint)
    assert driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.STORED)) == []
    assert driver.ack(1, 1, 0) == []
    assert kinds(driver.push(ev.FinishRequested())) == ["finish FENCED"]


def test_what_an_aborted_checkpoint_had_carried_goes() -> None:
    """Nobody had asked for it, so no ack of the checkpoint's names it."""
    driver = running(tolerable_failures=5, retained=1)
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    assert kinds(due(driver)) == ["TRIGGERED", "Late"]
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["Late", "ABORTED"]
    carried = set(driver.world.objects)
    assert carried
    for number in (1, 3):
        plain(driver, number)
        epoch(driver, number + 1)
    driver.trigger(5)
    assert driver.world.objects.isdisjoint(carried)


def test_finish_waits_for_a_checkpoint_of_the_newest_epoch() -> None:
    driver = running()
    epoch(driver, 0)
    assert kinds(driver.push(ev.FinishRequested())) == ["TRIGGERED", "Late"]
    driver.ack(1, 0, 0)
    done = driver.ack(1, 0, 1)
    assert kinds(done) == ["Late", "COMPLETED", "Finished"]
    assert kinds(driver.push(ev.FinishRequested())) == ["Finished"]
    fresh = running()
    assert kinds(fresh.push(ev.FinishRequested())) == ["Finished"]


def test_finish_is_refused_when_the_last_checkpoint_fails() -> None:
    driver = running(tolerable_failures=1)
    epoch(driver, 0)
    driver.push(ev.FinishRequested())
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["Late", "ABORTED", "finish TIMEOUT"]
    strict = running()
    epoch(strict, 0)
    strict.push(ev.FinishRequested())
    assert kinds(strict.fire(ev.Timer.EXPIRY)) == ["Late", "ABORTED", "finish TIMEOUT", "Failed"]


def test_what_was_uploaded_unasked_counts_for_a_late_checkpoint() -> None:
    driver = running()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    driver.ack(1, 0, 1)
    assert kinds(due(driver)) == ["TRIGGERED", "Late", "Late", "COMPLETED"]


def test_a_store_that_took_no_part_is_carried_or_asked_for() -> None:
    driver = running()
    due(driver)
    epoch(driver, 0)
    driver.trigger(1)
    due(driver)
    driver.push(ev.SealRequested(1, commit([uid_of(1, 1, 0), uid_of(1, 0, 1)])))
    driver.trigger(2)
    driver.ack(1, 2, 1)
    said = driver.push(ev.SealRequested(2, commit([uid_of(1, 1, 0), uid_of(1, 2, 1)])))
    assert kinds(said) == ["Sealed", "Late"], "what epoch 1 committed is stored nowhere"
    assert kinds(driver.ack(1, 2, 0, uid_of(1, 1, 0))) == ["Late", "COMPLETED"]


def test_a_half_full_spool_makes_the_next_epoch_a_checkpoint() -> None:
    driver = running(spool_max_bytes=1000)
    driver.trigger(0)
    driver.push(ev.HoldingReceived("1", frozenset(), 501))
    assert told(driver.seal(1, 0), do.Sealed).lag.bytes == 501
    assert told(driver.trigger(1), do.Triggered).checkpoint
    driver.seal(1, 1)
    assert not told(driver.trigger(2), do.Triggered).checkpoint, "one is pending"


def test_planned_epochs_run_again_with_the_same_data_after_a_crash() -> None:
    world = World()
    driver = running(world)
    due(driver)
    for number in range(4):
        epoch(driver, number)
    again = Driver(world, EVERY)
    said = again.start("b")
    started = told(said, do.Started)
    assert (started.origin, started.epoch, started.rerun, [p.epoch for p in started.planned]) == (CheckpointId(1, 0), 1, True, [2, 3])
    assert started.gate is Gate.BACKGROUND
    assert kinds(again.seal(2, 1)) == ["Sealed"]
    assert kinds(again.push(ev.TriggerRequested(2, offsets(7)))) == ["trigger CONFLICT", "Failed"]
    last = Driver(world, EVERY)
    last.start("c")
    last.seal(3, 1)
    due(last)
    assert kinds(last.trigger(2)) == ["Triggered"]
    last.seal(3, 2)
    assert kinds(epoch(last, 3, run=3)) == ["Triggered", "Sealed"]


def test_what_a_source_had_listed_for_an_epoch_that_runs_again_stays_with_it() -> None:
    """Spark's file source reads its whole log when it is made, and refuses one with a hole."""
    world = World()
    driver = running(world)
    due(driver)
    epoch(driver, 0)
    listed = {f"sources/0/{number}": b"v1" for number in (1, 2, 3)}
    for number, path in enumerate(listed, 1):
        driver.trigger(number, {path: listed[path]})
        driver.seal(1, number)
    again = Driver(world, EVERY)
    again.start("b")
    again.seal(2, 1)
    again.trigger(2)
    planned = told(Driver(world, EVERY).start("c"), do.Started).planned
    assert [plan.files for plan in planned] == [{"sources/0/2": b"v1"}, {"sources/0/3": b"v1"}]

    last = Driver(world, EVERY)
    last.start("d")
    last.seal(4, 1)
    last.trigger(2)
    due(last)
    last.seal(4, 2)
    epoch(last, 3, run=4)
    files = world.checkpoints[CheckpointId(4, 3)].files
    assert {path: files[path] for path in files if path.startswith("sources/")} == listed


def test_plans_of_epochs_to_be_run_again_are_found_behind_a_checkpoint_of_one_of_them() -> None:
    """A start appends all of them again, and a trigger its own once more: that later entry is not where the next start begins to look."""
    world = World()
    driver = running(world)
    for number in range(4):
        epoch(driver, number)
    again = Driver(world, EVERY)
    again.start("b")
    due(again)
    again.seal(2, 0)
    epoch(again, 1, run=2)
    assert run_of(again).base == CheckpointId(2, 1)
    last = told(Driver(world, EVERY).start("c"), do.Started)
    assert (last.epoch, last.rerun, [p.epoch for p in last.planned]) == (2, True, [3])


def test_an_epoch_whose_checkpoint_expired_half_stored_becomes_that_very_checkpoint() -> None:
    """While idle the newest epoch is due again: there is one `_metadata` of its name, so it is put again as it was."""
    world = World()
    driver = running(world, tolerable_failures=5, retained=1)
    put = storing(driver)
    assert kinds(driver.fire(ev.Timer.EXPIRY)) == ["ABORTED"]
    assert kinds(due(driver)) == ["TRIGGERED"]
    world.store(put.checkpoint)
    assert kinds(driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.STORED, 1))) == ["COMPLETED"]
    assert driver.held == []
    driver.hold = lambda _: False
    for number in (1, 2):
        assert not told(driver.trigger(number), do.Triggered).checkpoint
        driver.seal(1, number)
    assert set(world.checkpoints) == {CheckpointId(1, 0)}


def test_a_source_that_forgets_keeps_the_gate_per_epoch_and_is_named() -> None:
    driver = Driver(World(), EVERY)
    said = driver.push(ev.StartRequested("q", JOB, (), "n", "host", {}, ("socket",)))
    assert told(said, do.Started).gate is Gate.EPOCH
    assert "socket" in told(said, do.Log).message
    assert kinds(driver.epoch(1, 0)) == ["Triggered", "TRIGGERED", "Sealed", "COMPLETED"]


def test_a_savepoints_checkpoint_that_is_begun_again_because_one_is_due_counts_like_any() -> None:
    driver = running(tolerable_failures=0)
    driver.trigger(0)
    driver.seal(1, 0)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.ReadMetadata))
    driver.request(SAVEPOINT)
    driver.fire(ev.Timer.IDLE)
    for p in range(2):
        driver.ack(1, 0, p)
    assert "ABORTED" in kinds(driver.fire(ev.Timer.EXPIRY))
    assert run_of(driver).making == ()
    due(driver)
    assert run_of(driver).making == (0,)
    assert kinds(driver.fire(ev.Timer.EXPIRY))[-1] == "Failed"


class Counted(tuple[Handle, ...]):
    """Handles that count how often they are gone through."""

    looks = 0

    def __iter__(self) -> Iterator[Handle]:
        Counted.looks += 1
        return super().__iter__()


def test_an_ack_that_nobody_asked_for_costs_no_look_at_those_in_the_making() -> None:
    """There can be tens of thousands, with tens of files each."""
    driver = running()
    due(driver)
    driver.trigger(0)
    for p in range(5):
        made = ack(1, 0, p)
        driver.push(ev.AcksReceived((replace(made, snapshot=replace(made.snapshot, handles=Counted(made.snapshot.handles))),)))
    driver.seal(1, 0, partitions=6)
    driver.trigger(1)
    Counted.looks = 0
    for p in range(5):
        driver.ack(1, 1, p)
    assert Counted.looks == 0
    driver.ack(1, 0, 5)
    assert Counted.looks > 0
    assert set(driver.world.checkpoints) == {CheckpointId(1, 0)}


def test_what_a_checkpoint_in_the_making_names_is_not_released_with_another_ack_that_names_it() -> None:
    driver = running(retained=1)
    due(driver)
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    driver.trigger(1)
    shared = ack(1, 0, 0).snapshot.handles[0].object
    driver.push(ev.AcksReceived((ack(1, 1, 0, uid="unasked", obj=shared),)))
    driver.seal(1, 1)
    driver.ack(1, 0, 1)
    for number in range(2, 6):
        driver.trigger(number)
        driver.seal(1, number)
    assert driver.world.checkpoints[CheckpointId(1, 0)].objects <= driver.world.objects
