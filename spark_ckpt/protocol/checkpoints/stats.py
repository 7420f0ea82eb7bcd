"""Numbers for people (Flink: `CheckpointStatsCounts`, `CompletedCheckpointStats`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements
from spark_ckpt.protocol.checkpoints.subtasks import Subtasks


@dataclass(frozen=True)
class Lag:
    """How far what is stored is behind what has run: finished epochs past the newest checkpoint, age of that one in milliseconds (0 where
    nothing is behind), bytes in spools that are not stored yet."""

    epochs: int = 0
    ms: int = 0
    bytes: int = 0

    def to_json(self) -> dict[str, int]:
        return asdict(self)


NO_LAG = Lag()


@dataclass(frozen=True)
class Summary:
    """One checkpoint's numbers: sizes in bytes, durations in milliseconds (docs/pipes.md)."""

    run: int
    epoch: int
    time_ms: int
    acked: int = 0
    required: int = 0
    new_bytes: int = 0
    full_bytes: int = 0
    metadata_bytes: int = 0
    duration_ms: int = 0
    plan_ms: int = 0
    finalise_ms: int = 0
    sync_ms_max: float = 0.0
    async_ms_max: float = 0.0
    operators: Mapping[str, Mapping[str, float]] | None = None
    """By operator id: `Subtasks.by_operator`."""
    lag_epochs: int | None = None
    lag_ms: int | None = None
    lag_bytes: int | None = None
    """In the interval mode; see `Lag`."""
    reason: str | None = None
    message: str | None = None
    subtasks: Subtasks | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Without the partitions: `_metadata` and the query's own progress have these."""
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "subtasks"}
        return {name: value for name, value in numbers.items() if value is not None}

    def announcement(self) -> dict[str, Any]:
        """With the partitions, for listeners."""
        return {**self.to_json(), **self.subtasks.by_partition()} if self.subtasks else self.to_json()


def summary_of(checkpoint: CheckpointId, triggered_ms: int, acks: Acknowledgements, now_ms: int, plan_ms: int, **numbers: Any) -> Summary:
    """Numbers of a checkpoint in the making, or just completed or aborted."""
    return Summary(
        checkpoint.run,
        checkpoint.epoch,
        triggered_ms,
        acked=acks.counted,
        required=len(acks.required),
        duration_ms=now_ms - triggered_ms,
        plan_ms=plan_ms,
        new_bytes=acks.subtasks.new_bytes,
        sync_ms_max=acks.subtasks.sync_ms_max,
        async_ms_max=acks.subtasks.async_ms_max,
        operators=acks.subtasks.by_operator(),
        subtasks=acks.subtasks,
        **numbers,
    )
