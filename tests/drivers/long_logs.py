"""Runs whose logs are days long: what their tests share."""

from __future__ import annotations

from typing import Any

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Entry, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import started

HOUR_MS = 60 * 60 * 1000
SAVEPOINT = "s3://b/savepoints/x"


def ids_of(world: World) -> list[int]:
    return sorted(world.log)


def entry_of(world: World, number: int) -> Entry:
    return decode(number, world.log[number])


def tail_of(world: World) -> Entry:
    return entry_of(world, max(world.log))


def running(world: World, nonce: str = "a", restore: ev.Restore | None = None, **settings: Any) -> Driver:
    driver = Driver(world, Settings(**{"retained": 2, "trim_every": 1, **settings}))
    started(driver.start(nonce, restore=restore))
    return driver


def epochs(driver: Driver, run: int, first: int, last: int, every_ms: int = HOUR_MS) -> None:
    for epoch in range(first, last + 1):
        driver.world.clock_ms += every_ms
        driver.epoch(run, epoch)


def looks(driver: Driver) -> list[Instruction]:
    """From now on, each LIST past an entry."""
    seen: list[Instruction] = []

    def see(i: Instruction) -> bool:
        if isinstance(i, do.LookPast):
            seen.append(i)
        return False

    driver.hold = see
    return seen
