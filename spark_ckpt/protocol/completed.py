"""The checkpoints a run could be restored from (Flink: `CompletedCheckpointStore`)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.model import Checkpoint, CheckpointId


class CompletedCheckpointStore:
    """Oldest first, and last what the run goes on from. At most `retained` stay; the newest always does.

    `aside`: what a person chose not to go on from; the first that completes subsumes it.
    """

    def __init__(self, retained: int, checkpoints: Iterable[Checkpoint] = (), aside: Iterable[Checkpoint] = ()) -> None:
        self._retained = max(1, retained)
        self._checkpoints: list[Checkpoint] = list(checkpoints)
        self._aside: list[Checkpoint] = list(aside)

    @property
    def newest(self) -> Checkpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def ids(self) -> tuple[CheckpointId, ...]:
        return tuple(c.id for c in self._checkpoints)

    def add(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Returns the checkpoints that are too many now. One that completes late takes its place among the older ones."""
        place = len(self._checkpoints)
        while place and self._checkpoints[place - 1].log > checkpoint.log:
            place -= 1
        self._checkpoints.insert(place, checkpoint)
        cut = len(self._checkpoints) - self._retained
        dropped, self._checkpoints = self._checkpoints[: max(0, cut)], self._checkpoints[max(0, cut) :]
        aside, self._aside = self._aside, []
        return aside + dropped
