"""YARN, and a driver that runs in the cluster: containers and machines die, and YARN starts the driver again."""

from __future__ import annotations

import os
import signal
import tarfile
from pathlib import Path

import pytest

from spark_ckpt.process.jar import pyspark_home
from tests.drivers.spark.environments import linked_environment
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady
from tests.drivers.spark.yarn import Yarn

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.campaign
@pytest.mark.parametrize("interval", ["0", "2s"])
def test_containers_of_yarn_die_the_drivers_too(interval: str, start: Start, s3: Server, tmp_path: Path) -> None:
    """Driver and executors take the package out of the archive that was sent along, and have their credentials from the configuration."""
    with tarfile.open(tmp_path / "env.tgz", "w:gz") as archive:
        archive.add(linked_environment(tmp_path / "environment"), ".")
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    there = {**s3.env, "PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_IP": "127.0.0.1"}
    said = {"TMPDIR": f"{tmp_path}/application-0.scratch/tmp"}
    conf = {
        "spark.submit.deployMode": "cluster",
        "spark.submit.pyFiles": f"{Path(__file__).parent}/jobs/collected.py,{Path(__file__).parent}/jobs/saying.py",
        "spark.archives": f"{tmp_path}/env.tgz#environment",
        "spark.yarn.jars": f"local:{pyspark_home()}/jars/*",
        "spark.yarn.maxAppAttempts": "2",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.instances": "2",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in {**there, **said}.items()},
        **{f"spark.executorEnv.{name}": value for name, value in there.items()},
    }
    if interval != "0":  # a job that has it in its code may be one of those that are submitted to a cluster
        conf["spark.yarn.appMasterEnv.STEADY_CONFIGURES"] = "1"
    (tmp_path / "cluster").mkdir()
    with Yarn(tmp_path / "cluster", 2) as cluster:
        steady.env |= cluster.env
        steady.start("yarn", interval=interval, **conf)
        steady.until_epochs("fat", 3)
        _, executor = next(cluster.executors())
        os.kill(executor, signal.SIGKILL)
        steady.until_epochs("fat", 3)
        driver = cluster.driver()
        assert driver is not None
        os.kill(driver, signal.SIGKILL)
        steady.until(lambda: cluster.driver() not in (None, driver), "the second attempt of the driver")
        steady.until_epochs("fat", 3)
        cluster.kill_node(1 - cluster.driver_node())
        steady.until_epochs("fat", 5)
        steady.stop()
        steady.tell("end")
        steady.app.expect_success()
    assert len(steady.numbers("fat")) >= 200 * 14
