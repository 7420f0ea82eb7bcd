"""Numbers for people (Flink: `CheckpointStatsCounts`, `CompletedCheckpointStats`, `SubtaskStateStats`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spark_ckpt.model import Ack, CheckpointId
from spark_ckpt.protocol.pending import PendingCheckpoint

PARTITIONS_LISTED = 1_000
"""A checkpoint of more partitions is told as distributions and its slowest partitions: the event log must not grow with the state."""
SLOWEST_LISTED = 100
"""Partitions of each operator that are listed then."""
QUANTILES = (500, 900, 950, 990, 999)
"""Per mille."""


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
    """By operator id: what `by_operator` adds up."""
    lag_epochs: int | None = None
    lag_ms: int | None = None
    lag_bytes: int | None = None
    """In the interval mode; see `Lag`."""
    reason: str | None = None
    message: str | None = None
    subtasks: Mapping[int, Sequence[Subtask]] | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Without the partitions: `_metadata` and the query's own progress have these."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "subtasks"}
        return {name: value for name, value in told.items() if value is not None}

    def announcement(self) -> dict[str, Any]:
        """With the partitions, for listeners."""
        return {**self.to_json(), **by_partition(self.subtasks)} if self.subtasks else self.to_json()


@dataclass(slots=True)
class Subtask:
    """One partition of an operator, its stores taken together. `start_delay_ms` and `commit_ms` count from the barrier's trigger."""

    partition: int
    executor: str
    start_delay_ms: float
    commit_ms: float
    sync_ms: float
    async_ms: float
    new_bytes: int
    full_bytes: int
    snapshots: int

    @staticmethod
    def of(ack: Ack) -> Subtask:
        """Of its first store, which is mostly its only one."""
        return Subtask(
            ack.snapshot.store.partition,
            ack.executor,
            max(0.0, ack.start_delay_ms),
            max(0.0, ack.commit_delay_ms),
            ack.sync_ms,
            max(0.0, ack.async_ms),
            ack.new_bytes,
            ack.snapshot.size,
            1,
        )

    def add(self, ack: Ack) -> None:
        self.snapshots += 1
        self.start_delay_ms = max(self.start_delay_ms, ack.start_delay_ms)
        self.commit_ms = max(self.commit_ms, ack.commit_delay_ms)
        self.sync_ms += ack.sync_ms
        self.async_ms = max(self.async_ms, ack.async_ms)
        self.new_bytes += ack.new_bytes
        self.full_bytes += ack.snapshot.size

    @property
    def acked_ms(self) -> float:
        """When it was durable (Flink: end-to-end duration of a subtask)."""
        return self.commit_ms + self.async_ms


def subtasks(acks: Iterable[Ack]) -> dict[int, list[Subtask]]:
    """By operator, the slowest partition first."""
    found: dict[int, dict[int, Subtask]] = {}
    for ack in acks:
        store = ack.snapshot.store
        rows = found.setdefault(store.operator, {})
        row = rows.get(store.partition)
        if row is None:
            rows[store.partition] = Subtask.of(ack)
        else:
            row.add(ack)
    return {operator: sorted(rows.values(), key=lambda s: (-s.acked_ms, s.partition)) for operator, rows in sorted(found.items())}


def by_operator(operators: Mapping[int, Sequence[Subtask]]) -> dict[str, dict[str, float]]:
    """The partitions of each operator (`subtasks`) added up, for its own metrics in the query's progress. `…_max`: of the slowest one."""
    return {
        str(operator): {
            "snapshots": sum(r.snapshots for r in rows),
            "partitions": len(rows),
            "new_bytes": sum(r.new_bytes for r in rows),
            "full_bytes": sum(r.full_bytes for r in rows),
            "sync_ms_max": max(r.sync_ms for r in rows),
            "async_ms_max": max(r.async_ms for r in rows),
            "start_delay_ms_max": max(r.start_delay_ms for r in rows),
            "commit_ms_max": max(r.commit_ms for r in rows),
            "acked_ms_max": rows[0].acked_ms,
        }
        for operator, rows in operators.items()
    }


def by_partition(operators: Mapping[int, Sequence[Subtask]]) -> dict[str, Any]:
    """`executors`, and by operator `subtasks`: rows of whole numbers (docs/pipes.md), at most 64 bytes each as JSON.

    Above `PARTITIONS_LISTED` only the slowest partitions, and `distributions` of all.
    """
    summarised = sum(len(rows) for rows in operators.values()) > PARTITIONS_LISTED
    listed = {operator: rows[:SLOWEST_LISTED] if summarised else rows for operator, rows in operators.items()}
    executors = sorted({row.executor for rows in listed.values() for row in rows})
    index = {executor: i for i, executor in enumerate(executors)}
    told: dict[str, Any] = {"executors": executors, "subtasks": {}}
    for operator, rows in operators.items():
        last = max(row.commit_ms for row in rows)
        numbers = zip(*_columns(listed[operator], last), strict=True)
        told["subtasks"][str(operator)] = [[r.partition, index[r.executor], *n] for r, n in zip(listed[operator], numbers, strict=True)]
        if summarised:
            told.setdefault("distributions", {})[str(operator)] = [distribution(column) for column in _columns(rows, last)]
    return told


def distribution(values: Iterable[float]) -> list[int]:
    """Minimum, average, maximum, and `QUANTILES` by the nearest rank."""
    ordered = sorted(values)
    ranks = [ordered[-(-q * len(ordered) // 1000) - 1] for q in QUANTILES]
    return [round(v) for v in (ordered[0], sum(ordered) / len(ordered), ordered[-1], *ranks)]


def _columns(rows: Sequence[Subtask], last_commit_ms: float) -> tuple[list[int], ...]:
    """start delay, alignment, sync (µs), async, new bytes, full bytes. Alignment: how long a snapshot waited for its operator's last."""
    return (
        [round(r.start_delay_ms) for r in rows],
        [round(last_commit_ms - r.commit_ms) for r in rows],
        [round(r.sync_ms * 1000) for r in rows],
        [round(r.async_ms) for r in rows],
        [r.new_bytes for r in rows],
        [r.full_bytes for r in rows],
    )


def summary_of(pending: PendingCheckpoint, now_ms: int, plan_ms: int, **numbers: Any) -> Summary:
    """Numbers of a checkpoint in the making, or just completed or aborted."""
    return summary(
        pending.id,
        pending.triggered_ms,
        pending.acks.values(),
        len(pending.required),
        carried=len(pending.carried),
        duration_ms=now_ms - pending.triggered_ms,
        plan_ms=plan_ms,
        **numbers,
    )


def summary(checkpoint: CheckpointId, time_ms: int, acks: Iterable[Ack], required: int, **numbers: Any) -> Summary:
    """Numbers of a checkpoint from its acks."""
    known = tuple(acks)
    rows = subtasks(known)
    return Summary(
        checkpoint.run,
        checkpoint.epoch,
        time_ms,
        acked=len(known) + numbers.pop("carried", 0),
        required=required,
        new_bytes=sum(a.new_bytes for a in known),
        sync_ms_max=max((a.sync_ms for a in known), default=0.0),
        async_ms_max=max((a.async_ms for a in known), default=0.0),
        operators=by_operator(rows),
        subtasks=rows,
        **numbers,
    )
