"""What a run had given up not knowing whether it is stored: `_metadata` of a newer one names it (`Checkpoint.given_up`), and it goes when
that one is complete, unless it was found meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.reasons import Outcome
from tests.drivers.interval_runs import due, epoch, run_of, running, storing_two
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_runs import held
from tests.drivers.protocol_starts import claim_of, own, refusal, started

FIRST, SECOND, THIRD = (CheckpointId(1, n) for n in range(3))


def two_stored_while_the_first_is_uncertain(world: World) -> tuple[Driver, do.ReadMetadata]:
    """Checkpoint 0 has expired with its `_metadata` on its way, and that has landed; 1 is complete, which was put before. The question
    whether 0 is there is not answered yet."""
    driver = running(world, max_concurrent=2, tolerable_failures=5, retained=3)
    put, expiry, newer = storing_two(driver)
    driver.push(ev.MetadataPut(put.ticket, put.checkpoint.id, Outcome.UNKNOWN, 0, "lost"))
    look = held(driver, do.ReadMetadata)
    driver.push(ev.TimerFired(expiry, ev.Timer.EXPIRY))
    world.store(put.checkpoint)
    world.store(newer.checkpoint)
    driver.push(ev.MetadataPut(newer.ticket, newer.checkpoint.id, Outcome.STORED))
    return driver, look


def test_it_can_not_be_chosen_where_the_newer_one_is_known_to_be_damaged() -> None:
    """(1) The deletion of what was given up is on its way; (2) executors find that the newer one is damaged, which names it; (3) a person
    chooses it, of which the start had read nothing but that it is whole."""
    world = World()
    driver, _ = two_stored_while_the_first_is_uncertain(world)
    driver.hold = lambda i: isinstance(i, (do.ReadMetadata, do.Delete))
    due(driver)
    epoch(driver, 2)
    assert world.checkpoints[THIRD].given_up == (0,)
    driver.trigger(3)  # with this append the deletion goes out
    assert FIRST in held(driver, do.Delete).checkpoints
    driver.push(ev.DamageReported(None, THIRD, "checksum"))
    assert FIRST in world.checkpoints
    why = refusal(Driver(world).start("b", restore=own(1, 0))).message
    assert "is no longer retained" in why
    assert "choose one of its others (run 1 epoch 1) or" in why


def going_where_its_newer_one_is_noted() -> World:
    """Checkpoint 3 is known to be damaged, and says that 1 was given up."""
    world = World()
    driver = Driver(world)
    driver.start("a")
    for number in range(4):
        driver.epoch(1, number)
    newest = CheckpointId(1, 3)
    world.checkpoints[newest] = replace(world.checkpoints[newest], given_up=(1,))
    driver.push(ev.DamageReported(None, newest, "checksum"))
    return world


def test_a_start_that_inherits_it_says_so_also_then() -> None:
    world = going_where_its_newer_one_is_noted()
    claim = claim_of(world, started(Driver(world).start("b")).claim)
    assert (claim.origin, claim.bad) == (THIRD, (CheckpointId(1, 3),))
    assert SECOND in claim.unsure
    assert claim.inherits == (FIRST, SECOND, THIRD), "not what is damaged"
    assert "is no longer retained" in refusal(Driver(world).start("c", restore=own(1, 1))).message


@pytest.mark.parametrize("hopeless", [True, False])
def test_where_the_newer_one_cannot_be_read_the_start_goes_on_all_the_same(hopeless: bool) -> None:
    """Nothing else of it is needed: it is known to be damaged."""
    world = going_where_its_newer_one_is_noted()
    two = Driver(world)
    two.hold = lambda i: isinstance(i, do.ReadMetadata) and i.id.epoch == 3
    said = two.start("b")
    for _ in range(1 if hopeless else 5):
        asked = held(two, do.ReadMetadata)
        two.held.clear()
        said = two.push(ev.ReadFailed(asked.ticket, "denied", hopeless, ErrorKind.CONFIG))
    assert started(said).origin == THIRD


def test_what_is_found_to_be_complete_meanwhile_stays_and_cannot_be_chosen() -> None:
    """Its run retains it as any other. Rule: nothing goes on the strength of a newer `_metadata` that names it, for that one may be deleted
    first, and then nobody knows. Whoever reads it counts on nothing."""
    world = World()
    driver, look = two_stored_while_the_first_is_uncertain(world)
    due(driver)
    epoch(driver, 2)
    third = held(driver, do.StoreMetadata)
    assert third.checkpoint.given_up == (0,)
    driver.push(ev.MetadataRead(look.ticket, FIRST, world.checkpoints[FIRST]))
    world.store(third.checkpoint)
    driver.push(ev.MetadataPut(third.ticket, third.checkpoint.id, Outcome.STORED))
    assert run_of(driver).completed == (FIRST, SECOND, THIRD)
    driver.hold = lambda _: False
    for number in (3, 4):
        driver.trigger(number)
        driver.seal(1, number)
    assert FIRST in world.checkpoints
    assert "may be deleted at any moment" in refusal(Driver(world).start("b", restore=own(1, 0))).message
