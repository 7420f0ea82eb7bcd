"""`spark_ckpt.configure` where Python starts the JVM: what a builder has then. Under spark-submit: tests/spark/test_configure.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_ckpt.api.session import argument_name, configure
from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import jar_path
from tests.drivers.spark_home import a_spark


def configured(before: dict[str, str], **options: str | int | bool) -> dict[str, str]:
    builder = SparkSession.Builder()
    for key, value in before.items():
        builder.config(key, value)
    assert configure(builder, **options) is builder  # type: ignore[arg-type]
    return builder._options


def test_configure_adds_to_the_builder() -> None:
    before = {"spark.jars": "/a.jar", "spark.plugins": "x.Y", "spark.master": "yarn"}
    got = configured(before, storage="s3://bkt/c", timeout="5min", retained=2, spool_dir="/s", s3_path_style=True)
    assert got == {
        "spark.master": "yarn",
        "spark.jars": f"/a.jar,{jar_path()}",
        "spark.plugins": f"x.Y,{PLUGIN_CLASS}",
        "spark.ckpt.storage": "s3://bkt/c",
        "spark.ckpt.timeout": "5min",
        "spark.ckpt.retained": "2",
        "spark.ckpt.spool.dir": "/s",
        "spark.ckpt.s3.pathStyle": "true",
    }
    assert configured(got, storage="s3://bkt/c") == got


def test_configure_in_local_mode_uses_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert configured({"spark.master": "local[2]"})["spark.ckpt.python"] == sys.executable
    assert configured({}, python="/py")["spark.ckpt.python"] == "/py"
    monkeypatch.setenv("PYSPARK_PYTHON", "/other")
    assert "spark.ckpt.python" not in configured({})


def test_configure_gives_its_jar_whatever_another_environment_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"/opt/gone/jars/{jar_path().name}"
    assert configured({"spark.jars": gone})["spark.jars"] == f"{gone},{jar_path()}"
    (tmp_path / jar_path().name).symlink_to(gone)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for named in (gone, f"{tmp_path}/{jar_path().name}", f"{tmp_path}/*.jar"):
        (tmp_path / "spark-defaults.conf").write_text(f"spark.jars {named}\n")
        assert configured({})["spark.jars"] == f"{named},{jar_path()}"


def test_configure_adds_its_jar_to_a_pattern_that_no_session_takes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a builder has is not expanded: executors would look for a file of that name."""
    (tmp_path / jar_path().name).touch()
    pattern = f"{tmp_path}/*.jar"
    assert configured({"spark.jars": pattern})["spark.jars"] == f"{pattern},{jar_path()}"
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars {pattern}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "spark.jars" not in configured({}), "spark-submit expands it"


def test_configure_adds_to_what_pyspark_gives_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    (tmp_path / "own").write_text("spark.plugins p.P\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.plugins='x.Y, z.Z' --master yarn pyspark-shell")
    got = configured({})
    assert got["spark.plugins"] == f"x.Y,z.Z,{PLUGIN_CLASS}"
    assert "spark.ckpt.python" not in got, "the workers are elsewhere"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {tmp_path}/own --jars /a.jar,{jar_path()} pyspark-shell")
    got = configured({})
    assert (got["spark.plugins"], got.get("spark.jars")) == (f"p.P,{PLUGIN_CLASS}", None)
    assert configured({"spark.jars": "/my.jar"})["spark.jars"] == f"/my.jar,{jar_path()}"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--jars '' pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars /a.jar pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--conf spark.jars=/a.jar pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars /gone/spark-ckpt-4.3.jar pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars file:/gone/spark-ckpt-4.3.jar pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars '/gone/*.jar' pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars 'file:///gone/*.jar' pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars https://repo/lib.jar?token=abc pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars 'local:/opt/libs/*.jar' pyspark-shell", "names jars, and the session gets no others; add /"),
        ("--jars 'hdfs:///libs/mysql-*.jar' pyspark-shell", "names jars, and the session gets no others; add /"),
        (f"--jars /a.jar --driver-class-path '{jar_path().parent}/*.jar' pyspark-shell", "names jars, and the session gets no others"),
        ("--conf 'spark.plugins=x.Y pyspark-shell", "cannot be taken apart"),
    ],
)
def test_configure_refuses_where_pyspark_would_leave_its_jar_out(given: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    with pytest.raises(ConfigError, match=says):
        configured({})


@pytest.mark.parametrize(
    "given",
    [
        "--jars {here}/spark-ckpt-4.3.jar",
        "--jars file:{here}/spark-ckpt-4.3.jar",
        "--jars file:///{here}/with%20blank/spark-ckpt-4.3.jar",
        "--jars 'file://localhost{here}/*.jar'",
        "--jars 'hdfs:///jars/spark-ckpt-*.jar'",
        "--jars 'hdfs:///jars/{{x,y}}.jar'",
        "--jars s3a://b/x.jar,s3a://b/spark-ckpt-4.3.jar",
        "--jars local:/opt/spark-ckpt-4.3.jar",
        "--jars '{here}/*.jar'",
        "--jars /a.jar --driver-class-path /b.jar:{here}/spark-ckpt-4.3.jar",
        "--jars /a.jar --conf spark.driver.extraClassPath='{here}/*'",
    ],
)
def test_configure_takes_its_jar_from_wherever_pyspark_is_told_it_is(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "with blank"):
        folder.mkdir(exist_ok=True)
        (folder / "spark-ckpt-4.3.jar").touch()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{given.format(here=tmp_path)} pyspark-shell")
    assert configured({})["spark.plugins"] == PLUGIN_CLASS


def test_configure_takes_its_jar_from_among_those_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = pyspark.__version__
    home = a_spark(tmp_path / "spark[4]", version)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /a.jar pyspark-shell")
    with pytest.raises(ConfigError, match="names jars, and the session gets no others"):
        configured({})
    (home / "jars" / jar_path(version).name).touch()
    assert configured({})["spark.plugins"] == PLUGIN_CLASS


def test_configure_refuses_a_spark_that_it_has_no_jar_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(a_spark(tmp_path, "3.5.1")))
    with pytest.raises(ConfigError, match=r"3\.5\.1"):
        configured({})
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.jars /gone/spark-ckpt-4.3.jar\n")
    with pytest.raises(ConfigError, match=r"3\.5\.1"):
        configured({})
    (tmp_path / "spark-defaults.conf").write_text("spark.jars s3://there/spark-ckpt-4.3.jar\n")
    assert configured({})["spark.plugins"] == PLUGIN_CLASS


def test_configure_adds_no_second_jar_to_one_that_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars hdfs:///jars/{jar_path().name}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "spark.jars" not in configured({})


def test_configure_shows_no_value_that_was_taken_for_a_name() -> None:
    with pytest.raises(ConfigError) as raised:
        configured({}, **{"s3://KEY:SECRET@bucket": 1})
    assert "SECRET" not in str(raised.value)


def test_configure_refuses_what_is_unknown() -> None:
    with pytest.raises(ConfigError, match="did you mean s3_path_style"):
        configured({}, s3_pathstyle=True)
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.minPause=1s contradicts spark\.ckpt\.interval=0"):
        configured({}, min_pause="1s")
    assert configured({}, interval="10s", min_pause="1s")["spark.ckpt.minPause"] == "1s"
    assert argument_name("s3.kmsKeyId") == "s3_kms_key_id"
