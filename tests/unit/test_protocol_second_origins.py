"""Starts that find out late what they go on from: another origin in the place of the first one, or another choice than the one before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, Damage, decode, encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.changed_queries import SAVEPOINT, a_stream, change, operators_of
from tests.drivers.protocol_driving import Driver, World, offsets
from tests.drivers.protocol_starts import own, refusal, started

KEPT = Settings(retained=5)
OWN_SAVEPOINT = "s3://b/savepoints/own"


def is_copy(instruction: Instruction) -> bool:
    return isinstance(instruction, do.StoreMetadata)


def another_streams(epoch: int = 2) -> Checkpoint:
    return replace(a_stream(epoch + 1).checkpoints[CheckpointId(1, epoch)], stream="another", query_id="another")


def newest_claim(world: World) -> Claim:
    claims = [entry for n, data in world.log.items() if isinstance(entry := decode(n, data), Claim)]
    return max(claims, key=lambda claim: claim.claim)


def noted_damaged(epoch: int, lost_entry: int) -> World:
    """Checkpoint 1-`epoch` was found damaged, and is whole again. Without entry `lost_entry` nothing older can be gone on from."""
    world = a_stream(epoch + 1, KEPT)
    claim = newest_claim(world).claim
    world.log[max(world.log) + 1] = encode(Damage(claim, 1, (CheckpointId(1, epoch),), "broken"))
    del world.log[lost_entry]
    return world


def test_a_changed_query_leaves_nothing_of_the_origin_that_it_did_not_take() -> None:
    """(1) Checkpoint 1-3 is noted as damaged, so a copy of 1-2 is the origin; (2) the plan of epoch 3 is lost, so 1-3 is looked at again,
    and is whole."""
    world = noted_damaged(3, lost_entry=5)
    one = started(change(Driver(world, KEPT)))
    assert one.origin == CheckpointId(2, 3)
    assert (one.begins, operators_of(one.files)) == ((0,), ["0 dedupe(id bigint)", "1 stateStoreSave(key string)"])
    assert CheckpointId(2, 2) not in newest_claim(world).inherits
    assert CheckpointId(2, 2) not in world.checkpoints
    again = started(change(Driver(world, KEPT)))
    assert again.origin == CheckpointId(2, 3)


def taken_over(epochs: int, settings: Settings | None = None) -> World:
    """(1) A savepoint of its own is restored, and cut short; (2) another stream's takes its place, with DISCARD, and plans an epoch."""
    world = a_stream(epochs, settings)
    world.sources = {OWN_SAVEPOINT: world.checkpoints[CheckpointId(1, 2)], SAVEPOINT: another_streams()}
    driver = Driver(world, settings)
    driver.hold = is_copy
    driver.start("b", restore=ev.Restore(OWN_SAVEPOINT))
    driver = Driver(world, settings)
    one = started(driver.start("c", restore=ev.Restore(SAVEPOINT, discard=True)))
    assert one.origin == CheckpointId(3, 2)
    driver.push(ev.TriggerRequested(one.epoch, offsets(9003), {}))
    return world


@pytest.mark.parametrize("epochs", [3, 4])
def test_what_another_streams_state_planned_does_not_follow_from_the_streams_own(epochs: int) -> None:
    refused = refusal(Driver(taken_over(epochs)).start("d", restore=own(1, 2)))
    assert "went on under new numbers" in refused.message
    one = started(Driver(taken_over(epochs)).start("d", restore=replace(own(1, 2), discard=True)))
    assert one.origin == CheckpointId(1, 2)
    assert one.epoch > epochs


@pytest.mark.parametrize("gone", ["missing", "damaged"])
def test_another_streams_copy_is_none_of_the_streams_own(gone: str) -> None:
    """The newest of the stream's own is not gone on from in its place as if it were the same."""
    world = taken_over(3)
    if gone == "missing":
        del world.checkpoints[CheckpointId(3, 2)]
    else:
        world.damaged[CheckpointId(3, 2)] = "broken"
    refused = refusal(Driver(world).start("d"))
    assert "epochs past checkpoint run 1 epoch 2 went on under new numbers" in refused.message


def test_another_stream_at_the_same_path_takes_the_place_of_what_was_to_run_again_only_with_discard() -> None:
    world = a_stream(4)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 1)]
    driver = Driver(world)
    driver.hold = is_copy
    driver.start("b", restore=ev.Restore(SAVEPOINT))
    world.sources[SAVEPOINT] = another_streams()
    refused = refusal(Driver(world).start("c", restore=ev.Restore(SAVEPOINT)))
    assert "belongs to another stream, and this one has epochs of its own" in refused.message


def test_a_choice_whose_copy_is_damaged_is_applied_again_where_nothing_else_is_left() -> None:
    """(1) A changed query goes back to 1-2 with DISCARD, and plans epoch 4 from a copy; (2) the copy is damaged for good."""
    world = a_stream(3)
    driver = Driver(world)
    driver.start("b")
    driver.trigger(3)
    chosen = replace(own(1, 2), discard=True)
    driver = Driver(world)
    one = started(change(driver, chosen))
    assert (one.origin, one.epoch) == (CheckpointId(3, 2), 4)
    driver.trigger(4)
    world.damaged[CheckpointId(3, 2)] = "broken"
    refused = refusal(change(Driver(world)))
    assert "epochs past checkpoint run 1 epoch 2 went on under new numbers" in refused.message, "not past one that was never made"
    again = started(change(Driver(world), chosen))
    assert (again.origin, again.epoch) == (CheckpointId(4, 2), 5)


def test_what_is_missing_is_named() -> None:
    """(1) A changed query is cut short before it has its copy; (2) what it was to be a copy of is lost."""
    world = a_stream(3, Settings(retained=1))
    driver = Driver(world, Settings(retained=1))
    driver.hold = is_copy
    change(driver)
    world.checkpoints.clear()
    refused = refusal(change(Driver(world, Settings(retained=1))))
    assert "run 1 epoch 2 (its _metadata is missing); put their objects back" in refused.message
