"""`spark_ckpt.configure` in a job that spark-submit has started: what was said there stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.harness import PLUGIN, Application, Start

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

OTHER = "org.apache.spark.sql.connect.SparkConnectPlugin"
NOT_THERE = "org.example.NotThere"


def test_it_adds_to_what_spark_submit_was_given(start: Start, tmp_path: Path) -> None:
    """And not to what it did not read: with a properties file of its own, Spark takes no spark-defaults.conf."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"spark.plugins {NOT_THERE}\n")
    (tmp_path / "own.conf").write_text(f"spark.plugins {OTHER}\nspark.connect.grpc.binding.port 0\nspark.ui.enabled false\n")
    other = shutil.copy(jar_path(), tmp_path / "other.jar")
    given = f"{jar_path()},{other}"
    app = start(
        "configured.py",
        str(tmp_path / "lake"),
        storage=None,
        plugin=False,
        conf={"spark.jars": given},
        env={"SPARK_CONF_DIR": str(tmp_path / "conf")},
        properties=tmp_path / "own.conf",
    )
    app.expect_success(120)
    said = told(app)
    assert said["spark.plugins"] == f"{OTHER},{PLUGIN}"
    assert jars(app) == [jar_path().name, "other.jar"]
    assert said["spark.ckpt.storage"] == str(tmp_path / "lake")


@pytest.mark.parametrize("where", ["spark.jars", "spark.driver.extraClassPath"])
def test_executors_get_the_jar_where_the_builder_has_jars_of_its_own(where: str, start: Start, tmp_path: Path) -> None:
    """Its `spark.jars` takes the place of spark-submit's, and executors get what that says."""
    other = shutil.copy(jar_path(), tmp_path / "other.jar")
    how = {"storage": None, "plugin": False, "conf": {where: str(jar_path())}, "master": "local-cluster[1,1,1024]"}
    app = start("configured.py", str(tmp_path / "lake"), str(other), **how)
    app.expect_success(120)
    assert jars(app) == ["other.jar", jar_path().name]


def told(app: Application) -> dict[str, str]:
    return dict(line.split("=", 1) for line in app.log.read_text().splitlines() if line.startswith("spark.") and "=" in line)


def jars(app: Application) -> list[str]:
    return [part.rpartition("/")[2] for part in told(app)["spark.jars"].split(",")]


def test_a_jvm_without_the_jar_is_told_of(start: Start, tmp_path: Path) -> None:
    app = start("configured.py", str(tmp_path / "lake"), storage=None, plugin=False)
    assert app.wait(120) != 0
    assert 'without the plugin\'s JAR, and configure() comes too late for that; add --jars "$(spark-ckpt jar)"' in app.log.read_text()
