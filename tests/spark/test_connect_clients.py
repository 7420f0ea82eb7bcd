"""Clients of a Spark Connect server that has the plugin (docs/connect.md)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.connect import ConnectServer
from tests.drivers.spark.harness import Application

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

CLIENT = """
import sys, time
from pyspark.sql import SparkSession

server, events, location = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
rows = spark.readStream.schema("id long, key string, value long").json(events)
totals = rows.groupBy("key").count().writeStream.format("memory").queryName("totals").outputMode("complete")
totals.option("checkpointLocation", location).start().processAllAvailable()
print("all is counted", flush=True)
time.sleep(600)
"""


def test_a_client_that_is_gone_deletes_nothing(events: Path, tmp_path: Path) -> None:
    """Its session expires, and the server stops its queries as a person would; with onStop=DELETE that was the end of the state."""
    conf = {
        "spark.ckpt.storage": f"file://{tmp_path}/storage",
        "spark.ckpt.onStop": "DELETE",
        "spark.sql.shuffle.partitions": "2",
        "spark.connect.session.manager.defaultSessionTimeout": "5s",
        "spark.connect.session.manager.maintenanceInterval": "1s",
    }
    location, log, said = tmp_path / "location", tmp_path / "server.log", tmp_path / "client.log"
    with ConnectServer(tmp_path, log, conf, {}) as server:
        server.until(server.answers, "an answer")
        command = [sys.executable, "-c", CLIENT, server.url, str(events), str(location)]
        with Application(command, said, dict(os.environ)) as client:
            client.until(lambda: "all is counted" in said.read_text(), "rows")
        server.until(lambda: "stay, although spark.ckpt.onStop=DELETE" in log.read_text(), "the end of the query")
        with open_storage(f"file://{tmp_path}/storage{location}") as stream:
            overview = StreamReader(stream).overview()
    assert overview.latest is not None
    assert overview.standing is not None
    assert not overview.standing.ended
