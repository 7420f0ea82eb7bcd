"""What runs the query: Spark as `benchmarks.systems` sets it up, and Flink with what its users would set for latency."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.application import Application
from benchmarks.far_s3 import FarS3
from benchmarks.flink import commands
from benchmarks.realtime.topics import PARTITIONS, Topics
from benchmarks.systems import System, set_up
from testbed.kafka import connector_jars

ROOT = Path(__file__).resolve().parents[2]
WARM_BATCH_S = 1.0
"""Short ones: a pause between two batches is what has to be warm, and of long ones a minute has few."""
PROGRESS = "progress.json"
"""In an application's folder, once it has ended; Flink has none."""


class Engine(Enum):
    """The value is how tables call it."""

    STOCK_LOCAL = System.SAME_LOCAL.value
    STOCK_TUNED = System.SAME_TUNED.value
    FLOOR = System.FLOOR.value
    FILE = System.FILE.value
    S3 = System.S3.value
    FLINK = commands.NAME


@dataclass(frozen=True)
class Turn:
    """`batch_s`: how long a batch takes rows; Flink's checkpoint interval. `rate`: records a second."""

    engine: Engine
    partitions: int
    batch_s: float
    rate: int


def application(turn: Turn, warm: Topics, topics: Topics, s3: FarS3, folder: Path) -> Application:
    """`warm`: what Spark reads and writes until it is told to measure; Flink has one job, and no use for it. Raises BenchmarkError."""
    folder.mkdir(parents=True)
    command, env = _flink(turn, topics, s3, folder) if turn.engine is Engine.FLINK else _spark(turn, warm, topics, s3, folder)
    return Application(command, env, folder)


def _spark(turn: Turn, warm: Topics, topics: Topics, s3: FarS3, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    more = {
        "spark.master": f"local[{PARTITIONS + turn.partitions + 1}]",
        "spark.sql.shuffle.partitions": str(turn.partitions),
        "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",
        "spark.sql.execution.sortBeforeRepartition": "false",
    }
    setup = set_up(System(turn.engine.value), s3, folder, more, connector_jars())
    spec = {
        "conf": dict(setup.conf),
        "servers": topics.servers,
        "locations": setup.locations,
        "queries": [
            {"source": both.source, "sink": both.sink, "batch_ms": round(batch_s * 1000)}
            for both, batch_s in ((warm, WARM_BATCH_S), (topics, turn.batch_s))
        ],
        "progress": str(folder / PROGRESS),
    }
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **setup.environment}
    return [sys.executable, "-m", "benchmarks.realtime.spark_job", json.dumps(spec)], env


def _flink(turn: Turn, topics: Topics, s3: FarS3, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    made = {
        **commands.settings(s3, s3.bucket(), folder, round(turn.batch_s * 1000)),
        "execution.buffer-timeout.interval": "1 ms",
        "taskmanager.memory.network.min": "256mb",
        "taskmanager.memory.network.max": "256mb",
    }
    return commands.command("TotalsJob", [topics.servers, topics.source, topics.sink, str(turn.partitions)], made, folder)
