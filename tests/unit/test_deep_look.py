"""A start that reads the whole of a checkpoint which was noted as damaged: what it finds, and what it may not read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_ckpt import paths
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.errors import ErrorKind, StorageSetupError
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Damage, encode
from spark_ckpt.storage.base import LARGEST_READ
from spark_ckpt.storage.memory import MemoryStorage, wipe
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.long_logs import epochs, running, tail_of
from tests.drivers.protocol_driving import CONTENT, Driver, World
from tests.drivers.protocol_starts import refusal, started

EXPIRED = "the S3 credentials have expired (ExpiredToken); renew them and start again"
NEWEST = CheckpointId(1, 4)


class Locked(MemoryStorage):
    """Nobody may read what `locked` says."""

    locked: Callable[[str], bool]

    def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
        if self.locked(key):
            raise StorageSetupError(EXPIRED)
        return super().get(key, offset, length, limit)


def noted() -> World:
    """All that a start could go on from was found damaged, and was put back."""
    world = World()
    epochs(running(world), 1, 0, 4)
    world.log[max(world.log) + 1] = encode(Damage(1, 1, tuple(sorted(world.checkpoints)), "broken"))
    return world


def actions(world: World, locked: Callable[[str], bool]) -> StorageActions:
    wipe("deep")
    storage = Locked("memory://deep/s")
    storage.locked = locked
    for checkpoint, content in world.checkpoints.items():
        storage.put(paths.metadata_key(checkpoint), encode_metadata(content))
    for key in world.objects:
        storage.put(key, CONTENT)
    return StorageActions(storage.url, lambda _url: storage)


def asked(driver: Driver) -> do.VerifyObjects:
    driver.hold = lambda i: isinstance(i, do.VerifyObjects)
    driver.start("b")
    (look,) = driver.held
    assert isinstance(look, do.VerifyObjects)
    assert look.deep
    assert look.checkpoint.id == NEWEST
    driver.hold, driver.held = lambda _: False, []
    return look


def test_what_may_not_be_read_ends_the_start_and_is_no_damage() -> None:
    world = noted()
    driver = Driver(world)
    tail = max(world.log)
    answer = actions(world, lambda _: True).perform(asked(driver))
    refused = refusal(driver.push(answer))
    assert refused.kind is ErrorKind.STORAGE
    assert EXPIRED in refused.message
    assert max(world.log) == tail, "nothing is claimed"
    assert isinstance(tail_of(world), Damage)


def test_what_is_missing_is_damage_whatever_else_may_not_be_read() -> None:
    world = noted()
    driver = Driver(world)
    look = asked(driver)
    gone = min(look.checkpoint.objects)
    world.objects.discard(gone)
    answer = actions(world, lambda _: True).perform(look)
    assert isinstance(answer, ev.ObjectsVerified)
    assert answer.damage == f"the object {gone} is missing"


@pytest.mark.parametrize("damaged", [False, True])
def test_what_can_be_read_is_gone_on_from_if_it_is_whole(damaged: bool) -> None:
    world = noted()
    driver = Driver(world)
    look = asked(driver)
    at = actions(world, lambda _: False)
    if damaged:
        at.storage.put(min(look.checkpoint.objects), b"y" * len(CONTENT))
    one = started(driver.push(at.perform(look)))
    assert one.origin == (NEWEST if not damaged else CheckpointId(1, 3))
