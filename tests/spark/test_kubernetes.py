"""The entry point of the image for Kubernetes, run here as Spark runs it there. There is no Kubernetes: a standalone master without workers
stands in for it, and executors come by themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_ckpt.process.jar import pyspark_home
from testbed.servers import free_port
from tests.drivers.spark.harness import Application, Scratch, Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.standalone import Standalone
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ENTRY = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "entrypoint.sh"


def module_options() -> list[str]:
    """What Spark adds for the module system of Java, and hands to executors."""
    ask = ["java", "-cp", f"{pyspark_home()}/jars/*", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--version"]
    env = {**os.environ, "SPARK_HOME": str(pyspark_home()), "SPARK_SCALA_VERSION": "2.13"}
    words = subprocess.run(ask, capture_output=True, text=True, check=True, env=env).stdout.split("\0")
    return [word.strip() for word in words if word.strip().startswith(("--add-", "-XX:+Ignore", "-Djdk", "-Dio.netty"))]


@pytest.mark.campaign
def test_executors_that_the_entry_point_starts_keep_state_and_hand_it_over(start: Start, s3: Server, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    port = free_port()
    with Standalone(tmp_path / "cluster", 0, {}) as master:
        where = {"spark.driver.port": str(port), "spark.driver.host": "127.0.0.1", "spark.cores.max": "2"}
        app = steady.start(master.url, **where, **{"spark.ckpt.python": sys.executable})
        said = re.compile(r"Connected to Spark cluster with app ID (\S+)")
        app.until(lambda: said.search(app.log.read_text()) is not None, "an application")
        found = said.search(app.log.read_text())
        assert found is not None
        for number in (1, 2):
            scratch = Scratch(tmp_path / f"pod-{number}")
            options = [*module_options(), *scratch.java]
            env = {
                **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
                **s3.env,
                **{f"SPARK_JAVA_OPT_{n}": option for n, option in enumerate(options)},
                "TMPDIR": scratch.env["TMPDIR"],
                "SPARK_HOME": str(pyspark_home()),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_DIRS": str(tmp_path / f"pod-{number}" / "local"),
                "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
                "SPARK_EXECUTOR_ID": str(number),
                "SPARK_EXECUTOR_CORES": "1",
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_APPLICATION_ID": found.group(1),
                "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
                "SPARK_EXECUTOR_POD_NAME": f"pod-{number}",
                "SPARK_RESOURCE_PROFILE_ID": "0",
            }
            with Application([str(ENTRY), "executor"], tmp_path / f"pod-{number}.log", env, tmp_path) as pod:
                steady.until_epochs("fat", 4)
                assert pod.running
        steady.app.kill()
    assert steady.committed("fat") >= 7


@pytest.mark.campaign
def test_the_entry_point_starts_a_driver(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "pod")
    job_py = "from pyspark.sql import SparkSession\nprint('ROWS', SparkSession.builder.getOrCreate().range(7).count())\n"
    (tmp_path / "job.py").write_text(job_py)
    settings = [part for name, value in scratch.conf.items() for part in ("--conf", f"{name}={value}")]
    here = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(pyspark_home())}
    command = [str(ENTRY), "driver", "--master", "local[1]", *settings, str(tmp_path / "job.py")]
    with Application(command, tmp_path / "log", {**os.environ, **scratch.env, **here, "PYSPARK_PYTHON": sys.executable}, tmp_path) as job:
        job.expect_success(120)
    assert "ROWS 7" in (tmp_path / "log").read_text()
