"""Which of a stream's own checkpoints a person can choose: what no run deletes, and what a start goes back to by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import encode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.garbage import vanished
from spark_ckpt.protocol.retention.order import choosable
from spark_ckpt.protocol.settings import Settings
from tests.drivers.changed_queries import CHANGED, a_stream, change
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import after, claim_of, own, refusal, started


def past_damage() -> World:
    """Run 1 retains 1 and 2 of its checkpoints 0 to 2, and has not deleted 0 yet; 1 is damaged, and the run does not know."""
    world = after(3, Settings(retained=2))
    assert CheckpointId(1, 0) in world.checkpoints
    world.damaged[CheckpointId(1, 1)] = "broken"
    return world


def lose(world: World, *epochs: int) -> None:
    """Objects of these checkpoints' own."""
    for epoch in epochs:
        world.objects -= {handle.object for s in world.checkpoints[CheckpointId(1, epoch)].snapshots for handle in s.handles}


def given_up_by_the_newest() -> World:
    """Checkpoint 1 was given up while its `_metadata` was on its way, and goes since checkpoint 2 is complete; it had landed."""
    world = after(3)
    newest = CheckpointId(1, 2)
    world.checkpoints[newest] = replace(world.checkpoints[newest], given_up=(1,))
    return world


def test_what_is_damaged_counts_as_retained_for_who_chooses() -> None:
    """Found by the simulation: (1) run 1 deletes what is past the newest two; (2) it does not know that one of them is damaged."""
    world = past_damage()
    before = dict(world.log)
    assert "is no longer retained" in refusal(Driver(world).start("b", restore=own(1, 0))).message
    assert world.log == before
    assert started(Driver(world).start("b", restore=own(1, 2))).origin == CheckpointId(1, 2)


def test_only_of_the_newest_that_is_damaged_the_one_before_it_is_said_to_be_restored() -> None:
    world = past_damage()
    left_out = "checkpoint run 1 epoch {} is damaged and left out{}: broken"
    said = [i.message for i in Driver(world).start("b") if isinstance(i, do.Log)]
    assert said == [left_out.format(1, "")]
    world.damaged[CheckpointId(1, 2)] = "broken"
    said = [i.message for i in Driver(world).start("c") if isinstance(i, do.Log)]
    assert said == [left_out.format(2, ", the one before it is restored")]


def test_where_all_that_is_newer_is_damaged_what_is_left_can_be_chosen() -> None:
    """A start without the option goes on from it, too."""
    world = past_damage()
    world.damaged[CheckpointId(1, 2)] = "broken"
    one = started(Driver(world).start("b", restore=own(1, 0)))
    assert one.origin == CheckpointId(1, 0)
    assert claim_of(world, one.claim).unsure == (CheckpointId(1, 0),)


def test_where_what_is_newer_lacks_objects_what_is_left_can_be_chosen_too() -> None:
    """For these a start looks only when it is to go on from one."""
    world = past_damage()
    lose(world, 2)
    assert started(Driver(world).start("b", restore=own(1, 0))).origin == CheckpointId(1, 0)


def test_of_many_that_lack_objects_each_is_looked_at_until_one_is_whole() -> None:
    world = after(4)
    world.damaged[CheckpointId(1, 1)] = "broken"
    lose(world, 2, 3)
    asked: list[int] = []

    def noted(instruction: Instruction) -> bool:
        if isinstance(instruction, do.VerifyObjects):
            asked.append(instruction.checkpoint.id.epoch)
        return False

    looking = Driver(world)
    looking.hold = noted
    assert started(looking.start("b", restore=own(1, 0))).origin == CheckpointId(1, 0)
    assert asked == [3, 2, 0]


def test_a_choice_that_lacks_objects_itself_is_said_to() -> None:
    world = past_damage()
    lose(world, 0, 2)
    refused = refusal(Driver(world).start("b", restore=own(1, 0)))
    assert "cannot be restored: run-00000001/" in refused.message


def test_what_is_damaged_is_not_offered() -> None:
    refused = refusal(Driver(past_damage()).start("b", restore=own(1, 0)))
    assert "choose one of its others (run 1 epoch 2) or a savepoint" in refused.message


def test_who_retains_more_from_now_on_can_choose_among_more() -> None:
    """What the run before had dropped is not among them; what this one has completed is."""
    world = after(2, Settings(retained=1))
    more = Driver(world, Settings(retained=4))
    more.start("b")
    for epoch in range(2, 5):
        more.epoch(2, epoch)
    assert started(Driver(world, Settings(retained=4)).start("c", restore=own(2, 2))).origin == CheckpointId(2, 2)


