"""Restores of checkpoints of several streams, in one room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from spark_ckpt.agent.reads import Reader
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.restores import ALONE, Reach, Restore
from spark_ckpt.agent.staging import Staging
from tests.drivers.agent_starts import Counting, World


def worlds(tmp_path: Path, *names: str) -> list[World]:
    """Streams of one agent, each with four segments of about the same size."""
    return [World(tmp_path, partitions=4, epochs=4, payload=1000, name=name) for name in names]


def segment_bytes(world: World) -> list[int]:
    return [sum(h.length for h in world.handles if h.object == segment) for segment in sorted(world.segments)]


@contextmanager
def restore_of(
    world: World,
    storage: Counting,
    room: RestoreRoom,
    reads: type[Reader] = Reader,
    pools: type[ThreadPoolExecutor] = ThreadPoolExecutor,
    reach: Reach = ALONE,
    clock: Callable[[], float] = lambda: 0,
) -> Iterator[Restore]:
    folder = world.spools / f"alone-{world.name}"
    folder.mkdir()
    staging, pool = Staging(folder), pools(4)
    yield Restore(storage, {s.store: s for s in world.snapshots}, reads(staging, pool), reach, room, clock=clock)
    pool.shutdown()
    staging.close()


def wanted_by(world: World, partition: int, folder: Path) -> list[tuple[Any, Path]]:
    folder.mkdir(exist_ok=True)
    return [(handle, folder / f"{world.name}-{partition}-{n}") for n, handle in enumerate(world.snapshots[partition].handles)]


def landed(restore: Restore) -> None:
    """Who waits for a range is told a moment before its room can be given back."""
    deadline = time.monotonic() + 30
    while restore._on_the_way and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not restore._on_the_way


def intact(wanted: list[tuple[Any, Path]]) -> bool:
    return all(crc32(target.read_bytes()) == handle.checksum for handle, target in wanted)
