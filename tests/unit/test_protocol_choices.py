"""Which of a stream's own checkpoints a person can choose: what no run deletes, and what a start goes back to by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import encode
from spark_ckpt.protocol.settings import Settings
from tests.drivers.changed_queries import a_stream, change
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import after, claim_of, own, refusal, started


def past_damage() -> World:
    """Run 1 retains 1 and 2 of its checkpoints 0 to 2, and has not deleted 0 yet; 1 is damaged, and the run does not know."""
    world = World()
    driver = Driver(world, Settings(retained=2))
    driver.start("a")
    for epoch in range(3):
        driver.epoch(1, epoch)
    assert CheckpointId(1, 0) in world.checkpoints
    world.damaged[CheckpointId(1, 1)] = "broken"
    return world


def test_what_is_damaged_counts_as_retained_for_who_chooses() -> None:
    """Found by the simulation: (1) run 1 deletes what is past the newest two; (2) it does not know that one of them is damaged."""
    world = past_damage()
    before = dict(world.log)
    assert "is no longer retained" in refusal(Driver(world).start("b", restore=own(1, 0))).message
    assert world.log == before
    assert started(Driver(world).start("b", restore=own(1, 2))).origin == CheckpointId(1, 2)


def test_where_all_that_is_newer_is_damaged_what_is_left_can_be_chosen() -> None:
    """A start without the option goes on from it, too."""
    world = past_damage()
    world.damaged[CheckpointId(1, 2)] = "broken"
    one = started(Driver(world).start("b", restore=own(1, 0)))
    assert one.origin == CheckpointId(1, 0)
    assert claim_of(world, one.claim).unsure == (CheckpointId(1, 0),)


def test_what_an_earlier_run_may_delete_is_inherited_and_no_choice_in_later_ones() -> None:
    world = past_damage()
    for nonce in ("b", "c"):
        claim = claim_of(world, started(Driver(world, Settings(retained=2)).start(nonce)).claim)
        assert (claim.inherits, claim.unsure) == ((CheckpointId(1, 0), CheckpointId(1, 2)), (CheckpointId(1, 0),))
    assert "is no longer retained" in refusal(Driver(world).start("d", restore=own(1, 0))).message
    world.damaged[CheckpointId(1, 2)] = "broken"
    assert started(Driver(world).start("e")).origin == CheckpointId(1, 0), "it is worth a try"


@pytest.mark.parametrize(("epochs", "dropped"), [(3, ()), (4, (CheckpointId(1, 0),))])
def test_a_claim_names_as_unsure_what_the_run_before_has_dropped(epochs: int, dropped: tuple[CheckpointId, ...]) -> None:
    world = after(epochs)
    claim = claim_of(world, started(Driver(world).start("b")).claim)
    assert claim.unsure == dropped
    assert ("unsure" in json.loads(world.log[claim.claim])) is bool(dropped), "an earlier release writes the same where there is none"


def test_a_copy_that_was_never_made_does_not_count_as_retained() -> None:
    """The run that was to begin with it dropped nothing for it, and nobody else knows of it."""
    world = after(3)
    world.sources["s3://b/savepoints/x"] = world.checkpoints[CheckpointId(1, 2)]
    cut = Driver(world, Settings(retained=3))
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore("s3://b/savepoints/x"))
    assert claim_of(world, max(world.log)).inherits == (*(CheckpointId(1, epoch) for epoch in range(3)), CheckpointId(2, 2))
    assert started(Driver(world).start("c", restore=own(1, 0))).origin == CheckpointId(1, 0)


def test_a_copy_of_what_is_unsure_is_unsure() -> None:
    """It names the same objects. The query has another operator than when the checkpoint was made."""
    world = a_stream()
    world.log[1] = encode(replace(claim_of(world, 1), retained=1))
    world.damaged[CheckpointId(1, 2)] = "broken"
    claim = claim_of(world, started(change(Driver(world), None)).claim)
    assert (claim.origin, claim.unsure) == (CheckpointId(2, 1), (CheckpointId(1, 0), CheckpointId(1, 1), CheckpointId(2, 1)))