def test_what_may_have_been_given_up_is_no_choice() -> None:
    world = given_up_by_the_newest()
    assert "is no longer retained" in refusal(Driver(world).start("b", restore=own(1, 1))).message
    claim = claim_of(world, started(Driver(world).start("c")).claim)
    assert claim.unsure == (CheckpointId(1, 1),)
    assert "is no longer retained" in refusal(Driver(world).start("d", restore=own(1, 1))).message


def test_what_may_have_been_given_up_is_so_whatever_becomes_of_the_one_that_says_it() -> None:
    world = given_up_by_the_newest()
    lose(world, 2)
    claim = claim_of(world, started(Driver(world).start("b")).claim)
    assert (claim.origin, claim.bad, claim.unsure) == (CheckpointId(1, 1), (CheckpointId(1, 2),), (CheckpointId(1, 1),))
    later = Driver(world)
    later.start("c")
    later.rest(3, 2)
    assert "is no longer retained" in refusal(Driver(world).start("d", restore=own(1, 1))).message


def test_what_is_not_inherited_is_not_named_as_unsure() -> None:
    world = after(4)
    world.damaged[CheckpointId(1, 0)] = "broken"
    assert claim_of(world, started(Driver(world).start("b")).claim).unsure == ()


def test_a_copy_that_was_never_made_is_not_the_newest_one() -> None:
    world = past_damage()
    world.damaged[CheckpointId(1, 2)] = "broken"
    world.sources["s3://b/savepoints/x"] = world.checkpoints[CheckpointId(1, 0)]
    cut = Driver(world, Settings(retained=2))
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore("s3://b/savepoints/x", discard=True))
    assert claim_of(world, max(world.log)).unsure == (CheckpointId(1, 0),)
    assert "one of the stream's checkpoints (run 1 epoch 0)" in refusal(Driver(world).start("c")).message
    assert started(Driver(world).start("d", restore=replace(own(1, 0), discard=True))).origin == CheckpointId(1, 0)


def test_a_copy_that_was_made_and_is_lost_counts_as_retained() -> None:
    """(1) Run 2 retains two, its copy among them; (2) it appends, and deletes what is past them; (3) the copy is lost."""
    world = after(3)
    world.sources["s3://b/savepoints/x"] = world.checkpoints[CheckpointId(1, 2)]
    one = Driver(world, Settings(retained=2))
    one.hold = lambda i: isinstance(i, do.Delete)
    one.start("b", restore=ev.Restore("s3://b/savepoints/x"))
    one.trigger(3)
    assert world.checkpoints.pop(CheckpointId(2, 2)).id == CheckpointId(2, 2)
    assert "is no longer retained" in refusal(Driver(world).start("c", restore=own(1, 1))).message


def test_a_choice_where_there_is_no_log_is_refused() -> None:
    """Without the option it would begin from nothing: that is no way out."""
    assert refusal(Driver(World()).start("a", restore=own(1, 1))).message.endswith("choose one of its others (none) or a savepoint")


def test_a_choice_that_was_cut_short_is_made_again_though_its_run_was_to_retain_fewer() -> None:
    """Found by the simulation. It has appended nothing, so it deletes nothing."""
    world = after(3)
    cut = Driver(world, Settings(retained=1))
    world.sources["s3://b/savepoints/x"] = world.checkpoints[CheckpointId(1, 2)]
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    cut.start("b", restore=ev.Restore("s3://b/savepoints/x"))
    assert claim_of(world, max(world.log)).retained == 1
    again = started(Driver(world, Settings(retained=1)).start("c", restore=own(1, 1)))
    claim = claim_of(world, again.claim)
    assert (claim.origin, claim.inherits, claim.unsure) == (CheckpointId(1, 1), (CheckpointId(1, 0), CheckpointId(1, 1)), ())


def test_many_checkpoints_are_sorted_once() -> None:
    """Where deletions fail for long."""
    many = [CheckpointId(1, epoch) for epoch in range(3_000)]
    claim = replace(claim_of(after(1), 1), retained=2, unsure=tuple(many[:2_000]))
    compared = 0

    class Counted(CheckpointId):
        def __lt__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__lt__(other)  # type: ignore[operator]

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = CheckpointId.__hash__

    counted = [Counted(c.run, c.epoch) for c in many]
    assert choosable(claim, counted, frozenset(counted)) == set(counted[-2:])
    assert compared < 3 * 3_000 * 12


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


