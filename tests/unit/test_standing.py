"""What `list` and `restore --check` make of what is read: the same as a start."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Restored
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.stored.standing import Found, Overview, Standing
from tests.drivers.changed_queries import SAVEPOINT, a_stream, change
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import after, claim_of, own, started

TWO = Settings(retained=2)


def overview(world: World, claim: int) -> Overview:
    """Read while the claim's run has appended nothing else."""
    found = [Found(c, 1, checkpoint, None) for c, checkpoint in sorted(world.checkpoints.items())]
    return Overview.of(found, Standing(claim, claim_of(world, claim), frozenset(), False, 0, claim))


def its_own_copy_cut_short(world: World, restore: ev.Restore | None = None) -> int:
    """A changed query dies between its claim and its copy of the newest checkpoint. Returns the claim's number."""
    cut = Driver(world, TWO)
    cut.hold = lambda i: isinstance(i, do.StoreMetadata)
    change(cut, restore)
    return max(world.log)


def test_a_copy_that_was_never_made_takes_nobodys_place() -> None:
    world = a_stream(4, TWO)
    before = {CheckpointId(1, 2), CheckpointId(1, 3)}
    found = overview(world, its_own_copy_cut_short(world))
    assert found.retained & world.checkpoints.keys() == before
    assert found.latest == CheckpointId(1, 3)


def test_what_was_restored_long_ago_is_not_what_was_cut_short() -> None:
    """The option stays in the configuration. It is not applied again, and a start without it is not refused."""
    world = a_stream(4, TWO)
    world.sources[SAVEPOINT] = world.checkpoints[CheckpointId(1, 2)]
    chosen = ev.Restore(SAVEPOINT)
    two = Driver(world, TWO)
    two.start("b", restore=chosen)
    for epoch in (3, 4):
        two.trigger(epoch)
        two.rest(2, epoch)
    claim = its_own_copy_cut_short(world, chosen)
    assert claim_of(world, claim).restored == Restored(SAVEPOINT, CheckpointId(2, 2))
    standing = overview(world, claim).standing
    assert standing is not None
    assert (standing.never_made(()), standing.is_cut_short(())) == (CheckpointId(3, 4), False)
    assert (standing.never_made([CheckpointId(3, 4)]), replace(standing, newest=claim + 1).never_made(())) == (None, None)
    for restore in (chosen, None):
        again = started(change(Driver(world, TWO), restore))
        assert again.origin == CheckpointId(again.run, 4), "not what was restored then"
        assert world.checkpoints.pop(again.origin), "cut short as well"


def test_one_that_lacks_a_file_of_the_driver_is_not_gone_on_from() -> None:
    world = after(3, TWO)
    newest = CheckpointId(1, 2)
    files = {path: content for path, content in world.checkpoints[newest].files.items() if path != "commits/2"}
    world.checkpoints[newest] = replace(world.checkpoints[newest], files=files)
    assert overview(world, 1).latest == CheckpointId(1, 1)
    assert started(Driver(world, TWO).start("b", restore=own(1, 1))).origin == CheckpointId(1, 1)
