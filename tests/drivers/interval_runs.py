"""Runs of the driven protocol whose checkpoints are due by the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_runs import held, kinds

EVERY = Settings(interval_ms=10_000)


def running(world: World | None = None, **changes: Any) -> Driver:
    driver = Driver(world or World(), replace(EVERY, **changes))
    driver.start("a")
    return driver


def run_of(driver: Driver) -> Run:
    assert isinstance(driver.stream.run, Run)
    return driver.stream.run


def told(said: list[Instruction], kind: type[Any]) -> Any:
    found = [i for i in said if isinstance(i, kind)]
    assert len(found) == 1, kinds(said)
    return found[0]


def epoch(driver: Driver, number: int, run: int = 1) -> list[Instruction]:
    """Triggered and sealed; acks only if it is a checkpoint."""
    said = driver.trigger(number)
    if told(said, do.Triggered).checkpoint:
        for p in range(2):
            said += driver.ack(run, number, p)
    return said + driver.seal(run, number)


def due(driver: Driver) -> list[Instruction]:
    return driver.fire(ev.Timer.INTERVAL)


def plain(driver: Driver, number: int) -> None:
    """An epoch without a checkpoint, after which the next one is due."""
    assert not told(driver.trigger(number), do.Triggered).checkpoint
    due(driver)
    driver.seal(1, number)


def storing(driver: Driver) -> do.StoreMetadata:
    """Epoch 0 is a checkpoint, and its `_metadata` is on its way."""
    due(driver)
    driver.trigger(0)
    driver.hold = lambda i: isinstance(i, (do.StoreMetadata, do.ReadMetadata))
    driver.seal(1, 0)
    for p in range(2):
        driver.ack(1, 0, p)
    put = held(driver, do.StoreMetadata)
    assert isinstance(put, do.StoreMetadata)
    return put


def storing_two(driver: Driver) -> tuple[do.StoreMetadata, int, do.StoreMetadata]:
    """Epochs 0 and 1 are checkpoints, and `_metadata` of both are on their way; the timer is that of the first one."""
    put = storing(driver)
    expiry = driver.timers[ev.Timer.EXPIRY]
    due(driver)
    epoch(driver, 1)
    return put, expiry, held(driver, do.StoreMetadata)


def pending_two(driver: Driver) -> None:
    """Checkpoints 0 and 1 are sealed, and nothing is stored."""
    due(driver)
    for number in range(2):
        assert told(driver.trigger(number), do.Triggered).checkpoint
        driver.seal(1, number)
        due(driver)
