"""The entry point of the image for Kubernetes: what Java gets of an executor's options."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ENTRY = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "entrypoint.sh"
SPARK = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_EXECUTOR_MEMORY": "64m",
    "SPARK_DRIVER_URL": "spark://d",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def started(tmp_path: Path, **env: str) -> tuple[str, list[str]]:
    """What the real Java makes of the argument file, and its other arguments."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = shutil.which("java")
    java.write_text(f'#!/bin/sh\nfor a; do echo "$a"; done > {tmp_path}/arguments\nexec {real} "$1" -XshowSettings:properties -version\n')
    java.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "JAVA_HOME": str(tmp_path / "jdk"), **SPARK, **env}
    ran = subprocess.run([str(ENTRY), "executor"], env=given, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr, (tmp_path / "arguments").read_text().splitlines()


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("-Da.b=plain", "a.b = plain"),
        ("-Da.b=two words # no comment", "a.b = two words # no comment"),
        ('-Da.b=a "quoted" C:\\path', 'a.b = a "quoted" C:\\path'),
        ("-Da.b=one\ntwo", "a.b = one two"),
        ("-Da.b=one\r\ntwo", "a.b = one two"),
        ("-Da.b='$HOME' `id` $(id)", "a.b = '$HOME' `id` $(id)"),
    ],
)
def test_an_option_of_java_is_one_option_whatever_is_in_it(tmp_path: Path, option: str, shown: str) -> None:
    said, _ = started(tmp_path, SPARK_JAVA_OPT_0=option, SPARK_JAVA_OPT_1="-Dc.d=next")
    lines = [line.strip() for line in said.splitlines()]
    assert shown in " ".join(lines)
    assert "c.d = next" in lines


def test_hadoops_folders_are_on_the_class_path(tmp_path: Path) -> None:
    _, arguments = started(tmp_path, HADOOP_CONF_DIR="/etc/hadoop", SPARK_DIST_CLASSPATH="/opt/hadoop/*", SPARK_CONF_DIR="/etc/spark")
    found = arguments[arguments.index("-cp") + 1].split(":")
    assert found[:2] == ["/etc/spark", "/etc/hadoop"]
    assert found[2:4] == ["/opt/spark/jars/*", "/opt/hadoop/*"]
