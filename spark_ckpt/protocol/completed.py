"""The checkpoints a run could be restored from (Flink: `CompletedCheckpointStore`)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.model import Checkpoint, CheckpointId


class CompletedCheckpointStore:
    """Oldest first. At most `retained` stay; the newest always does."""

    def __init__(self, retained: int, checkpoints: Iterable[Checkpoint] = ()) -> None:
        self._retained = max(1, retained)
        self._checkpoints: list[Checkpoint] = list(checkpoints)

    @property
    def newest(self) -> Checkpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def ids(self) -> tuple[CheckpointId, ...]:
        return tuple(c.id for c in self._checkpoints)

    def add(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Returns the checkpoints that this one subsumes."""
        self._checkpoints.append(checkpoint)
        cut = len(self._checkpoints) - self._retained
        dropped, self._checkpoints = self._checkpoints[: max(0, cut)], self._checkpoints[max(0, cut) :]
        return dropped
