"""What Spark does between two batches, by its own progress: no row moves meanwhile."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

METRICS = {"queryPlanning": "planning_ms", "walCommit": "log_ms", "commitOffsets": "commit_ms"}
"""What StreamingQueryProgress.durationMs tells -> metric."""
TASKS, ALL = "tasks_ms", "between_ms"
"""Tasks start, end and commit their state: `addBatch` without the time in which they take rows. All: `triggerExecution` without it."""


def medians(path: Path, batch_s: float, began_ms: float, end_ms: float) -> dict[str, list[float]]:
    """Of the batches that began within these bounds; nothing where no progress is there."""
    told: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    durations = [one["durationMs"] for one in told if began_ms <= _began_ms(one) < end_ms]
    if not durations:
        return {}
    batch_ms = batch_s * 1000
    found = {metric: [statistics.median(one.get(name, 0) for one in durations)] for name, metric in METRICS.items()}
    found[TASKS] = [statistics.median(one["addBatch"] - batch_ms for one in durations)]
    found[ALL] = [statistics.median(one["triggerExecution"] - batch_ms for one in durations)]
    return found


def _began_ms(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
