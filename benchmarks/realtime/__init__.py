"""Spark's real-time trigger beside Flink: how long a record takes from one topic through a keyed aggregation to another."""

from __future__ import annotations

from benchmarks.realtime.running import file_of, run
from benchmarks.realtime.systems import Engine, Turn

__all__ = ["BATCHES_S", "RATES", "STATE_PARTITIONS", "Engine", "Turn", "file_of", "run"]

BATCHES_S = (1.0, 5.0, 30.0)
STATE_PARTITIONS = (3, 20)
RATES = (100, 10_000, 20_000, 40_000, 80_000)
"""Records a second. Those beyond 10,000 ask how many keep up: of each system none is begun past the first that does not."""
