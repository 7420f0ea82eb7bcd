"""Which checkpoints name which objects (Flink: `SharedStateRegistry`)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.model import Checkpoint, CheckpointId


class SharedStateRegistry:
    """Built from memory and from the metadata read at start; never from what a listing happens to show."""

    def __init__(self) -> None:
        self._names: dict[CheckpointId, frozenset[str]] = {}
        self._entries: dict[CheckpointId, int] = {}

    def register(self, checkpoint: Checkpoint) -> None:
        self._names[checkpoint.id] = checkpoint.objects
        self._entries[checkpoint.id] = checkpoint.lowest_entry

    def unregister(self, checkpoint: CheckpointId) -> None:
        self._names.pop(checkpoint, None)
        self._entries.pop(checkpoint, None)

    @property
    def lowest_entry(self) -> int | None:
        """Of the log, that a start from any of them reads; None: there is no checkpoint."""
        return min(self._entries.values(), default=None)

    def objects(self, checkpoint: CheckpointId) -> frozenset[str]:
        return self._names.get(checkpoint, frozenset())

    def named(self, but: Iterable[CheckpointId] = ()) -> frozenset[str]:
        """Every object that a checkpoint other than `but` names."""
        left_out = frozenset(but)
        return frozenset().union(*(objects for name, objects in self._names.items() if name not in left_out))

    @property
    def checkpoints(self) -> frozenset[CheckpointId]:
        return frozenset(self._names)
