"""Which Python runs coordinator and agents: each the one that Spark itself uses at its place."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.environments import linked_environment
from tests.drivers.spark.harness import JOBS, PLUGIN, Application, Scratch, rows, submit

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

SYSTEM = "/usr/local/bin:/usr/bin:/bin"
CHOSEN = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked_environment(tmp_path_factory.mktemp("elsewhere") / "environment")


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("\n".join(json.dumps({"key": n % 3}) for n in range(30)))
    return tmp_path


def arguments(folder: Path) -> list[str]:
    return [str(folder / name) for name in ("in", "ckpt", "out")]


def check(folder: Path) -> None:
    assert sorted((row["key"], row["count"]) for row in rows(folder / "out")) == [(0, 10), (1, 10), (2, 10)]
    assert len(list((folder / "storage").rglob("_metadata"))) >= 1


def plain(**more: str) -> Mapping[str, str]:
    """As a login has it: no interpreter is chosen, and that of these tests is not on the PATH."""
    return {**{k: v for k, v in os.environ.items() if k not in CHOSEN}, "PATH": SYSTEM, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def test_a_job_that_is_run_by_a_python_that_is_not_on_the_path(environment: Path, counted: Path) -> None:
    scratch = Scratch(counted / "scratch")
    conf = {**scratch.conf, "spark.plugins": PLUGIN, "spark.ckpt.storage": f"file://{counted}/storage", "spark.ui.enabled": "false"}
    options = [f"--conf {name}='{value}'" for name, value in {**conf, "spark.sql.shuffle.partitions": "2"}.items()]
    submitted = " ".join(["--master local[2]", "--jars", str(jar_path()), *options, "pyspark-shell"])
    command = [str(environment / "bin" / "python"), str(JOBS / "counting.py"), *arguments(counted)]
    with Application(command, counted / "log", plain(**scratch.env, PYSPARK_SUBMIT_ARGS=submitted, PYSPARK_DRIVER_PYTHON="")) as job:
        job.expect_success(200)
    check(counted)


def test_executors_have_an_environment_that_was_sent_to_them(environment: Path, counted: Path) -> None:
    with tarfile.open(counted / "env.tgz", "w:gz") as archive:
        archive.add(environment, ".")
    with submit(
        "counting.py",
        arguments(counted),
        log=counted / "log",
        storage=f"file://{counted}/storage",
        master="local-cluster[1,1,1024]",
        conf={"spark.archives": f"{counted}/env.tgz#environment", "spark.sql.shuffle.partitions": "2"},
        env={"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable},
    ) as job:
        job.until(lambda: any("./environment/bin/python -m spark_ckpt.agent" in command for _, command in job.descendants()), "an agent")
        job.expect_success(200)
    check(counted)
