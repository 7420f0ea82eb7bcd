"""Spark Declarative Pipelines on a Spark Connect server that has the plugin, under kills (docs/connect.md)."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.dataset as ds
import pytest

from spark_ckpt.cli.main import run as command
from tests.drivers.spark.connect import ConnectServer, pipelines_run
from tests.drivers.spark.s3_server import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

KILLS = 5
KEYS = 40
BEGUN = "Committed offsets for batch"
"""What Spark's log has of each epoch that begins."""
TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()


def rows():
    return spark.readStream.schema("key string, value long, at timestamp").option("maxFilesPerTrigger", 1).json({events!r})


@dp.table
def firsts():
    return rows().dropDuplicates(["key"]).select("key")


@dp.table
def totals():
    late = rows().withWatermark("at", "0 seconds")
    return late.groupBy(F.window("at", "10 seconds"), "key").agg(F.sum("value").alias("total")).select("window.start", "key", "total")
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """The spec of one with two stateful tables."""
    folder = tmp_path / "pipeline"
    (folder / "transformations").mkdir(parents=True)
    (folder / "transformations" / "tables.py").write_text(TABLES.format(events=str(tmp_path / "events")))
    spec = folder / "spark-pipeline.yml"
    spec.write_text(
        f"name: orders\nstorage: file://{tmp_path}/pipeline-storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
        'configuration:\n  spark.sql.shuffle.partitions: "2"\n'
    )
    (tmp_path / "events").mkdir()
    return spec


class Events:
    """Files of rows, and what the tables are to hold of them: the last file's window stays open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self.keys: set[str] = set()
        self._totals: dict[tuple[int, str], int] = defaultdict(int)

    def more(self, files: int) -> None:
        for number in range(self._files, self._files + files):
            lines = []
            for n in range(KEYS):
                key, value, second = f"k{(n * (number + 1)) % (KEYS + number)}", number * KEYS + n, 10 * number + n % 10
                lines.append(json.dumps({"key": key, "value": value, "at": f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"}))
                self.keys.add(key)
                self._totals[number, key] += value
            made = self._folder / f".{number}"
            made.write_text("\n".join(lines))
            os.utime(made, (1_700_000_000 + number, 1_700_000_000 + number))
            made.rename(self._folder / f"{number}.json")
        self._files += files

    @property
    def closed(self) -> list[tuple[int, str, int]]:
        return sorted((10 * window, key, total) for (window, key), total in self._totals.items() if window < self._files - 1)


@pytest.mark.campaign
def test_a_pipeline_with_two_stateful_tables_is_killed_and_loses_its_folders(
    tmp_path: Path, pipeline: Path, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of the server are killed at any moment, and its checkpointLocations are deleted: state, offsets and batch numbers come
    from the storage alone. Each row is in the tables once, for Spark's file sink knows the numbers of its batches."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    events = Events(tmp_path / "events")
    storage = f"s3://{s3.bucket}/ckpt"
    conf = {"spark.ckpt.storage": storage, "spark.sql.session.timeZone": "UTC", **s3.conf}
    for turn in range(KILLS + 1):
        events.more(2)
        log = tmp_path / f"server-{turn}.log"
        with ConnectServer(tmp_path, log, conf, s3.env) as server:
            server.until(server.answers, "an answer")
            with pipelines_run(pipeline, server.url, tmp_path / f"run-{turn}.log") as run:
                if turn == KILLS:
                    run.expect_success()
                    break
                begun = chance.randrange(4)
                server.until(lambda: log.read_text(errors="replace").count(BEGUN) >= begun or not run.running, "epochs")  # noqa: B023
                time.sleep(chance.uniform(0, 1))
                server.kill()
        shutil.rmtree(tmp_path / "pipeline-storage" / "_checkpoints", ignore_errors=True)
    assert sorted(row["key"] for row in table(tmp_path, "firsts")) == sorted(events.keys)
    totals = [(row["start"].minute * 60 + row["start"].second, row["key"], row["total"]) for row in table(tmp_path, "totals")]
    assert sorted(totals) == events.closed
    for name, value in {**s3.env, "SPARK_CKPT_S3_ENDPOINT": s3.proxy.endpoint, "SPARK_CKPT_S3_PATH_STYLE": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("firsts", "totals"):
        place = f"{tmp_path}/pipeline-storage/_checkpoints/spark_catalog/default/{name}/{name}/0"
        assert command(["verify", f"{storage}{place}", "--deep"]) == 0


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the sink's own log says that there is."""
    log = folder / "warehouse" / name / "_spark_metadata"
    lines = [json.loads(line) for entry in sink_log(log) for line in entry.read_text().splitlines()[1:]]
    paths = [str(urlsplit(line["path"]).path) for line in lines]
    rows: list[dict[str, Any]] = ds.dataset(paths, format="parquet").to_table().to_pylist()
    return rows


def sink_log(folder: Path) -> list[Path]:
    """The newest compaction, and the entries behind it (Spark: `CompactibleFileStreamLog`)."""
    numbered = sorted((int(path.name.removesuffix(".compact")), path) for path in folder.iterdir() if not path.name.startswith("."))
    first = max((number for number, path in numbered if path.suffix == ".compact"), default=0)
    return [path for number, path in numbered if number > first or (number == first and (first == 0 or path.suffix == ".compact"))]
