"""Savepoints from below the floor of the log, and restores that were cut short."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Plan
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.log_trim import DAY_MS
from spark_ckpt.protocol.settings import Settings
from tests.drivers.long_logs import SAVEPOINT, entry_of, epochs, ids_of, running, tail_of
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import refusal, started

# --- who goes back further


def with_savepoint(discard: bool) -> tuple[World, list[Instruction]]:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 80)
    assert tail_of(world).floor > world.sources[SAVEPOINT].log
    return world, Driver(world).start("b", restore=ev.Restore(SAVEPOINT, discard=discard))


def test_a_savepoint_older_than_the_log_cannot_have_its_plans_run_again() -> None:
    world, said = with_savepoint(discard=False)
    refused = refusal(said)
    assert refused.kind is ErrorKind.CONFLICT
    assert "older than what the stream's log is sure to hold" in refused.message
    assert "spark.ckpt.restore.plans=DISCARD" in refused.message
    assert not isinstance(tail_of(world), Claim), "nothing was written"


def test_a_savepoint_older_than_the_log_goes_on_behind_every_number() -> None:
    world, said = with_savepoint(discard=True)
    one = started(said)
    assert (one.origin, one.epoch, one.version) == (CheckpointId(2, 2), 81, 3)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    assert (claim.first, claim.used, claim.adopts, claim.inherits) == (81, 80, (), (CheckpointId(2, 2),))
    copy = world.checkpoints[CheckpointId(2, 2)]
    assert (copy.log, copy.claim) == (claim.claim, claim.claim)
    again = started(Driver(world).start("c"))
    assert (again.origin, again.epoch) == (CheckpointId(2, 2), 81), "it goes on from there, whoever starts next"


def test_a_savepoint_whose_claim_a_sleeper_has_overwritten_is_the_streams_own() -> None:
    """(1) A run sleeps; (2) the next one claims the entry that it would have appended, and makes a savepoint; (3) days later that entry is
    gone; (4) the sleeper wakes up, stores its plan in the hole, and is fenced; (5) a person goes back to the savepoint."""
    world = World()
    sleeper = running(world)
    epochs(sleeper, 1, 0, 2)
    second = running(world, "b")
    its_claim = tail_of(world).claim
    epochs(second, 2, 3, 5)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(2, 4)]
    third = running(world, "c")
    epochs(third, 3, 6, 80)
    assert its_claim not in world.log
    sleeper.trigger(3)
    assert isinstance(entry_of(world, its_claim), Plan)
    said = Driver(world).start("d", restore=ev.Restore(SAVEPOINT))
    assert "older than what the stream's log is sure to hold" in refusal(said).message
    one = started(Driver(world).start("e", restore=ev.Restore(SAVEPOINT, discard=True)))
    assert (one.origin, one.epoch) == (CheckpointId(4, 4), 81)


def test_what_is_below_the_floor_does_not_run_again_although_it_is_still_there() -> None:
    """Whoever said so may delete it at any moment: (1) a run says a floor and sleeps; (2) a person goes back behind it; (3) it wakes up."""
    world = World()
    first = running(world)
    first.hold = lambda i: isinstance(i, do.ListOldEntries)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 40)
    assert ids_of(world) == list(range(1, 43)), "nothing is deleted yet"
    assert refusal(Driver(world).start("b", restore=ev.Restore(SAVEPOINT))).kind is ErrorKind.CONFLICT


def test_what_is_below_the_floor_and_younger_than_a_day_runs_again() -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 20)
    assert tail_of(world).floor > world.sources[SAVEPOINT].log
    second = running(world, "b", restore=ev.Restore(SAVEPOINT))
    one = started(second.said)
    assert (one.origin, one.epoch, one.rerun, [p.epoch for p in one.planned]) == (CheckpointId(2, 2), 3, True, list(range(4, 21)))
    assert tail_of(world).floor == world.sources[SAVEPOINT].log, "it has fallen, for the entries from there on count again"
    world.clock_ms += 5 * DAY_MS
    second.rest(2, 3)
    epochs(second, 2, 4, 6)
    third = started(running(world, "c", restore=ev.Restore(SAVEPOINT)).said)
    assert [p.epoch for p in third.planned] == list(range(8, 21)), "none of them is deleted before it has run"


def test_it_runs_again_although_the_claim_under_which_it_was_made_is_gone() -> None:
    """A run that was claimed days ago, savepoint, a new release is deployed, back to the savepoint."""
    world = World()
    first = running(world)
    epochs(first, 1, 0, 40)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 40)]
    epochs(first, 1, 41, 42)
    second = running(world, "b")
    epochs(second, 2, 43, 50)
    assert 1 not in world.log
    one = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (one.origin, one.epoch, [p.epoch for p in one.planned]) == (CheckpointId(3, 40), 41, list(range(42, 51)))


def test_a_savepoint_that_says_it_is_of_a_later_epoch_than_any_is_not_this_streams() -> None:
    world, _ = with_savepoint(discard=True)
    source = world.sources[SAVEPOINT]
    files = {path.replace("/2", "/5000"): content for path, content in source.files.items()}
    world.sources["s3://b/savepoints/y"] = replace(source, id=CheckpointId(1, 5000), files=files)
    refused = refusal(Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True)))
    assert "belongs to another stream" in refused.message


def test_numbers_of_epochs_that_ran_ahead_are_not_used_again_by_who_goes_back_behind_the_floor() -> None:
    world, _ = with_savepoint(discard=True)
    ahead = Driver(world, Settings(interval_ms=60_000, ahead=64))
    began = started(ahead.start("ahead"))
    assert began.epoch == 81
    world.sources["s3://b/savepoints/y"] = world.sources[SAVEPOINT]
    again = started(Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True)))
    assert again.epoch == 80 + 64 + 1


def test_numbers_go_on_when_a_savepoint_older_than_the_log_follows_another_restore() -> None:
    world, said = with_savepoint(discard=True)
    one = started(said)
    second = Driver(world, Settings(retained=2, trim_every=1))
    started(second.start("c"))
    epochs(second, one.run + 1, 81, 90)
    world.sources["s3://b/savepoints/y"] = world.sources[SAVEPOINT]
    third_said = Driver(world).start("d", restore=ev.Restore("s3://b/savepoints/y", discard=True))
    assert started(third_said).epoch == 91


def test_numbers_that_a_lost_claim_had_adopted_are_not_used_again() -> None:
    world = World()
    first = running(world, retained=30)
    epochs(first, 1, 0, 9)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 0)]
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=30)
    began = started(second.said)
    second.rest(2, 1)
    epochs(second, 2, 2, 3)
    running(world, "c", retained=30)
    del world.log[began.claim]
    chosen = ev.Restore("s3://b/s/run-00000002/chk-2", CheckpointId(2, 2))
    assert "DISCARD" in refusal(Driver(world).start("d", restore=chosen)).message
    again = started(Driver(world).start("e", restore=replace(chosen, discard=True)))
    assert (again.origin, again.epoch) == (CheckpointId(2, 2), 10)


def test_a_lost_plan_that_was_adopted_is_no_dead_end() -> None:
    world = World()
    first = running(world, retained=30)
    epochs(first, 1, 0, 9)
    for epoch in range(5, 10):
        world.damaged[CheckpointId(1, epoch)] = "broken"
    second = running(world, "b", retained=30)
    assert started(second.said).origin == CheckpointId(1, 4)
    second.rest(2, 5)
    del world.log[9]
    assert "log entry 9 is missing" in refusal(Driver(world).start("c")).message
    chosen = ev.Restore("s3://b/s/run-00000002/chk-5", CheckpointId(2, 5), discard=True)
    again = started(Driver(world).start("d", restore=chosen))
    assert (again.origin, again.epoch) == (CheckpointId(2, 5), 10)


def test_a_restore_after_the_end_that_was_cut_short_is_done_again() -> None:
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    source = world.checkpoints[CheckpointId(1, 2)]
    world.sources[SAVEPOINT] = source
    first.push(ev.StopRequested(failed=False, delete=True))
    world.objects |= source.objects
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore(SAVEPOINT))
    assert isinstance(tail_of(world), Claim), "the claim is stored, the copy is not"
    again = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (again.epoch, again.rerun) == (3, True)
