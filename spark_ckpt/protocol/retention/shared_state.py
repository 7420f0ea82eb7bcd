"""Which checkpoints name which objects (Flink: `SharedStateRegistry`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from spark_ckpt.model import Checkpoint, CheckpointId


class SharedStateRegistry:
    """Built from memory and from the metadata read at start; never from what a listing happens to show."""

    def __init__(self) -> None:
        self._names: dict[CheckpointId, frozenset[str]] = {}
        self._count: Counter[str] = Counter()
        """By object, how many checkpoints name it: what could not be deleted adds nothing to what an epoch costs."""
        self._entries: dict[CheckpointId, int] = {}

    def register(self, checkpoint: Checkpoint) -> None:
        self.unregister(checkpoint.id)
        self._names[checkpoint.id] = objects = checkpoint.objects
        self._count.update(objects)
        self._entries[checkpoint.id] = checkpoint.lowest_entry

    def unregister(self, checkpoint: CheckpointId) -> None:
        for name in self._names.pop(checkpoint, ()):
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
        self._entries.pop(checkpoint, None)

    def __contains__(self, name: str) -> bool:
        """Whether a checkpoint names this object."""
        return name in self._count

    @property
    def lowest_entry(self) -> int | None:
        """Of the log, that a start from any of them reads; None: there is no checkpoint."""
        return min(self._entries.values(), default=None)

    def objects(self, checkpoint: CheckpointId) -> frozenset[str]:
        return self._names.get(checkpoint, frozenset())

    def named(self) -> frozenset[str]:
        """Every object that a checkpoint names."""
        return frozenset(self._count)

    def named_of(self, objects: Iterable[str], but: Collection[CheckpointId]) -> frozenset[str]:
        """Those among them that a checkpoint other than `but` names."""
        named_by_those = Counter(name for checkpoint in frozenset(but) for name in self.objects(checkpoint))
        return frozenset(name for name in objects if self._count[name] > named_by_those[name])

    def hit_by(self, checkpoint: CheckpointId | None, name: str | None) -> set[CheckpointId]:
        """Those that cannot be restored where this one, or this object, is damaged."""
        return {c for c, objects in self._names.items() if c == checkpoint or name in objects}

    @property
    def checkpoints(self) -> frozenset[CheckpointId]:
        return frozenset(self._names)
