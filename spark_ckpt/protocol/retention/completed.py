"""The checkpoints a run could be restored from (Flink: `CompletedCheckpointStore`)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.model import Checkpoint, CheckpointId, Snapshot


class CompletedCheckpointStore:
    """Oldest first, and last what the run goes on from. At most `retained` stay; the newest always does.

    `not_inherited`: what a person chose not to go on from; the first that completes subsumes it.
    """

    def __init__(self, retained: int, checkpoints: Iterable[Checkpoint] = (), not_inherited: Iterable[Checkpoint] = ()) -> None:
        self._retained = max(1, retained)
        known = list(checkpoints)
        self.newest: Checkpoint | None = known[-1] if known else None
        # Of the older ones nothing else is needed: they may have tens of thousands of snapshots.
        self._logs: list[tuple[CheckpointId, int]] = [(c.id, c.log) for c in known]
        self._not_inherited = [c.id for c in not_inherited]
        self._by_uid: tuple[CheckpointId, dict[str, Snapshot]] | None = None

    @property
    def ids(self) -> tuple[CheckpointId, ...]:
        return tuple(name for name, _ in self._logs)

    def snapshot(self, uid: str) -> Snapshot | None:
        """Of the newest."""
        if self.newest is None:
            return None
        if self._by_uid is None or self._by_uid[0] != self.newest.id:
            self._by_uid = self.newest.id, {s.uid: s for s in self.newest.snapshots}
        return self._by_uid[1].get(uid)

    def add(self, checkpoint: Checkpoint) -> list[CheckpointId]:
        """Returns the checkpoints that are too many now. One that completes late takes its place among the older ones."""
        place = self.place_of(checkpoint.log)
        if place == len(self._logs):
            self.newest = checkpoint
        self._logs.insert(place, (checkpoint.id, checkpoint.log))
        not_inherited, self._not_inherited = self._not_inherited, []
        return [*not_inherited, *self.cut()]

    def cut(self) -> list[CheckpointId]:
        """Returns the checkpoints that are too many now: also those that a run inherits from one that ended with its last completion."""
        cut = max(0, len(self._logs) - self._retained)
        dropped, self._logs = self._logs[:cut], self._logs[cut:]
        return [name for name, _ in dropped]

    def place_of(self, log: int) -> int:
        place = len(self._logs)
        while place and self._logs[place - 1][1] > log:
            place -= 1
        return place
