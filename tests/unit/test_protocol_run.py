"""A run: plan, acks, seal, `_metadata`, deletion, and every way it can end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, Decline, Handle, HandleKind, StoreId
from spark_ckpt.paths import left_acks_key, pack_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, Claim, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.reasons import AbortReason, Outcome
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import JOB, Driver, World, ack, commit, offsets, uid_of
from tests.drivers.protocol_runs import held, kinds, reasons, running


def run_of(driver: Driver) -> Run:
    assert isinstance(driver.stream.run, Run)
    return driver.stream.run


def test_an_epoch_instruction_by_instruction() -> None:
    driver = running()
    stream = driver.stream
    trigger = stream.handle(ev.TriggerRequested(0, offsets(0), {"sources/0/0": b"s"}), 100)
    cancel, put, timer = trigger
    assert isinstance(cancel, do.CancelTimer)
    assert isinstance(timer, do.SetTimer)
    assert isinstance(put, do.PutEntry)
    assert (timer.timer, timer.after_ms) == (ev.Timer.PLAN, 600_000)
    assert (put.number, put.attempt, put.data) == (2, 0, encode(Plan(1, 1, 0, offsets(0), {"sources/0/0": b"s"})))
    (past,) = stream.handle(ev.EntryPut(put.ticket, 2, Outcome.STORED), 130)
    assert isinstance(past, do.LookPast), "it is not said when the entry was stored"
    planned = stream.handle(ev.PastSeen(past.ticket, 2, None), 130)
    assert planned[:2] == [do.CancelTimer(timer.ticket), do.Triggered(1, 0, None, 130)]
    assert kinds(planned[2:]) == ["TRIGGERED"]
    assert stream.handle(ev.AcksReceived((ack(1, 0, 0),)), 140) == []
    sealing = stream.handle(ev.SealRequested(0, commit([uid_of(1, 0, 0), uid_of(1, 0, 1)])), 150)
    assert kinds(sealing) == ["SetTimer"]
    storing = stream.handle(ev.AcksReceived((ack(1, 0, 1),)), 160)
    assert kinds(storing) == ["StoreMetadata"]
    store = storing[0]
    assert isinstance(store, do.StoreMetadata)
    checkpoint = store.checkpoint
    assert (checkpoint.id, checkpoint.log, checkpoint.claim, checkpoint.query_id) == (CheckpointId(1, 0), 2, 1, "q")
    assert set(checkpoint.files) == {"offsets/0", "commits/0", "sources/0/0"}
    assert [s.uid for s in checkpoint.snapshots] == [uid_of(1, 0, 0), uid_of(1, 0, 1)]
    done = stream.handle(ev.MetadataPut(store.ticket, checkpoint.id, Outcome.STORED, 777), 170)
    assert kinds(done) == ["CancelTimer", "Sealed", "SetTimer", "COMPLETED"]
    sealed = done[1]
    assert isinstance(sealed, do.Sealed)
    assert sealed.summary == {
        "run": 1,
        "epoch": 0,
        "time_ms": 100,
        "acked": 2,
        "required": 2,
        "new_bytes": 20,
        "full_bytes": 20,
        "metadata_bytes": 777,
        "duration_ms": 70,
        "plan_ms": 30,
        "finalise_ms": 10,
        "sync_ms_max": 1.0,
        "async_ms_max": 2.0,
        "operators": {
            "0": {
                "snapshots": 2,
                "partitions": 2,
                "new_bytes": 20,
                "full_bytes": 20,
                "sync_ms_max": 1.0,
                "async_ms_max": 2.0,
                "start_delay_ms_max": 0.0,
                "commit_ms_max": 0.0,
                "acked_ms_max": 2.0,
            }
        },
    }


def test_a_stateless_epoch_completes_at_its_seal() -> None:
    driver = running()
    driver.trigger(0)
    assert kinds(driver.push(ev.SealRequested(0, b'v1\n{"nextBatchWatermarkMs":0}'))) == ["Sealed", "COMPLETED"]


def test_a_barrier_names_the_packs_that_the_newest_checkpoint_hardly_needs() -> None:
    driver = running()
    pack = pack_key(1, "a", 100)
    for epoch, length in ((0, 50), (1, 49), (2, 49)):
        told = [i for i in driver.trigger(epoch) if isinstance(i, do.Triggered)]
        assert told[0].sparse == ((pack,) if epoch == 2 else ())
        first = ack(1, epoch, 0)
        handles = (Handle(HandleKind.SST, "SSTs/x.sst", pack, 0, length, 0), *first.snapshot.handles)
        driver.push(ev.AcksReceived((replace(first, snapshot=replace(first.snapshot, handles=handles)),)))
        driver.ack(1, epoch, 1)
        driver.seal(1, epoch)


def test_deletion_waits_for_the_next_plan_and_spares_shared_objects() -> None:
    world = World()
    driver = running(world, Settings(retained=1))
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(0)
    for p in range(2):
        driver.push(ev.AcksReceived((ack(1, 0, p, obj=f"run-00000001/seg/0-{p}"),)))
    driver.seal(1, 0)
    driver.trigger(1)
    driver.push(ev.AcksReceived((ack(1, 1, 0, obj="run-00000001/seg/0-0"),)))
    driver.push(ev.AcksReceived((ack(1, 1, 1, obj="run-00000001/seg/1-1"),)))
    driver.seal(1, 1)
    assert driver.held == []
    driver.trigger(2)
    delete = held(driver, do.Delete)
    assert (delete.checkpoints, delete.objects) == ((CheckpointId(1, 0),), ("run-00000001/seg/0-1",))


def test_a_failed_deletion_is_tried_again_after_the_next_plan() -> None:
    driver = running(settings=Settings(retained=1))
    driver.hold = lambda i: isinstance(i, do.Delete)
    for epoch in range(3):
        driver.epoch(1, epoch)
    delete = held(driver, do.Delete)
    assert kinds(driver.push(ev.Deleted(delete.ticket, "denied"))) == ["Log"]
    driver.trigger(3)
    assert [i.checkpoints for i in driver.held if isinstance(i, do.Delete)] == [(CheckpointId(1, 0), CheckpointId(1, 1))]


def test_a_storage_that_refuses_deletions_is_asked_less_and_less() -> None:
    driver = running(settings=Settings(retained=1))
    driver.hold = lambda i: isinstance(i, do.Delete)
    asked = []
    for number in range(100):
        driver.epoch(1, number)
        for delete in [i for i in driver.held if isinstance(i, do.Delete)]:
            asked.append(number)
            driver.held.remove(delete)
            driver.push(ev.Deleted(delete.ticket, "denied"))
    assert asked == [2, 3, 6, 13, 28, 59]
    last = [i.message for i in driver.said if isinstance(i, do.Log)][-1]
    assert "(58 checkpoints, 116 objects): denied" in last, "what it costs grows, and is told"
    driver.hold = lambda _: False
    for number in range(100, 130):
        driver.epoch(1, number)
    assert set(driver.world.checkpoints) == {CheckpointId(1, 129), CheckpointId(1, 128)}, "allowed again, all that waited goes"


def test_what_losing_attempts_uploaded_goes_after_a_later_checkpoint() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(0)
    driver.push(ev.AcksReceived((ack(1, 0, 0, "loser", obj="run-00000001/seg/0-loser"),)))
    driver.push(ev.AcksReceived((ack(1, 0, 1, "other", obj="run-00000001/seg/0-reused"),)))
    driver.rest(1, 0)
    driver.push(ev.AcksReceived((ack(1, 0, 0, "late", obj="run-00000001/seg/0-late"),)))
    driver.trigger(1)
    driver.push(ev.AcksReceived((ack(1, 1, 0, obj="run-00000001/seg/0-reused"),)))
    driver.ack(1, 1, 1)
    driver.seal(1, 1)
    assert driver.held == []
    driver.trigger(2)
    delete = held(driver, do.Delete)
    assert (delete.checkpoints, delete.objects) == ((), ("run-00000001/seg/0-late", "run-00000001/seg/0-loser"))
    driver.push(ev.AcksReceived((ack(1, 2, 0, obj="run-00000001/seg/0-loser"),)))
    assert kinds(driver.seal(1, 2)) == ["ABORTED", "seal DECLINED", "Failed"]


def test_acks_that_come_together_count_each_for_itself() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(0)
    loser = ack(1, 0, 0, "loser", obj="run-00000001/seg/0-loser")
    driver.push(ev.AcksReceived((loser, ack(1, 0, 0), ack(1, 0, 0), ack(2, 0, 1, "another run's"), ack(1, 0, 1))))
    told = driver.seal(1, 0)
    assert kinds(told) == ["Sealed", "COMPLETED"]
    assert {s.uid for s in driver.world.checkpoints[CheckpointId(1, 0)].snapshots} == {ack(1, 0, p).snapshot.uid for p in range(2)}
    driver.epoch(1, 1)
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(2)
    assert held(driver, do.Delete).objects == ("run-00000001/seg/0-loser",)
    gone = ack(1, 2, 0, obj="run-00000001/seg/0-loser")
    driver.push(ev.AcksReceived((gone, ack(1, 2, 1))))
    assert kinds(driver.seal(1, 2)) == ["ABORTED", "seal DECLINED", "Failed"]


def test_the_acks_of_two_checkpoints_may_come_together() -> None:
    driver = running()
    driver.trigger(0)
    driver.seal(1, 0)
    told = driver.push(ev.AcksReceived((ack(1, 0, 1), ack(1, 1, 0), ack(1, 0, 0))))
    assert kinds(told) == ["Sealed", "COMPLETED"]


def test_what_a_losing_attempt_uploaded_beside_a_deleted_object_goes_too() -> None:
    driver = running()
    driver.trigger(0)
    driver.push(ev.AcksReceived((ack(1, 0, 0, "loser", obj="run-00000001/seg/0-loser"),)))
    driver.rest(1, 0)
    driver.epoch(1, 1)
    driver.hold = lambda i: isinstance(i, do.Delete)
    driver.trigger(2)
    deletion = held(driver, do.Delete)
    assert deletion.objects == ("run-00000001/seg/0-loser",)
    first, second = (ack(1, 2, 0, "again", obj=f"run-00000001/seg/{name}") for name in ("0-loser", "2-again"))
    handles = (*first.snapshot.handles, *second.snapshot.handles)
    driver.push(ev.AcksReceived((replace(first, snapshot=replace(first.snapshot, handles=handles)),)))
    driver.rest(1, 2)
    driver.epoch(1, 3)
    driver.push(ev.Deleted(deletion.ticket))
    driver.trigger(4)
    assert held(driver, do.Delete).objects == ("run-00000001/seg/0-p0", "run-00000001/seg/0-p1", "run-00000001/seg/2-again")


def test_an_unknown_outcome_of_the_plan_is_read_back() -> None:
    world = World()
    driver = running(world)
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.trigger(0)
    put = held(driver, do.PutEntry)
    world.put(put.number, put.data)
    driver.hold = lambda _: False
    assert kinds(driver.push(ev.EntryPut(put.ticket, put.number, Outcome.UNKNOWN)))[0] == "Triggered"


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_a_plan_that_did_not_arrive_is_put_again(outcome: Outcome) -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.PutEntry)
    driver.trigger(0)
    put = held(driver, do.PutEntry)
    driver.push(ev.EntryPut(put.ticket, put.number, outcome, "slow"))
    again = held(driver, do.PutEntry)
    assert (again.number, again.attempt, again.data) == (put.number, 1, put.data)


def test_a_plan_behind_a_request_takes_the_next_number() -> None:
    driver = running()
    number = driver.request(SAVEPOINT)
    assert kinds(driver.trigger(0)) == ["Triggered", "TRIGGERED"]
    assert isinstance(decode(number + 1, driver.world.log[number + 1]), Plan)


def test_a_successors_claim_fences_and_tells_no_listener() -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    world.log[3] = encode(Claim(3, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    said = driver.trigger(1)
    assert kinds(said) == ["trigger FENCED", "Failed"]
    assert isinstance(said[0], do.Refused)
    assert "run 2 on host other" in said[0].message
    assert kinds(driver.trigger(1)) == ["trigger FENCED"]
    assert driver.push(ev.AcksReceived((ack(1, 1, 0),))) == []


def test_a_fenced_run_may_complete_what_it_had_planned_and_deletes_nothing() -> None:
    world = World()
    driver = running(world, Settings(retained=1))
    driver.epoch(1, 0)
    driver.trigger(1)
    world.log[4] = encode(Claim(4, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    assert kinds(driver.rest(1, 1)) == ["Sealed", "COMPLETED"]
    assert kinds(driver.trigger(2)) == ["trigger FENCED", "Failed"]
    assert set(world.checkpoints) == {CheckpointId(1, 0), CheckpointId(1, 1)}


def test_an_idle_run_notices_its_successor() -> None:
    world = World()
    driver = running(world)
    assert driver.fire(ev.Timer.IDLE) == []
    world.log[2] = encode(Claim(2, 2, "q", JOB, None, (), (), "other", {}, 0, "n"))
    said = driver.fire(ev.Timer.IDLE)
    assert kinds(said) == ["Failed"], "a query that has nothing to do would stay for ever"
    assert isinstance(said[0], do.Failed)
    assert (said[0].kind, "run 2 on host other" in said[0].message) == (ErrorKind.FENCED, True)
    assert kinds(driver.trigger(0)) == ["trigger FENCED"]


def test_a_look_that_is_answered_late_is_ignored() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, do.ReadEntry)
    driver.fire(ev.Timer.IDLE)
    look = held(driver, do.ReadEntry)
    driver.trigger(0)
    assert driver.push(ev.EntryRead(look.ticket, look.number, encode(Plan(1, 1, 0, offsets(0))))) == []
    assert kinds(driver.rest(1, 0)) == ["Sealed", "COMPLETED"]


@pytest.mark.parametrize("arrived", [True, False])
def test_an_unknown_outcome_of_the_final_put(arrived: bool) -> None:
    world = World()
    driver = running(world)
    driver.trigger(0)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.ReadMetadata, do.Delete))
    assert driver.rest(1, 0) == []
    put = held(driver, do.StoreMetadata)
    if arrived:
        world.store(put.checkpoint)
    assert driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, 0, "lost")) == []
    read = held(driver, do.ReadMetadata)
    driver.hold = lambda _: False
    said = driver.push(ev.MetadataRead(read.ticket, read.id, world.checkpoints.get(read.id)))
    assert kinds(said) == ["Sealed", "COMPLETED"]
    assert set(world.checkpoints) == {CheckpointId(1, 0)}


def test_another_metadata_under_our_name_is_never_taken_for_ours() -> None:
    world = World()
    driver = running(world)
    driver.trigger(0)
    driver.hold = lambda i: isinstance(i, do.StoreMetadata)
    driver.rest(1, 0)
    put = held(driver, do.StoreMetadata)
    driver.hold = lambda i: isinstance(i, do.ReadMetadata)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.EXISTS))
    read = held(driver, do.ReadMetadata)
    other = running()
    other.trigger(0)
    other.ack(1, 0, 0)
    other.seal(1, 0, partitions=1)
    said = driver.push(ev.MetadataRead(read.ticket, read.id, other.world.checkpoints[read.id]))
    assert kinds(said) == ["ABORTED", "seal CONFLICT", "Failed"]
    assert reasons(driver) == [AbortReason.FINALISE_FAILURE.value]


def test_time_out_of_plan_seal_and_final_put() -> None:
    for phase, expected in (("plan", "trigger TIMEOUT"), ("seal", "seal TIMEOUT"), ("put", "seal TIMEOUT")):
        driver = running()
        driver.hold = lambda i, p=phase: isinstance(i, do.PutEntry if p == "plan" else do.StoreMetadata)  # type: ignore[misc]
        driver.trigger(0)
        if phase != "plan":
            driver.ack(1, 0, 0)
            driver.seal(1, 0, partitions=2 if phase == "seal" else 1)
        said = driver.fire(ev.Timer.PLAN if phase == "plan" else ev.Timer.EXPIRY)
        assert kinds(said) == ["ABORTED", expected, "Failed"]
        assert kinds(driver.trigger(1)) == ["trigger TIMEOUT"]
        assert driver.world.checkpoints == {}


def test_only_a_needed_decline_fails_the_query() -> None:
    driver = running()
    driver.trigger(0)
    driver.push(ev.DeclineReceived(Decline(1, 0, StoreId(0, 0, "default"), "loser", "1", "disk full")))
    assert kinds(driver.rest(1, 0)) == ["Sealed", "COMPLETED"]
    driver.trigger(1)
    driver.push(ev.DeclineReceived(Decline(1, 1, StoreId(0, 0, "default"), uid_of(1, 1, 0), "1", "disk full")))
    said = driver.seal(1, 1)
    assert kinds(said) == ["ABORTED", "seal DECLINED", "Failed"]
    assert reasons(driver) == ["DECLINED"]


def test_a_store_that_took_no_part_is_carried_over() -> None:
    driver = running()
    driver.epoch(1, 0)
    driver.trigger(1)
    driver.ack(1, 1, 1)
    said = driver.push(ev.SealRequested(1, commit([uid_of(1, 0, 0), uid_of(1, 1, 1)])))
    assert kinds(said) == ["Sealed", "COMPLETED"]
    assert [s.uid for s in driver.world.checkpoints[CheckpointId(1, 1)].snapshots] == [uid_of(1, 0, 0), uid_of(1, 1, 1)]


@pytest.mark.parametrize("when", ["before the seal", "after the seal"])
def test_lost_snapshots_let_the_epoch_run_again_in_place(when: str) -> None:
    driver = running()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    if when == "before the seal":
        driver.push(ev.ExecutorsLost(frozenset({"2"})))
    assert driver.seal(1, 0) == []
    if when == "after the seal":
        driver.push(ev.ExecutorsLost(frozenset({"2"})))
    said = driver.fire(ev.Timer.GRACE)
    assert kinds(said) == ["ABORTED", "seal LOST"]
    assert reasons(driver) == ["LOST"]
    driver.ack(1, 0, 1)
    for p in range(2):
        driver.ack(1, 0, p, f"again-{p}")
    assert kinds(driver.push(ev.SealRequested(0, commit(["again-0", "again-1"])))) == ["Sealed", "COMPLETED"]
    assert kinds(driver.epoch(1, 1)) == ["Triggered", "TRIGGERED", "Sealed", "COMPLETED"]


def test_snapshots_that_a_live_executor_holds_are_waited_for() -> None:
    driver = running()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.push(ev.HoldingReceived("1", frozenset([uid_of(1, 0, 1)])))
    assert driver.fire(ev.Timer.GRACE) == []
    assert kinds(driver.ack(1, 0, 1)) == ["Sealed", "COMPLETED"]


def looking_for_a_lost_executors_ack() -> tuple[Driver, do.ReadLeftAcks]:
    driver = running()
    driver.trigger(0)
    driver.ack(1, 0, 0)
    driver.seal(1, 0)
    driver.push(ev.ExecutorsLost(frozenset({"2"})))
    driver.hold = lambda i: isinstance(i, do.ReadLeftAcks)
    driver.fire(ev.Timer.GRACE)
    return driver, held(driver, do.ReadLeftAcks)


def test_acks_left_in_the_storage_by_an_agent_count() -> None:
    driver, left = looking_for_a_lost_executors_ack()
    assert kinds(driver.push(ev.LeftAcksRead(left.ticket, (ack(1, 0, 1),)))) == ["Sealed", "COMPLETED"]


def test_acks_that_were_read_in_the_storage_go_when_a_later_checkpoint_is_complete() -> None:
    driver, left = looking_for_a_lost_executors_ack()
    key = left_acks_key(1, 0, "orphan")
    driver.world.objects.add(key)
    driver.push(ev.LeftAcksRead(left.ticket, (ack(1, 0, 1),), (key,)))
    driver.hold = lambda _: False
    driver.epoch(1, 1)
    assert key in driver.world.objects, "nothing is deleted before the next append"
    driver.trigger(2)
    assert key not in driver.world.objects


def test_left_acks_that_cannot_be_read_are_told_and_not_waited_for() -> None:
    driver, left = looking_for_a_lost_executors_ack()
    said = driver.push(ev.LeftAcksRead(left.ticket, (), (), ("ack/0-x is not a list of acknowledgements",)))
    assert kinds(said) == ["Log", "ABORTED", "seal LOST"]
    assert "ack/0-x is not a list" in next(i.message for i in said if isinstance(i, do.Log))


def test_an_answer_about_left_acks_that_comes_too_late_is_ignored() -> None:
    driver, left = looking_for_a_lost_executors_ack()
    assert kinds(driver.ack(1, 0, 1)) == ["Sealed", "COMPLETED"]
    assert driver.push(ev.ReadFailed(left.ticket, "late")) == []


def test_an_unreadable_commit_fails_the_query() -> None:
    driver = running()
    driver.trigger(0)
    assert kinds(driver.push(ev.SealRequested(0, b"v2\n{"))) == ["ABORTED", "seal DAMAGED", "Failed"]


def test_a_storage_that_refuses_for_good_is_not_asked_again() -> None:
    driver = running()
    driver.hold = lambda i: isinstance(i, (do.PutEntry, do.StoreMetadata))
    driver.trigger(0)
    put = held(driver, do.PutEntry)
    said = driver.push(ev.EntryPut(put.ticket, put.number, Outcome.HOPELESS, "no such bucket"))
    assert kinds(said) == ["ABORTED", "trigger STORAGE", "Failed"]


def test_a_wrong_epoch_is_refused_by_name() -> None:
    driver = running()
    said = driver.trigger(3)
    assert isinstance(said[0], do.Refused)
    assert (said[0].request, said[0].kind) == (RequestName.TRIGGER, ErrorKind.INTERNAL)
    assert "epoch 3" in said[0].message


def resumed(world: World, epoch: int, claim: int = 1, run: int = 1) -> tuple[Driver, list[Instruction]]:
    driver = Driver(world)
    return driver, driver.push(ev.ResumeRequested(run, claim, epoch))


def test_resume_in_the_middle_of_an_epoch() -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.push(ev.TriggerRequested(1, offsets(1), {"sources/0/1": b"x"}))
    driver.ack(1, 1, 0)
    log = dict(world.log)
    other, said = resumed(world, 1)
    assert kinds(said) == ["Resumed", "STANDS", "TRIGGERED"]
    assert kinds(other.push(ev.TriggerRequested(1, offsets(1), {"sources/0/1": b"x"}))) == ["Triggered"]
    assert world.log == log
    assert kinds(other.rest(1, 1)) == ["Sealed", "COMPLETED"]
    assert "sources/0/1" in world.checkpoints[CheckpointId(1, 1)].files
    assert kinds(other.epoch(1, 2)) == ["Triggered", "TRIGGERED", "Sealed", "COMPLETED"]


def test_resume_after_the_checkpoint_answers_the_repeated_seal() -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    other, said = resumed(world, 0)
    assert kinds(said) == ["Resumed", "STANDS"]
    assert kinds(other.seal(1, 0)) == ["Sealed"]
    assert kinds(other.epoch(1, 1))[-1] == "COMPLETED"


def test_what_comes_while_resuming_waits() -> None:
    world = World()
    driver = running(world)
    driver.trigger(0)
    other = Driver(world)
    other.hold = lambda i: isinstance(i, do.LocateTail)
    other.push(ev.ResumeRequested(1, 1, 0))
    for p in range(2):
        other.ack(1, 0, p)
    assert other.seal(1, 0) == []
    assert kinds(other.release()) == ["Resumed", "TRIGGERED", "Sealed", "COMPLETED"]


@pytest.mark.parametrize("damaged", [CheckpointId(1, 0), CheckpointId(1, 1)])
def test_resume_needs_the_newest_checkpoint_only(damaged: CheckpointId) -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.epoch(1, 1)
    driver.trigger(2)
    world.damaged[damaged] = "half of it"
    other, said = resumed(world, 2)
    assert kinds(said) == (["Resumed", "STANDS", "TRIGGERED"] if damaged.epoch == 0 else ["resume DAMAGED"])
    if damaged.epoch == 0:
        other.rest(1, 2)
        assert CheckpointId(1, 2) in world.checkpoints


def test_a_superseded_run_cannot_be_resumed_and_what_waits_is_fenced() -> None:
    world = World()
    driver = running(world)
    driver.trigger(0)
    Driver(world).start("b")
    other = Driver(world)
    other.hold = lambda i: isinstance(i, do.LocateTail)
    other.push(ev.ResumeRequested(1, 1, 0))
    other.seal(1, 0)
    assert kinds(other.release()) == ["resume FENCED", "seal FENCED"]
    assert kinds(other.trigger(0)) == ["trigger FENCED"]


@pytest.mark.parametrize("request_behind", [False, True])
def test_a_run_that_has_noted_damage_is_not_resumed(request_behind: bool) -> None:
    """What it appended behind that would hide it from the next start, which would load the same damage."""
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.epoch(1, 1)
    driver.trigger(2)
    driver.push(ev.DamageReported(None, CheckpointId(1, 1), "checksum"))
    if request_behind:
        driver.request(SAVEPOINT)
    entries = len(world.log)
    other, said = resumed(world, 2)
    assert kinds(said) == ["resume DAMAGED"]
    assert "checkpoint run 1 epoch 1 cannot be restored (checksum)" in next(i.message for i in said if isinstance(i, do.Refused))
    assert kinds(other.trigger(2)) == ["trigger DAMAGED"]
    assert kinds(other.push(ev.StopRequested(failed=True))) == ["Stopped"]
    assert len(world.log) == entries
    again = next(i for i in Driver(world).start("b") if isinstance(i, do.Started))
    assert again.origin == CheckpointId(1, 0)


def test_resume_of_a_rerun_epoch_keeps_its_plan() -> None:
    world = World()
    driver = running(world)
    driver.epoch(1, 0)
    driver.trigger(1)
    again = Driver(world)
    again.start("b")
    other, said = resumed(world, 1, claim=4, run=2)
    assert kinds(said) == ["Resumed", "TRIGGERED"]
    assert kinds(other.rest(2, 1)) == ["Sealed", "COMPLETED"]


def test_what_waits_to_be_deleted_stays_where_damage_is_found() -> None:
    """(1) Checkpoint 1 waits while another deletion is under way; (2) all that is retained turns out damaged; (3) the start goes back."""
    driver = running()
    driver.hold = lambda i: isinstance(i, do.Delete)
    for epoch in range(8):
        driver.epoch(1, epoch)
    deletion = held(driver, do.Delete)
    assert deletion.checkpoints == (CheckpointId(1, 0),)
    driver.push(ev.DamageReported(None, CheckpointId(1, 7), "checksum"))
    driver.push(ev.Deleted(deletion.ticket))
    assert driver.held == []
    assert CheckpointId(1, 1) in driver.world.checkpoints
