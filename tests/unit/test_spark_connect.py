"""Where a session of Spark Connect would run without checkpoints, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_ckpt.api import session
from spark_ckpt.cli.submit_verb import submit_arguments
from spark_ckpt.conf.submission import parse
from spark_ckpt.errors import ConfigError


def configured(conf: dict[str, str]) -> dict[str, str]:
    builder = SparkSession.Builder()
    for key, value in conf.items():
        builder = builder.config(key, value)
    made: Any = session.configure(builder)
    options: dict[str, str] = made._options
    return options


@pytest.mark.parametrize(
    ("conf", "environment", "why"),
    [
        ({"spark.api.mode": "Connect"}, {}, "PySpark starts a server whose spark.plugins it sets itself"),
        ({}, {"SPARK_API_MODE": "connect"}, "PySpark starts a server whose spark.plugins it sets itself"),
        ({"spark.remote": "sc://there"}, {}, "a session of Spark Connect takes no plugin, its server does"),
        ({}, {"SPARK_REMOTE": "sc://there"}, "a session of Spark Connect takes no plugin, its server does"),
    ],
)
def test_a_session_of_spark_connect_is_refused(
    conf: dict[str, str], environment: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigError, match=why):
        submit_arguments(parse([*given, "job.py"]), "/ours.jar", {}, environment)
    with pytest.raises(ConfigError, match=why):
        submit_arguments(parse(["job.py"]), "/ours.jar", conf, environment)
    with pytest.raises(ConfigError, match=why):
        configured(conf)


@pytest.mark.parametrize("conf", [{"spark.api.mode": "classic"}, {}])
def test_a_classic_session_is_taken(conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"SPARK_API_MODE": "connect"} if conf else {}
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert configured(conf)["spark.plugins"]
    assert submit_arguments(parse(["job.py"]), "/ours.jar", conf, environment)


def test_submit_refuses_a_remote_server() -> None:
    with pytest.raises(ConfigError, match="its server does"):
        submit_arguments(parse(["--remote", "sc://there", "job.py"]), "/ours.jar", {}, {})


@pytest.mark.parametrize("how", ["SPARK_CONNECT_MODE", "pyspark_connect"])
def test_where_connect_is_the_default_it_is_refused(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, or since the distribution pyspark-connect brings this package; `SPARK_CONNECT_MODE=0` says no to that."""
    environment = {how: "1"} if how.isupper() else {}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pyspark_connect.py").touch()
    if not environment:
        monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"spark\.api\.mode=classic"):
        configured({})
    with pytest.raises(ConfigError, match=r"spark\.api\.mode=classic"):
        submit_arguments(parse(["job.py"]), "/ours.jar", {}, environment)
    assert configured({"spark.api.mode": "classic"})
    monkeypatch.setenv("SPARK_CONNECT_MODE", "0")
    assert configured({})
