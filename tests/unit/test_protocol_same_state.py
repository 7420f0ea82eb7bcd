"""One state by several names: savepoints of what a restore began with, savepoints that are restored again, and what an end is to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT as ASKS
from spark_ckpt.protocol.entries import Claim, Damage, End, Plan, decode, encode
from spark_ckpt.protocol.settings import Settings
from tests.drivers.long_logs import epochs, running, tail_of
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import elsewhere, numbers, own, refusal, started

SAVEPOINT = "s3://b/savepoints/x"
COPY = "s3://b/savepoints/y"


def saved(driver: Driver, run: do.Started) -> str:
    """A person asks for a savepoint before the first epoch has finished."""
    number = driver.request(ASKS, claim=run.claim)
    driver.fire(ev.Timer.IDLE)
    url = driver.world.answers[number]
    assert url is not None
    driver.world.sources[url] = driver.world.savepoints[url]
    return url


# --- a savepoint of the copy that a restore began with


def renumbered() -> tuple[World, str]:
    """Epochs 0 to 80; back to epoch 2 with DISCARD, from a savepoint older than the log; saved before epoch 81 has begun."""
    world = World()
    first = running(world)
    epochs(first, 1, 0, 3)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    epochs(first, 1, 4, 80)
    second = running(world, "b", restore=ev.Restore(SAVEPOINT, discard=True))
    one = started(second.said)
    assert one.epoch == 81
    url = saved(second, one)
    epochs(second, 2, 81, 83)
    return world, url


def test_a_copy_of_a_copy_goes_on_under_the_numbers_of_the_copy() -> None:
    world, url = renumbered()
    one = started(Driver(world).start("c", restore=ev.Restore(url), sink_seen=83))
    assert numbers(one) == [81, 82, 83, 84]


def test_a_copy_of_a_copy_is_discarded_past_all_that_was_used() -> None:
    world, url = renumbered()
    one = started(Driver(world).start("c", restore=ev.Restore(url, discard=True), sink_seen=83))
    assert numbers(one) == [84]


# --- a savepoint that brings a deleted stream back


def deleted(upto: int = 3) -> World:
    """Epochs 0 to `upto`, of which epoch 1 is saved, and an end that takes everything along."""
    world = World()
    first = running(world, retained=5)
    epochs(first, 1, 0, 1)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 1)]
    epochs(first, 1, 2, upto)
    first.push(ev.StopRequested(failed=False, delete=True))
    return world


@pytest.mark.parametrize("further", [False, True])
def test_going_back_to_the_copy_runs_again_what_the_restore_had_adopted(further: bool) -> None:
    """(1) The stream is deleted; (2) a savepoint brings it back, and what was planned runs again; (3) its newer checkpoints are damaged."""
    world = deleted()
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5)
    second.rest(2, 2)
    if further:
        epochs(second, 2, 3, 3)
    started(running(world, "c", retained=5).said)
    world.damaged |= {c: "broken" for c in world.checkpoints if c.run == 2 and c.epoch > 1}
    assert numbers(started(Driver(world).start("d"))) == [2, 3, 4]


def test_a_person_goes_back_to_the_copy() -> None:
    world = deleted()
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5)
    second.rest(2, 2)
    assert numbers(started(Driver(world).start("c", restore=own(2, 1)))) == [2, 3, 4]


@pytest.mark.parametrize("upto", [1, 3])
def test_the_same_savepoint_again(upto: int) -> None:
    """With and without plans past it when the stream was deleted."""
    world = deleted(upto)
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5)
    if upto > 1:
        second.rest(2, 2)
        second.trigger(3)
        second.rest(2, 3)
    epochs(second, 2, upto + 1, 5)
    third = running(world, "c", retained=5)
    assert started(third.said).epoch == 6
    again = ev.Restore(SAVEPOINT)
    assert numbers(started(Driver(world).start("d", restore=again))) == [2, 3, 4, 5, 6]


def test_another_copy_of_the_savepoint_where_nothing_tells_that_it_is_one() -> None:
    """Nothing was planned past it when the stream was deleted: only the path tells whether what followed followed it."""
    world = deleted(1)
    epochs(running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5), 2, 2, 5)
    running(world, "c", retained=5)
    world.sources[COPY] = world.sources[SAVEPOINT]
    refused = refusal(Driver(world).start("d", restore=ev.Restore(COPY)))
    assert refused.kind is ErrorKind.CONFLICT
    assert "began anew" in refused.message
    assert "spark.ckpt.restore.plans=DISCARD" in refused.message
    assert numbers(started(Driver(world).start("e", restore=ev.Restore(COPY, discard=True), sink_seen=5))) == [6]


def test_where_new_numbers_are_in_the_way_what_was_noted_as_damaged_is_looked_at_again() -> None:
    """(1) Back to epoch 3 with DISCARD; (2) its objects are damaged; (3) a person puts them back. Epoch 2 is none to go on from."""
    world = World()
    epochs(running(world, retained=5), 1, 0, 4)
    running(world, "b", restore=replace(own(1, 3), discard=True), retained=5).trigger(5)
    claim = tail_of(world).claim
    broken = CheckpointId(1, 3)
    world.log[max(world.log) + 1] = encode(Damage(claim, 2, (broken,), "broken"))
    assert numbers(started(Driver(world).start("c"))) == [5, 6]
    again = World()
    again.log, again.checkpoints, again.objects = dict(world.log), dict(world.checkpoints), set(world.objects)
    del again.log[max(again.log)]
    again.damaged[broken] = "broken still"
    assert "spark.ckpt.restore.plans=DISCARD" in refusal(Driver(again).start("d")).message


@pytest.mark.parametrize("asked", [False, True])
def test_a_copy_that_is_gone_after_its_run_has_run_something_was_not_cut_short(asked: bool) -> None:
    """Another stream's savepoint: a second restore of it would know nothing of the epochs that the first one's run has planned."""
    world = World()
    world.sources[SAVEPOINT] = elsewhere()
    first = running(world, restore=ev.Restore(SAVEPOINT))
    first.trigger(3)
    if asked:
        first.request(ASKS, claim=1)
    world.checkpoints.clear()
    for restore in (None, ev.Restore(SAVEPOINT)):
        refused = refusal(Driver(world).start("b", restore=restore))
        assert refused.kind is ErrorKind.DAMAGED
        assert "put their objects back" in refused.message


def test_what_executors_found_damaged_is_read_before_it_is_gone_on_from_again() -> None:
    """No size tells it: the start would begin from it, and end, for ever."""
    world = World()
    epochs(running(world, retained=5), 1, 0, 4)
    running(world, "b", restore=replace(own(1, 3), discard=True), retained=5).trigger(5)
    broken = CheckpointId(1, 3)
    world.log[max(world.log) + 1] = encode(Damage(tail_of(world).claim, 2, (broken,), "broken"))
    third = Driver(world)
    third.hold = lambda i: isinstance(i, do.VerifyObjects) and i.deep
    third.start("c")
    (look,) = third.held
    assert isinstance(look, do.VerifyObjects)
    assert look.checkpoint.id == broken
    third.hold = lambda _: False
    said = third.push(ev.ObjectsVerified(look.ticket, broken, "a wrong checksum"))
    assert "spark.ckpt.restore.plans=DISCARD" in refusal(said).message


def test_where_numbers_are_new_anyhow_a_damaged_checkpoint_is_left_behind() -> None:
    """At-least-once: each start takes new numbers, so an older checkpoint is one to go on from."""
    ahead = Settings(interval_ms=60_000, ahead=64, retained=5)
    world = World()
    epochs(running(world, retained=5), 1, 0, 3)
    second = Driver(world, ahead)
    one = started(second.start("b"))
    started(Driver(world, ahead).start("c"))
    assert one.origin == CheckpointId(1, 3)
    world.log[max(world.log) + 1] = encode(Damage(tail_of(world).claim, 3, (CheckpointId(1, 3),), "broken"))
    assert started(Driver(world, ahead).start("d")).origin == CheckpointId(1, 2)


# --- another stream's savepoint, or another savepoint's path


@pytest.mark.parametrize("deletes", [True, False])
def test_a_restore_that_was_cut_short_is_done_again_behind_the_numbers_of_the_deleted_stream(deletes: bool) -> None:
    world = World()
    world.sources[SAVEPOINT] = elsewhere()
    if deletes:
        first = running(world)
        epochs(first, 1, 0, 10)
        first.push(ev.StopRequested(failed=False, delete=True))
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore(SAVEPOINT))
    assert isinstance(tail_of(world), Claim)
    one = started(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert (one.epoch, one.rerun) == (11 if deletes else 3, False)


def test_epochs_that_ran_ahead_of_their_plans_before_the_copy_was_gone_keep_their_numbers() -> None:
    world = World()
    world.sources[SAVEPOINT] = elsewhere()
    ahead = Settings(interval_ms=60_000, ahead=64)
    assert started(Driver(world, ahead).start("b", restore=ev.Restore(SAVEPOINT))).epoch == 3
    world.checkpoints.clear()
    assert started(Driver(world, ahead).start("c", restore=ev.Restore(SAVEPOINT))).epoch == 3 + 64


def test_another_savepoint_in_the_same_place_is_not_the_same_state() -> None:
    world = World()
    first = running(world, retained=9)
    epochs(first, 1, 0, 9)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 3)]
    second = running(world, "b", restore=ev.Restore(SAVEPOINT, discard=True), retained=9)
    epochs(second, 2, 10, 11)
    started(running(world, "c", retained=9).said)
    five = replace(world.sources[SAVEPOINT], id=CheckpointId(1, 5), log=7)
    five = replace(five, files={path.replace("/3", "/5"): content for path, content in five.files.items()})
    world.sources[SAVEPOINT] = five
    refused = refusal(Driver(world).start("d", restore=ev.Restore(SAVEPOINT)))
    assert "went on under new numbers" in refused.message
    assert numbers(started(Driver(world).start("e", restore=ev.Restore(SAVEPOINT, discard=True)))) == [12]


def test_a_savepoint_of_a_copy_names_the_copy() -> None:
    """(1) Back to epoch 2 with DISCARD; (2) saved before epoch 7; (3) what followed the copy follows what was saved."""
    world = World()
    first = running(world, retained=9)
    epochs(first, 1, 0, 6)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    second = running(world, "b", restore=ev.Restore(SAVEPOINT, discard=True), retained=9)
    url = saved(second, started(second.said))
    epochs(second, 2, 7, 8)
    assert numbers(started(Driver(world).start("c", restore=ev.Restore(url)))) == [7, 8, 9]


def test_an_older_release_s_restore_after_an_end_keeps_what_was_planned() -> None:
    """Before version 3 a claim adopted nothing: what it had not appended again yet is in the log before the end."""
    world = deleted()
    saved_at = world.sources[SAVEPOINT]
    second = running(world, "b", restore=ev.Restore(SAVEPOINT), retained=5)
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    world.log[claim.claim] = encode(replace(claim, adopts=None, used=None))
    assert second.said
    assert saved_at.id == CheckpointId(1, 1)
    assert numbers(started(Driver(world).start("c"))) == [2, 3, 4]


# --- whatever the reason


def test_numbers_that_are_noted_as_used_are_not_given_to_other_rows() -> None:
    """The plans of the epochs 3 and 4 are gone from a log without a trace; the last claim knows that they were used."""
    world = World()
    driver = running(world)
    epochs(driver, 1, 0, 2)
    running(world, "b")
    claim = tail_of(world)
    assert isinstance(claim, Claim)
    world.log[claim.claim] = encode(replace(claim, used=4))
    refused = refusal(Driver(world).start("c"))
    assert refused.kind is ErrorKind.CONFLICT
    assert "epochs up to 4 may have run after checkpoint run 1 epoch 2, and from 3 on it is not known what they were" in refused.message
    assert numbers(started(Driver(world).start("d", restore=replace(own(1, 2), discard=True)))) == [5]


def test_an_end_knows_what_was_used_before_its_run() -> None:
    world = World()
    epochs(running(world), 1, 0, 2)
    driver = running(world, "b", restore=replace(own(1, 1), discard=True))
    driver.push(ev.StopRequested(failed=False, delete=True))
    end = tail_of(world)
    assert isinstance(end, End)
    assert end.used == 2


def test_an_entry_that_names_an_older_claim_than_the_one_before_it_was_put_there_by_mistake() -> None:
    world = World()
    epochs(running(world), 1, 0, 2)
    epochs(running(world, "b"), 2, 3, 4)
    old = next(data for n, data in sorted(world.log.items()) if isinstance(decode(n, data), Plan))
    at = max(world.log) + 1
    world.log[at] = old
    refused = refusal(Driver(world).start("c"))
    assert refused.kind is ErrorKind.DAMAGED
    assert f"log entry {at}, the last one, names the claim in entry 1" in refused.message
    assert "remove it" in refused.message
    del world.log[at]
    assert numbers(started(Driver(world).start("d"))) == [5]
