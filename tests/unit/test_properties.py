"""Properties files as Java reads them, and the master that they name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_ckpt.api.session import configure
from spark_ckpt.cli.submit_verb import _runs_here
from spark_ckpt.conf.properties import parse_properties, read_properties, spark_defaults
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.submission import parse, properties
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import jar_path

ROOT = str(Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# a path \\\nspark.plugins com.example.Mine\n", {"spark.plugins": "com.example.Mine"}),
        ("spark.a x\\\\\nspark.b y\n", {"spark.a": "x\\", "spark.b": "y"}),
        ("spark.ckpt.storage=s3\\://bucket/x\n", {"spark.ckpt.storage": "s3://bucket/x"}),
        ("spark.a \\u00fc\nspark.b=ü\n", {"spark.a": "ü", "spark.b": "ü"}),
        ("spark.a=1\nspark.a=2 \n", {"spark.a": "2"}),
        ("spark.a x\\u00a0\nspark.b y\\n\n", {"spark.a": "x\u00a0", "spark.b": "y\n"}),
        ("spark.a one, \\\n    two\n", {"spark.a": "one, two"}),
    ],
)
def test_what_java_reads(text: str, found: dict[str, str]) -> None:
    """As `java.util.Properties.load` and Spark's trim give it."""
    assert parse_properties(text) == found


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("spark.a \\u00g0\n")
    with pytest.raises(ConfigError, match=r"the properties file .*/x\.conf cannot be read: "):
        read_properties(tmp_path / "x.conf")
    with pytest.raises(ConfigError, match=r"the properties file .*/y\.conf does not exist"):
        read_properties(tmp_path / "y.conf")
    assert spark_defaults(tmp_path) == {}
    (tmp_path / "spark-defaults.conf").mkdir()
    with pytest.raises(ConfigError, match=r"the properties file .*/spark-defaults\.conf cannot be read: Is a directory$"):
        read_properties(tmp_path / "spark-defaults.conf")
    assert spark_defaults(tmp_path) == {}


def test_a_folder_that_the_system_will_not_search_has_no_file(tmp_path: Path) -> None:
    """As in Java, where it is another user's. To root all folders are open; a name that is too long is not."""
    assert spark_defaults(tmp_path / ("x" * 300)) == {}


def test_a_missing_package_is_named(conf: Path) -> None:
    conf.write_text("spark.a 1")
    ask = f"from pathlib import Path; from spark_ckpt.conf.properties import spark_defaults; spark_defaults(Path({str(conf.parent)!r}))"
    bare = subprocess.run([sys.executable, "-S", "-c", ask], env={"PYTHONPATH": ROOT}, capture_output=True, text=True, check=False)
    assert "ConfigError: the Python" in bare.stderr
    assert "lacks javaproperties; install spark-ckpt with its dependencies" in bare.stderr


def test_what_is_no_utf8_is_replaced(conf: Path) -> None:
    conf.write_bytes(b"# \xfc\nspark.a \xfc\n")
    assert spark_defaults(conf.parent) == {"spark.a": "\ufffd"}
    configure(SparkSession.Builder(), storage="/x")
    conf.write_text("spark.a \\u00g0\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        configure(SparkSession.Builder(), storage="/x")


def test_configure_adds_to_what_a_file_has(conf: Path) -> None:
    conf.write_text("spark.jars /a.jar\nspark.plugins x.Y\nspark.ckpt.python /opt/python\n")
    builder = configure(SparkSession.Builder(), storage="/x")
    assert builder._options["spark.jars"] == f"/a.jar,{jar_path()}"
    assert builder._options["spark.plugins"] == f"x.Y,{PLUGIN_CLASS}"
    assert "spark.ckpt.python" not in builder._options


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MASTER", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


@pytest.mark.parametrize(("said", "here"), [("spark.master spark://m:7077", False), ("spark.master local[3]", True), ("", True)])
def test_submit_knows_the_master_that_a_file_names(conf: Path, said: str, here: bool) -> None:
    """The driver's interpreter is nothing to a cluster."""
    conf.write_text(said + "\n")
    given = parse(["job.py"])
    assert _runs_here(given, properties(given, conf.parent)) is here
    assert _runs_here(parse(["--master", "local", "job.py"]), properties(given, conf.parent))


@pytest.mark.parametrize(
    ("said", "python"),
    [
        ("spark.master spark://m:7077", None),
        ("spark.master local[3]", sys.executable),
        ("spark.pyspark.python /opt/python", None),
        ("", sys.executable),
    ],
)
def test_configure_knows_what_a_file_names(conf: Path, said: str, python: str | None) -> None:
    conf.write_text(said + "\n")
    builder = configure(SparkSession.Builder(), storage="/x")
    assert builder._options.get("spark.ckpt.python") == python
