"""What an application says of itself: how many checkpoints it has completed, and what Spark does before and after its batches' own time."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError

METRICS = {"queryPlanning": "planning_ms", "walCommit": "log_ms", "commitOffsets": "commit_ms"}
"""What StreamingQueryProgress.durationMs tells -> metric."""
TASKS, AROUND = "tasks_ms", "around_ms"
"""`addBatch` and `triggerExecution`, each without the batch's length. Spark counts that from when the driver plans its tasks
(RealTimeStreamScanExec): their start is within it, and in neither of these. Their end, with the commit of their state, is in both."""
CHECKPOINTS = "checkpoints_count"
_NEWEST = "checkpointId"
"""In a query's progress with this project: the epoch of the newest complete checkpoint."""
_COMPLETED = re.compile(r"^(\S+) .*CheckpointCoordinator - Completed checkpoint \d+ for job", re.MULTILINE)
_RESTARTED = re.compile(r"from state \w+ to RESTARTING|switched from \w+ to RESTARTING")


def of_spark(progress: Path, batch_s: float, began_ms: float, end_ms: float) -> dict[str, list[float]]:
    """Medians, and a count, over the batches that began within these bounds. Raises BenchmarkError where there were none.

    Stock Spark makes a checkpoint of each of its batches.
    """
    told: Sequence[Mapping[str, Any]] = json.loads(progress.read_text(encoding="utf-8"))
    batches = [one for one in told if began_ms <= _milliseconds(one["timestamp"]) < end_ms]
    if not batches:
        raise BenchmarkError("no batch began while it was measured")
    durations, batch_ms = [one["durationMs"] for one in batches], batch_s * 1000
    found = {metric: [statistics.median(one.get(name, 0) for one in durations)] for name, metric in METRICS.items()}
    found[TASKS] = [statistics.median(one["addBatch"] - batch_ms for one in durations)]
    found[AROUND] = [statistics.median(one["triggerExecution"] - batch_ms for one in durations)]
    custom = [one["stateOperators"][0]["customMetrics"] for one in batches]
    found[CHECKPOINTS] = [float(len({one[_NEWEST] for one in custom}) if _NEWEST in custom[0] else len(batches))]
    return found


def of_flink(log: Path, began_ms: float, end_ms: float) -> dict[str, list[float]]:
    """Raises BenchmarkError where the job was restarted: its records came twice."""
    said = log.read_text(encoding="utf-8", errors="replace")
    if _RESTARTED.search(said):
        raise BenchmarkError("Flink has restarted the job")
    completed = [_milliseconds(when) for when in _COMPLETED.findall(said)]
    return {CHECKPOINTS: [float(sum(began_ms <= when < end_ms for when in completed))]}


def _milliseconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp() * 1000
