"""A checkpoint's numbers by partition (Flink: `SubtaskStateStats`, `TaskStateStats`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_ckpt.model import Ack

PARTITIONS_LISTED = 1_000
"""A checkpoint of more partitions is told as distributions and its slowest partitions: the event log must not grow with the state."""
SLOWEST_LISTED = 100
"""Partitions of each operator that are listed then."""
QUANTILES = (500, 900, 950, 990, 999)
"""Per mille."""


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


class Subtasks:
    """Of the acks so far. Adding up goes with each ack: when the last one has come a query waits."""

    def __init__(self, acks: Iterable[Ack] = ()) -> None:
        self.new_bytes = 0
        self.sync_ms_max = 0.0
        self.async_ms_max = 0.0
        self._operators: dict[int, dict[int, Subtask]] = {}
        for ack in acks:
            self.add(ack)

    def __bool__(self) -> bool:
        return bool(self._operators)

    def add(self, ack: Ack) -> None:
        store = ack.snapshot.store
        self.new_bytes += ack.new_bytes
        if ack.sync_ms > self.sync_ms_max:
            self.sync_ms_max = ack.sync_ms
        if ack.async_ms > self.async_ms_max:
            self.async_ms_max = ack.async_ms
        rows = self._operators.get(store.operator)
        if rows is None:
            rows = self._operators[store.operator] = {}
        row = rows.get(store.partition)
        if row is None:
            rows[store.partition] = Subtask.of(ack)
        else:
            row.add(ack)

    def by_operator(self) -> dict[str, dict[str, float]]:
        """The partitions of each operator added up, for its own metrics in the query's progress. `…_max`: of the slowest one."""
        return {str(operator): _added_up(rows.values()) for operator, rows in sorted(self._operators.items())}

    def by_partition(self) -> dict[str, Any]:
        """`executors`, and by operator `subtasks`, the slowest partition first: rows of whole numbers (docs/pipes.md), at most 64 bytes
        each as JSON.

        Above `PARTITIONS_LISTED` only the slowest partitions, and `distributions` of all.
        """
        ordered = {
            operator: sorted(rows.values(), key=lambda s: (-s.acked_ms, s.partition)) for operator, rows in sorted(self._operators.items())
        }
        summarised = sum(len(rows) for rows in ordered.values()) > PARTITIONS_LISTED
        listed = {operator: rows[:SLOWEST_LISTED] if summarised else rows for operator, rows in ordered.items()}
        executors = sorted({row.executor for rows in listed.values() for row in rows})
        index = {executor: i for i, executor in enumerate(executors)}
        doc: dict[str, Any] = {"executors": executors, "subtasks": {}}
        for operator, rows in ordered.items():
            last = max(row.commit_ms for row in rows)
            numbers = zip(*_columns(listed[operator], last), strict=True)
            doc["subtasks"][str(operator)] = [[r.partition, index[r.executor], *n] for r, n in zip(listed[operator], numbers, strict=True)]
            if summarised:
                doc.setdefault("distributions", {})[str(operator)] = [distribution(column) for column in _columns(rows, last)]
        return doc


def _added_up(rows: Collection[Subtask]) -> dict[str, float]:
    return {
        "snapshots": sum([r.snapshots for r in rows]),
        "partitions": len(rows),
        "new_bytes": sum([r.new_bytes for r in rows]),
        "full_bytes": sum([r.full_bytes for r in rows]),
        "sync_ms_max": max([r.sync_ms for r in rows]),
        "async_ms_max": max([r.async_ms for r in rows]),
        "start_delay_ms_max": max([r.start_delay_ms for r in rows]),
        "commit_ms_max": max([r.commit_ms for r in rows]),
        "acked_ms_max": max([r.commit_ms + r.async_ms for r in rows]),
    }


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