@pytest.mark.parametrize(("choice", "kept"), [(None, "012"), (own(1, 1), "12")])
def test_a_copy_of_what_is_unsure_is_unsure(choice: ev.Restore | None, kept: str) -> None:
    """It names the same objects. The query has another operator than when the checkpoint was made."""
    world = a_stream()
    world.log[1] = encode(replace(claim_of(world, 1), retained=1))
    world.damaged[CheckpointId(1, 2)] = "broken"
    claim = claim_of(world, started(change(Driver(world), choice)).claim)
    assert (claim.origin, claim.unsure) == (CheckpointId(2, 1), (CheckpointId(1, 0), CheckpointId(1, 1), CheckpointId(2, 1))[-len(kept) :])


def test_a_copy_of_a_savepoint_is_sure_whatever_it_was_made_of() -> None:
    world = past_damage()
    world.sources["s3://b/savepoints/x"] = world.checkpoints[CheckpointId(1, 0)]
    chosen = ev.Restore("s3://b/savepoints/x", discard=True)
    claim = claim_of(world, started(Driver(world).start("b", restore=chosen)).claim)
    assert (claim.origin, claim.unsure) == (CheckpointId(2, 0), (CheckpointId(1, 0),))


def test_what_is_unsure_and_gone_has_not_vanished() -> None:
    world = past_damage()
    claim = claim_of(world, started(Driver(world, Settings(retained=2)).start("b")).claim)
    assert vanished(claim, [CheckpointId(1, 2)]) == ()
    assert vanished(claim, [CheckpointId(1, 0)]) == (CheckpointId(1, 2),)


def test_an_unsure_origin_that_a_run_still_stands_on_is_missed_by_who_collects_garbage() -> None:
    world = past_damage()
    world.damaged[CheckpointId(1, 2)] = "broken"
    claim = claim_of(world, started(Driver(world, Settings(retained=2)).start("b")).claim)
    assert (claim.origin, claim.unsure) == (CheckpointId(1, 0), (CheckpointId(1, 0),))
    assert vanished(claim, []) == (CheckpointId(1, 0),)
    assert vanished(claim, [CheckpointId(2, 1)]) == (), "the run has a checkpoint of its own"


def test_a_run_that_died_before_its_own_copy_has_dropped_nothing_either() -> None:
    """The query had changed. The copy was never made: it takes nobody's place among those that are retained, and is not offered."""
    two = Settings(retained=2)
    world = a_stream(4, two)
    cut = Driver(world, two)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    change(cut)
    claim = claim_of(world, max(world.log))
    assert claim.copy == CheckpointId(2, 3)
    refused = refusal(change(Driver(world, two), own(2, 3)))
    why = "is not there: its run has not made it yet, or it is lost; choose one of its others (run 1 epoch 3, run 1 epoch 2)"
    assert why in refused.message
    again = started(change(Driver(world, two), own(1, 2)))
    assert claim_of(world, again.claim).copy == CheckpointId(3, 2)


def test_a_copy_that_lands_while_it_is_looked_for_is_gone_on_from() -> None:
    """(1) A start reads that it is not there; (2) its run makes it, and goes on; (3) the start is about to say so."""
    world = a_stream(4)
    cut = Driver(world)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    change(cut)
    two = Driver(world)
    two.hold = lambda i: isinstance(i, do.ReadMetadata) and i.id == CheckpointId(1, 3)
    two.start("c", CHANGED, restore=own(2, 3), compared=False)
    assert two.held
    cut.hold = lambda _: False
    cut.release()
    cut.trigger(4)
    two.hold = lambda _: False
    said = two.release()
    assert not [i for i in said if isinstance(i, do.Refused)]
    assert CheckpointId(2, 3) in world.checkpoints


def test_what_is_offered_can_be_chosen() -> None:
    """Whatever is asked for: what newer ones say of others is read before any is offered."""
    said = refusal(Driver(given_up_by_the_newest()).start("b", restore=own(1, 9))).message
    assert "choose one of its others (run 1 epoch 2, run 1 epoch 0) or a savepoint, or remove the option to go on from the newest" in said
    world = after(3)
    world.damaged[CheckpointId(1, 1)] = "broken"
    assert "(run 1 epoch 2, run 1 epoch 0)" in refusal(Driver(world).start("b", restore=own(1, 9))).message


def test_where_nothing_else_is_left_removing_the_option_does_help() -> None:
    """What was found damaged is looked at once more, and a person may have put it back."""
    world = World()
    first = Driver(world, Settings(retained=1))
    first.start("a")
    first.epoch(1, 0)
    first.push(ev.DamageReported(None, CheckpointId(1, 0), "checksum"))
    refused = refusal(Driver(world).start("b", restore=own(1, 0))).message
    assert "was found damaged; choose one of its others (none) or a savepoint, or remove the option" in refused
    assert started(Driver(world).start("b")).origin == CheckpointId(1, 0)
