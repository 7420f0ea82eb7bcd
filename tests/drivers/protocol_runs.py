"""Runs of the driven protocol in which every epoch is a checkpoint, and what any run said."""

from __future__ import annotations

from typing import Any

from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Announcement, Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World


def running(world: World | None = None, settings: Settings | None = None) -> Driver:
    driver = Driver(world or World(), settings)
    driver.start("a")
    return driver


def kinds(said: list[Instruction]) -> list[str]:
    """What was said, in short: announcements by their event, refusals by their kind."""
    told = []
    for i in said:
        if isinstance(i, do.Announce):
            told.append(i.event.value)
        elif isinstance(i, do.Refused):
            told.append(f"{i.request.value} {i.kind.value}")
        else:
            told.append(type(i).__name__)
    return told


def held(driver: Driver, kind: type[Any]) -> Any:
    found = [i for i in driver.held if isinstance(i, kind)]
    assert len(found) == 1
    driver.held.remove(found[0])
    return found[0]


def reasons(driver: Driver) -> list[str | None]:
    return [i.summary.get("reason") for i in driver.said if isinstance(i, do.Announce) and i.event is Announcement.ABORTED]
