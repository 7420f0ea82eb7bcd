"""Runs of the driven protocol in real time: an epoch's barrier comes first, and what it has read with its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Plan, decode
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import JOB, Driver, World, commit, offsets, uid_of


def starts(world: World, nonce: str, settings: Settings | None = None, **more: Any) -> tuple[Driver, list[Instruction]]:
    driver = Driver(world, settings)
    return driver, driver.push(ev.StartRequested("q", JOB, (), nonce, "host", real_time=True, **more))


def running(world: World | None = None, settings: Settings | None = None) -> Driver:
    return starts(world or World(), "a", settings)[0]


def begin(driver: Driver, epoch: int, files: Mapping[str, bytes | None] | None = None) -> list[Instruction]:
    return driver.push(ev.TriggerRequested(epoch, b"", files or {}))


def acknowledge(driver: Driver, run: int, epoch: int) -> list[Instruction]:
    return [i for p in range(2) for i in driver.ack(run, epoch, p)]


def end(driver: Driver, run: int, epoch: int, files: Mapping[str, bytes | None] | None = None) -> list[Instruction]:
    made = commit([uid_of(run, epoch, p) for p in range(2)])
    return driver.push(ev.SealRequested(epoch, made, files or {}, offsets=offsets(epoch)))


def epoch(driver: Driver, run: int, number: int) -> list[Instruction]:
    return [*begin(driver, number), *end(driver, run, number), *acknowledge(driver, run, number)]


def entries(world: World) -> list[Any]:
    return [decode(number, data) for number, data in sorted(world.log.items())]


def records(world: World) -> list[tuple[int, bool]]:
    """Epoch, and whether it had ended."""
    return [(entry.epoch, bool(entry.offsets)) for entry in entries(world) if isinstance(entry, Plan) and entry.real_time]
