"""Which thread does what a stream asks of the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.pool import Pool
from spark_ckpt.coordinator.schedule import Schedule
from spark_ckpt.coordinator.storage_work import Pools, StorageWork
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import Restored
from spark_ckpt.storage import open_storage


class Named:
    """A pool that says what has come."""

    def __init__(self, name: str, came: list[str]) -> None:
        self._name, self._came = name, came

    def submit(self, _: Callable[[], None]) -> None:
        self._came.append(self._name)


@pytest.fixture
def came() -> list[str]:
    return []


@pytest.fixture
def work(came: list[str]) -> Iterator[StorageWork]:
    actions = StorageActions("memory://pools/s", open_storage)
    pools = Pools(*(cast(Pool, Named(name, came)) for name in ("foreground", "background", "trimming", "elsewhere")))
    nothing: Any = lambda *_: None  # noqa: E731
    yield StorageWork(actions, pools, cast(Schedule, None), nothing, nothing, nothing)
    actions.close()


def test_no_deletion_of_another_stream_waits_for_a_savepoint(work: StorageWork, came: list[str]) -> None:
    """It may lie on a mount that hangs."""
    checkpoint = CheckpointId(1, 0)
    work.begin(do.Delete(1, (checkpoint,), ("seg/1",)))
    work.begin(do.Delete(2, (checkpoint,), ("seg/1",), Restored("s3://elsewhere/savepoint", checkpoint, owned=True)))
    work.begin(do.LocateTail(3))
    assert came == ["background", "elsewhere", "foreground"]
