"""How much there is in state stores: what `_metadata` says of each, and, read through, entries, bytes and the biggest keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_ckpt.model import Snapshot
from spark_ckpt.process.scratch import temporary_folder
from spark_ckpt.state.reading import Selected, StateOfCheckpoint, remove

BIGGEST = 5
"""Keys and partitions that are shown of each store."""


@dataclass
class Counted:
    """Of one store or state variable, in all partitions or one. `size`: bytes of keys and values as they are stored, not compressed."""

    entries: int = 0
    size: int = 0
    biggest: list[tuple[int, int, bytes]] = field(default_factory=list)
    """The largest entries: bytes, partition, key. The smallest of them first."""

    def add(self, partition: int, key: bytes, value: bytes) -> None:
        size = len(key) + len(value)
        self.entries += 1
        self.size += size
        if len(self.biggest) < BIGGEST:
            heapq.heappush(self.biggest, (size, partition, key))
        elif size > self.biggest[0][0]:
            heapq.heapreplace(self.biggest, (size, partition, key))

    def merge(self, other: Counted) -> None:
        self.entries += other.entries
        self.size += other.size
        self.biggest = heapq.nlargest(BIGGEST, [*self.biggest, *other.biggest])[::-1]


def partitions_of(state: StateOfCheckpoint, selected: Selected) -> list[Snapshot]:
    """Of a store, the largest first."""
    return sorted(state.snapshots(selected), key=lambda snapshot: (-snapshot.size, snapshot.store.partition))


def count(state: StateOfCheckpoint, selected: list[Selected], threads: int) -> list[Counted]:
    """For each of `selected`, which are all of one store. Raises `DamagedError`, `StorageError`."""
    totals = [Counted() for _ in selected]
    with temporary_folder("state") as folder, ThreadPoolExecutor(threads, "state") as pool:

        def one(item: tuple[int, Snapshot]) -> list[Counted]:
            return _count_one(state, selected, item[1], folder / str(item[0]))

        for found in pool.map(one, enumerate(state.snapshots(selected[0]))):
            for total, counted in zip(totals, found, strict=True):
                total.merge(counted)
    return totals


def _count_one(state: StateOfCheckpoint, selected: list[Selected], snapshot: Snapshot, folder: Path) -> list[Counted]:
    found = [Counted() for _ in selected]
    with state.contents(snapshot, folder) as contents:
        for one, counted in zip(selected, found, strict=True):
            prefix = state.prefix(contents, one)
            if prefix is not None:
                for key, value in contents.entries(prefix):
                    counted.add(snapshot.store.partition, key, value)
    remove(folder)
    return found


def shown_keys(state: StateOfCheckpoint, selected: Selected, counted: Counted) -> Iterator[tuple[int, int, Any]]:
    """Bytes, partition and key as Python's values, the largest first."""
    decoder = state.decoder(selected)
    by_partition = {snapshot.store.partition: snapshot for snapshot in state.snapshots(selected)}
    for size, partition, key in reversed(counted.biggest):
        with state.named(by_partition[partition]):
            shown = decoder.key(key)
        yield size, partition, shown
