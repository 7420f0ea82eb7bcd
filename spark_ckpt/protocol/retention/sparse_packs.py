"""Dead space in packs. An SST is immutable and lives until RocksDB compacts it away; its neighbours in a pack may be gone long before.

Of every pack at least half is needed, or what is needed of it is stored once more with the next checkpoint, in another pack. No rule of
deletion changes: the old pack is named by older checkpoints only, and goes with the last of them. Flink: the space amplification of its
file-merging snapshots (`execution.checkpointing.file-merging.max-space-amplification`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spark_ckpt.model import HandleKind, Snapshot
from spark_ckpt.paths import parse_pack_key

AT_ONCE = 16
"""Packs that one checkpoint may empty: more work than that waits for the next ones."""


def sparse_packs(snapshots: Iterable[Snapshot]) -> tuple[str, ...]:
    """Packs of which these snapshots, all of one checkpoint, need less than half; the emptiest first."""
    needed: Counter[str] = Counter()
    for snapshot in snapshots:
        for handle in snapshot.handles:
            if handle.kind is HandleKind.SST:
                needed[handle.object] += handle.length
    sizes = ((needed[name], parse_pack_key(name), name) for name in needed)
    found = [(live, name) for live, size, name in sizes if size is not None and 2 * live < size]
    return tuple(name for _, name in sorted(found)[:AT_ONCE])
