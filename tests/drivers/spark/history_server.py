"""Spark's history server with the JAR on its class path."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.harness import Scratch, class_path


@contextmanager
def history_server(logs: Path, out: Path, *, memory: str = "512m", conf: dict[str, str] | None = None, jar: bool = True) -> Iterator[str]:
    """Its address. `logs` holds event logs, `out` takes what it says. Without `jar` it is Spark's own."""
    settings = {
        "spark.history.fs.logDirectory": f"file://{logs}",
        "spark.history.fs.update.interval": "1s",
        "spark.history.ui.port": "0",
        "spark.eventLog.compress": "false",
        **(conf or {}),
    }
    java = shutil.which("java") if "JAVA_HOME" not in os.environ else os.environ["JAVA_HOME"] + "/bin/java"
    command = [str(java), f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
    command += Scratch(out.with_suffix(".scratch")).java
    command += [f"-D{name}={value}" for name, value in settings.items()]
    command += ["-cp", class_path(*([jar_path()] if jar else [])), "org.apache.spark.deploy.history.HistoryServer"]
    with out.open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        yield _address(server, out)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(30)


def _address(server: subprocess.Popen[bytes], out: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        for line in out.read_text(errors="replace").splitlines():
            if "Bound HistoryServer to" in line and "started at" in line:
                return "http://127.0.0.1:" + line.rsplit(":", 1)[1].strip("/ ")
        time.sleep(0.1)
    raise AssertionError(f"the history server does not start:\n{out.read_text(errors='replace')[-3000:]}")


def until_listed(address: str, app: str) -> str:
    """The application's address, once the server has found its log."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{address}/api/v1/applications", timeout=30) as answer:
            if f'"{app}"' in answer.read().decode():
                return f"{address}/history/{app}"
        time.sleep(0.2)
    raise AssertionError(f"the history server does not list {app}")
