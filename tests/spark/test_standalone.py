"""Spark's standalone cluster with real workers: machines die, come, and are told to go, and the package is sent along."""

from __future__ import annotations

import os
import signal
import sys
import tarfile
from pathlib import Path

import pytest

from tests.drivers.spark.environments import linked_environment
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.standalone import Standalone
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.campaign
@pytest.mark.parametrize("interval", ["0", "2s"])
def test_machines_of_a_standalone_cluster_die_and_come(interval: str, start: Start, s3: Server, tmp_path: Path) -> None:
    """With dynamic allocation and decommissioning on. Executors take the package out of the archive that was sent to them."""
    (tmp_path / "cluster").mkdir()
    with tarfile.open(tmp_path / "env.tgz", "w:gz") as archive:
        archive.add(linked_environment(tmp_path / "environment"), ".")
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    conf = {
        "spark.archives": f"{tmp_path}/env.tgz#environment",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.decommission.enabled": "true",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "3",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
    }
    steady.env |= {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    with Standalone(tmp_path / "cluster", 2, s3.env) as cluster:
        steady.start(cluster.url, interval=interval, **conf)
        steady.until_epochs("fat", 3)
        worker, executor = next(cluster.executors())
        os.kill(executor, signal.SIGKILL)
        steady.until_epochs("fat", 3)
        cluster.add_worker()
        cluster.kill_worker(worker)
        steady.until_epochs("fat", 3)
        _, executor = next(cluster.executors())
        os.kill(executor, signal.SIGPWR)
        steady.until(lambda: not Path(f"/proc/{executor}").exists(), "the end of a decommissioned executor")
        steady.until_epochs("fat", 3)
        steady.app.kill()
        before = steady.committed("fat")
        steady.start(cluster.url, interval=interval, **conf)
        steady.until(lambda: steady.committed("fat") > before + 2, "epochs after the driver's death")
        steady.stop()
        steady.tell("end")
        steady.app.expect_success()
    assert len(steady.numbers("fat")) >= 200 * 14


@pytest.mark.campaign
def test_workers_without_credentials_are_told_of_in_the_drivers_log(start: Start, s3: Server, tmp_path: Path) -> None:
    """The driver has some, and its query seems to be slow: who looks there has to see why."""
    (tmp_path / "cluster").mkdir()
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    with Standalone(tmp_path / "cluster", 1, {"AWS_EC2_METADATA_DISABLED": "true"}) as cluster:
        app = steady.start(cluster.url, **{"spark.executor.memory": "512m", "spark.ckpt.python": sys.executable})
        said = "DriverSide: executor 0: "
        steady.until(lambda: any(said in line and "Credentials" in line for line in app.log.read_text().splitlines()), "a word of it")
