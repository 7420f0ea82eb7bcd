"""Starts of streams in the driven protocol, and what they said."""

from __future__ import annotations

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Claim, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World


def started(said: list[Instruction]) -> do.Started:
    return next(i for i in said if isinstance(i, do.Started))


def refusal(said: list[Instruction]) -> do.Refused:
    found = [i for i in said if isinstance(i, do.Refused)]
    assert len(found) == 1
    return found[0]


def claim_of(world: World, number: int) -> Claim:
    entry = decode(number, world.log[number])
    assert isinstance(entry, Claim)
    return entry


def after(epochs: int, settings: Settings | None = None) -> World:
    world = World()
    driver = Driver(world, settings)
    driver.start("a")
    for epoch in range(epochs):
        driver.epoch(1, epoch)
    return world


def own(run: int, epoch: int) -> ev.Restore:
    return ev.Restore(f"s3://b/s/run-{run:08d}/chk-{epoch}", CheckpointId(run, epoch))


def elsewhere(epochs: int = 3) -> Checkpoint:
    """The newest checkpoint of another stream."""
    world = World()
    driver = Driver(world)
    driver.start("e", query="other")
    for epoch in range(epochs):
        driver.epoch(1, epoch)
    return world.checkpoints[CheckpointId(1, epochs - 1)]


def numbers(one: do.Started) -> list[int]:
    """The epochs that run as planned, and the first one behind them."""
    planned = [*([one.epoch] if one.rerun else []), *(p.epoch for p in one.planned)]
    return [*planned, (planned[-1] + 1 if planned else one.epoch)]
