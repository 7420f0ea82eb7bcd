"""What a start is refused for: the cause that is there, and a way out that leads out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId, FileHandle
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT as ASKS
from spark_ckpt.protocol.entries import Claim, Damage, End, Plan, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.long_logs import epochs, running, tail_of
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import elsewhere, numbers, own, refusal, started

SAVEPOINT = "s3://b/savepoints/x"
ITS_OWN = "s3://b/savepoints/own"
DISCARD = "spark.ckpt.restore.plans=DISCARD"


def plan_of(world: World, epoch: int) -> int:
    """The entry that plans it."""
    plans = {n: decode(n, data) for n, data in world.log.items()}
    return next(n for n, entry in sorted(plans.items()) if isinstance(entry, Plan) and entry.epoch == epoch)


def logged(said: list[Instruction]) -> str:
    return "\n".join(i.message for i in said if isinstance(i, do.Log))


# --- a stream that began with a copy, and whose log was shortened


def test_a_fork_that_has_had_checkpoints_was_not_cut_short() -> None:
    """Days in its first run, so that the log begins above the claim; then all its checkpoints are gone."""
    world = World()
    world.sources[SAVEPOINT] = elsewhere()
    first = running(world, restore=ev.Restore(SAVEPOINT))
    epochs(first, 1, 3, 60)
    world.sources[ITS_OWN] = world.checkpoints[CheckpointId(1, 60)]
    epochs(first, 1, 61, 62)
    assert 2 not in world.log
    world.checkpoints.clear()
    for restore in (None, ev.Restore(SAVEPOINT)):
        refused = refusal(Driver(world).start("b", restore=restore))
        assert refused.kind is ErrorKind.DAMAGED
        assert "no checkpoint of the stream can be restored: damaged or missing are run 1 epoch 2" in refused.message
    assert numbers(started(Driver(world).start("c", restore=ev.Restore(ITS_OWN)))) == [61, 62, 63]


# --- numbers that a later claim gave anew


def renumbered(retained: int = 5, discard: bool = True) -> tuple[World, Driver]:
    """Epochs 0 to 4; run 2 goes back to epoch 3, and on with epoch 5."""
    world = World()
    epochs(running(world, retained=3), 1, 0, 4)
    second = running(world, "b", restore=replace(own(1, 3), discard=discard), retained=retained)
    return world, second


@pytest.mark.parametrize("discard", [True, False])
def test_a_start_that_reads_while_the_run_that_lives_deletes_looks_again(discard: bool) -> None:
    """(1) A start lists the checkpoints, and reads 1/2; (2) run 2 completes its own, and deletes 1/3, from which it began; (3) the start
    reads 1/3."""
    world, second = renumbered(retained=1, discard=discard)
    following = started(second.said).epoch
    second.hold = lambda i: isinstance(i, do.Delete)
    other = Driver(world, Settings(retained=1))
    other.hold = lambda i: isinstance(i, do.ReadMetadata) and i.id == CheckpointId(1, 3)
    assert other.start("c") == []
    if discard:
        second.epoch(2, following)
    else:
        second.rest(2, following)
    epochs(second, 2, following + 1, following + 2)
    for i in second.held:
        assert isinstance(i, do.Delete)
        for checkpoint in i.checkpoints:  # of objects, `_metadata` goes first
            del world.checkpoints[checkpoint]
    other.hold = lambda _: False
    assert started(other.release()).origin == max(world.checkpoints)


def test_where_the_origin_of_new_numbers_is_damaged_that_is_what_is_said() -> None:
    world, second = renumbered()
    second.trigger(5)
    gone = world.checkpoints[CheckpointId(1, 3)].objects - world.checkpoints[CheckpointId(1, 2)].objects
    world.objects -= gone
    refused = refusal(Driver(world).start("c"))
    assert refused.kind is ErrorKind.DAMAGED
    assert f"put back what is damaged or missing of newer ones: run 1 epoch 3 ({min(gone)})" in refused.message
    assert DISCARD in refused.message
    world.objects |= gone
    assert numbers(started(Driver(world).start("d"))) == [5, 6]


def test_a_choice_that_new_numbers_are_in_the_way_of_is_no_damage() -> None:
    world, second = renumbered()
    second.trigger(5)
    refused = refusal(Driver(world).start("c", restore=own(1, 2)))
    assert refused.kind is ErrorKind.CONFLICT
    assert "put back" not in refused.message


# --- the way out that a refusal names, where it was gone before


def without_a_file(world: World) -> None:
    """An object is gone that the plan of epoch 4 names."""
    at = plan_of(world, 4)
    plan = decode(at, world.log[at])
    assert isinstance(plan, Plan)
    lost = FileHandle("run-00000001/drv/4-" + "0" * 32, 70_000, 1)
    world.log[at] = encode(replace(plan, files={"sources/0/9.compact": lost}))


def without_an_entry(world: World) -> None:
    del world.log[plan_of(world, 5)]


def without_a_plan(world: World) -> None:
    """In the place of the plan of epoch 5, another one of epoch 4."""
    world.log[plan_of(world, 5)] = world.log[plan_of(world, 4)]


def gone_back(own_checkpoint: bool = False) -> tuple[World, ev.Restore]:
    """Epochs 0 to 6; run 2 goes back to epoch 3, and ends before it has a checkpoint, or its own is damaged."""
    world = World()
    epochs(running(world, retained=5), 1, 0, 6)
    second = running(world, "b", restore=own(1, 3), retained=5)
    if own_checkpoint:
        second.rest(2, 4)
        world.damaged[CheckpointId(2, 4)] = "broken"
    return world, own(1, 3)


@pytest.mark.parametrize("own_checkpoint", [False, True])
@pytest.mark.parametrize("harm", [without_a_file, without_an_entry, without_a_plan])
def test_what_was_applied_is_discarded_past_where_the_start_would_be_refused(own_checkpoint: bool, harm: object) -> None:
    world, path = gone_back(own_checkpoint)
    harm(world)  # type: ignore[operator]
    for restore in (None, path):
        assert DISCARD in refusal(Driver(world).start("c", restore=restore)).message
    discard = replace(path, discard=True)
    said = Driver(world, Settings(retained=5)).start("d", restore=discard)
    assert numbers(started(said)) == [7]
    assert f"{DISCARD} is applied again, for" in logged(said)
    last = Driver(world, Settings(retained=5))
    last.start("e", restore=discard)
    assert numbers(started(last.said)) == [7], "nothing is in the way any more"
    assert DISCARD not in logged(last.said)


def test_a_copy_that_was_applied_is_discarded_past_in_the_same_way() -> None:
    world, _ = gone_back()
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 3)]
    running(world, "c", restore=ev.Restore(SAVEPOINT), retained=5)
    without_an_entry(world)
    assert DISCARD in refusal(Driver(world).start("d", restore=ev.Restore(SAVEPOINT))).message
    one = started(Driver(world).start("e", restore=ev.Restore(SAVEPOINT, discard=True)))
    assert (one.origin, numbers(one)) == (CheckpointId(3, 3), [7])


def test_what_was_discarded_past_is_not_once_more_where_it_can_run_again() -> None:
    world, second = renumbered()
    epochs(second, 2, 5, 5)
    world.damaged[CheckpointId(2, 5)] = "broken"
    said = Driver(world, Settings(retained=5)).start("c", restore=replace(own(1, 3), discard=True))
    assert numbers(started(said)) == [5, 6]


def test_without_a_plan_that_tells_the_numbers_discarding_is_no_way_out() -> None:
    world = World()
    epochs(running(world, retained=5), 1, 0, 3)
    running(world, "b", restore=own(1, 1), retained=5)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    world.log[claim.claim] = encode(replace(claim, used=None))
    del world.log[plan_of(world, 3)]
    for restore in (own(1, 1), replace(own(1, 1), discard=True)):
        refused = refusal(Driver(world).start("c", restore=restore))
        assert "put it back; or start with a new checkpointLocation" in refused.message


def test_a_plan_that_is_missing_between_others_is_said_with_the_checkpoint_to_go_on_from() -> None:
    world, _ = gone_back()
    without_a_plan(world)
    refused = refusal(Driver(world).start("c"))
    assert "the plan of epoch 5 is not in the log, although epoch 6 was planned" in refused.message
    assert "go on from checkpoint run 1 epoch 3 with spark.ckpt.restore.path" in refused.message


# --- what earlier runs noted as damaged


@pytest.mark.parametrize("harm", [without_an_entry, without_a_plan])
def test_what_was_noted_is_looked_at_again_whatever_the_start_would_be_refused_for(harm: object) -> None:
    """From epoch 6, which was put back, nothing is missing."""
    world = World()
    epochs(running(world, retained=5), 1, 0, 6)
    second = running(world, "b", retained=5)
    second.push(ev.DamageReported(None, CheckpointId(1, 6), "checksum"))
    noted = tail_of(world)
    assert isinstance(noted, Damage)
    world.log[max(world.log)] = encode(replace(noted, bad=(CheckpointId(1, 4), CheckpointId(1, 5), CheckpointId(1, 6))))
    harm(world)  # type: ignore[operator]
    said = Driver(world).start("c")
    assert (started(said).origin, numbers(started(said))) == (CheckpointId(1, 6), [7])


def test_where_this_start_is_at_least_once_what_was_noted_is_looked_at_again_before_it_is_refused() -> None:
    """The stream was deleted and began anew with a copy, which is noted as damaged and was put back. What else is there is of before."""
    world = World()
    first = running(world, retained=5)
    epochs(first, 1, 0, 1)
    first.push(ev.StopRequested(failed=False, delete=True))
    world.sources[SAVEPOINT] = elsewhere()
    running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    old = replace(elsewhere(), id=CheckpointId(1, 1), log=3, claim=1, stream=claim.stream)
    world.objects |= old.objects
    world.checkpoints[old.id] = replace(old, files={path.replace("/2", "/1"): content for path, content in old.files.items()})
    world.log[claim.claim] = encode(replace(claim, inherits=(old.id, CheckpointId(2, 2))))
    world.log[claim.claim + 1] = encode(Damage(claim.claim, 2, (CheckpointId(2, 2),), "broken"))
    ahead = Settings(interval_ms=60_000, ahead=64)
    one = started(Driver(world, ahead).start("c"))
    assert one.origin == CheckpointId(2, 2)


def test_before_all_of_a_checkpoint_is_read_that_is_said() -> None:
    world = World()
    epochs(running(world, retained=2), 1, 0, 1)
    broken = (CheckpointId(1, 0), CheckpointId(1, 1))
    world.log[max(world.log) + 1] = encode(Damage(1, 1, broken, "broken"))
    second = Driver(world)
    second.hold = lambda i: isinstance(i, do.VerifyObjects)
    said = second.start("b")
    assert "checkpoint run 1 epoch 1 was found damaged before (broken)" in logged(said)
    assert f"all of it is read, {world.checkpoints[CheckpointId(1, 1)].size} bytes" in logged(said)
    assert len(second.held) == 1


# --- requests of people behind a run's last entry


@pytest.mark.parametrize("asked", [1, 2, 3, 9])
def test_what_a_run_noted_last_counts_whoever_asked_since(asked: int) -> None:
    world = World()
    epochs(running(world, retained=5), 1, 0, 4)
    second = running(world, "b", retained=5)
    second.push(ev.DamageReported(None, CheckpointId(1, 4), "checksum"))
    claim = tail_of(world).claim
    floor = tail_of(world).floor
    for _ in range(asked):
        second.request(ASKS, claim=claim)
    one = started(Driver(world).start("c"))
    assert one.origin == CheckpointId(1, 3)
    begun = decode(one.claim, world.log[one.claim])
    assert isinstance(begun, Claim)
    assert begun.bad == (CheckpointId(1, 4),)
    assert begun.floor >= floor


@pytest.mark.parametrize("asked", [1, 5])
def test_a_stream_that_was_deleted_stays_so_whoever_asked_since(asked: int) -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 2)
    first.push(ev.StopRequested(failed=False, delete=True))
    assert isinstance(tail_of(world), End)
    for _ in range(asked):
        first.request(ASKS)
    one = started(Driver(world).start("b"))
    assert (one.origin, one.epoch) == (None, 3)


@pytest.mark.parametrize("asked", [1, 6])
def test_requests_right_behind_a_claim(asked: int) -> None:
    world = World()
    first = running(world)
    for _ in range(asked):
        first.request(ASKS)
    assert started(Driver(world).start("b")).run == 2


def test_an_entry_of_an_older_claim_is_found_behind_requests_too() -> None:
    world = World()
    epochs(running(world), 1, 0, 2)
    epochs(running(world, "b"), 2, 3, 4)
    at = max(world.log) + 1
    for n in range(3):
        Driver(world).request(ASKS, claim=1)
        assert at + n in world.log
    refused = refusal(Driver(world).start("c"))
    assert f"log entry {at}, and each one behind it, names the claim in entry 1" in refused.message


# --- a restore that was cut short, and whose savepoint is gone


def cut_short() -> World:
    """Epochs 0 to 6; a savepoint of epoch 5 is restored with DISCARD, and nothing of it is there but the claim."""
    world = World()
    epochs(running(world, retained=3), 1, 0, 6)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 5)]
    cut = Driver(world, Settings(retained=3))
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore(SAVEPOINT, discard=True))
    del world.sources[SAVEPOINT]
    return world


def test_a_restore_that_was_cut_short_names_what_there_is_to_go_on_from() -> None:
    world = cut_short()
    refused = refusal(Driver(world).start("c"))
    assert f"start the query with spark.ckpt.restore.path={SAVEPOINT} again and restore.plans as it was" in refused.message
    assert "one of the stream's checkpoints (run 1 epoch 5, run 1 epoch 4)" in refused.message
    assert "restore.plans=DISCARD" in refused.message
    chosen = Driver(world)
    assert numbers(started(chosen.start("d", restore=replace(own(1, 5), discard=True)))) == [7]


def test_a_copy_that_was_never_made_is_no_choice() -> None:
    refused = refusal(Driver(cut_short()).start("c", restore=own(1, 6)))
    assert "choose one of its others (run 1 epoch 5, run 1 epoch 4) or a savepoint" in refused.message


def test_beside_checkpoints_of_the_stream_another_streams_takes_the_place_only_where_a_person_says_so() -> None:
    world = cut_short()
    world.sources["s3://b/savepoints/y"] = replace(elsewhere(), stream="another", query_id="another")
    refused = refusal(Driver(world).start("c", restore=ev.Restore("s3://b/savepoints/y")))
    assert "belongs to another stream, and this one has epochs of its own" in refused.message
    assert started(Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True))).origin == CheckpointId(3, 2)


def test_a_new_stream_whose_restore_was_cut_short_has_no_other_choice() -> None:
    world = World()
    world.sources[SAVEPOINT] = elsewhere()
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore(SAVEPOINT))
    assert refusal(Driver(world).start("c")).message.endswith("again, or with a new checkpointLocation")


def test_what_is_no_longer_retained_is_not_offered() -> None:
    world = World()
    epochs(running(world, retained=2), 1, 0, 4)
    assert len(world.checkpoints) == 3
    refused = refusal(Driver(world).start("b", restore=own(7, 1)))
    assert "choose one of its others (run 1 epoch 4, run 1 epoch 3) or a savepoint" in refused.message
