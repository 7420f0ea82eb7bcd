"""Damage to what is stored: what readers find in its place. The world remembers what was there, and a person may put it back."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from zlib import crc32

from spark_ckpt.model import Checkpoint, CheckpointId


class DamageKind(Enum):
    GONE = "GONE"
    ALTERED = "ALTERED"


class StoredDamage:
    """By log entry, checkpoint (its `_metadata`) and object: what has become of it, and when. `ever`: checkpoints that were damaged once,
    or name what was: nobody has to find them whole."""

    def __init__(self) -> None:
        self.entries: dict[int, DamageKind] = {}
        self.metadata: dict[CheckpointId, DamageKind] = {}
        self.objects: dict[str, DamageKind] = {}
        self.ever: set[CheckpointId] = set()
        self.vanished: set[CheckpointId] = set()
        """Whose `_metadata` was not there for a while."""
        self.collected: set[str] = set()
        """Objects of such ones, taken for garbage: putting `_metadata` back does not bring them back."""
        self.gone_at = -1
        """When something of it was repaired, or replaced or deleted by a run."""
        self._since: dict[CheckpointId | str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.entries or self.metadata or self.objects)

    def entry(self, number: int, kind: DamageKind) -> None:
        self.entries[number] = kind

    def checkpoint(self, checkpoint: CheckpointId, kind: DamageKind, now: int) -> None:
        self.metadata[checkpoint] = kind
        self._since[checkpoint] = now
        self.ever.add(checkpoint)
        if kind is DamageKind.GONE:
            self.vanished.add(checkpoint)

    def object(self, key: str, kind: DamageKind, now: int, named_by: Iterable[CheckpointId]) -> None:
        self.objects[key] = kind
        self._since[key] = now
        self.ever.update(named_by)

    def forget(self, name: CheckpointId | str, now: int) -> None:
        """A run has stored it again, or deleted it."""
        of_metadata = self.metadata.pop(name, None) if isinstance(name, CheckpointId) else None
        of_object = self.objects.pop(name, None) if isinstance(name, str) else None
        if of_metadata or of_object:
            self.gone_at = now

    def named(self, checkpoint: Checkpoint, now: int) -> None:
        """It is stored, and may name what is damaged."""
        self.forget(checkpoint.id, now)
        if checkpoint.objects & self.objects.keys():
            self.ever.add(checkpoint.id)

    def seen_before(self, checkpoint: Checkpoint, at: int) -> bool:
        """Whether somebody who looks at `_metadata`, and which objects are there, would have noticed at that time."""
        gone = [key for key in sorted(checkpoint.objects) if self.objects.get(key) is DamageKind.GONE]
        broken: list[CheckpointId | str] = [*gone, *([checkpoint.id] if checkpoint.id in self.metadata else [])]
        return any(self._since[name] < at for name in broken)

    def repair(self, now: int) -> None:
        """A person puts everything back as it was."""
        self.entries.clear()
        self.metadata.clear()
        self.objects.clear()
        self.gone_at = now


def checksum(value: int) -> int:
    """Of a part of a state."""
    return crc32(b"%d" % value)
