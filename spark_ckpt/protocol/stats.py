"""Numbers for people (Flink: `CheckpointStatsCounts`, `CompletedCheckpointStats`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spark_ckpt.model import Ack, CheckpointId
from spark_ckpt.protocol.reasons import AbortReason, AckResult


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
    """By operator id: snapshots, new and full bytes, slowest sync and async durations."""
    reason: str | None = None
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Statistics:
    """Counts of one run."""

    def __init__(self) -> None:
        self.triggered = 0
        self.completed = 0
        self.acks: Counter[AckResult] = Counter()
        self.aborted: Counter[AbortReason] = Counter()


def by_operator(acks: Iterable[Ack]) -> dict[str, dict[str, float]]:
    """The acks of each operator added up, for its own metrics in the query's progress."""
    found: dict[str, dict[str, float]] = {}
    for ack in acks:
        total = found.setdefault(
            str(ack.snapshot.store.operator), {"snapshots": 0, "new_bytes": 0, "full_bytes": 0, "sync_ms_max": 0.0, "async_ms_max": 0.0}
        )
        total["snapshots"] += 1
        total["new_bytes"] += ack.new_bytes
        total["full_bytes"] += ack.snapshot.size
        total["sync_ms_max"] = max(total["sync_ms_max"], ack.sync_ms)
        total["async_ms_max"] = max(total["async_ms_max"], ack.async_ms)
    return found


def summary(checkpoint: CheckpointId, time_ms: int, acks: Iterable[Ack], required: int, **numbers: Any) -> Summary:
    """Numbers of a checkpoint from its acks."""
    known = list(acks)
    return Summary(
        checkpoint.run,
        checkpoint.epoch,
        time_ms,
        acked=len(known) + numbers.pop("carried", 0),
        required=required,
        new_bytes=sum(a.new_bytes for a in known),
        sync_ms_max=max((a.sync_ms for a in known), default=0.0),
        async_ms_max=max((a.async_ms for a in known), default=0.0),
        operators=by_operator(known),
        **numbers,
    )
