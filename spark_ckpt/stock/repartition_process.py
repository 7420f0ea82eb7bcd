"""Spark's offline repartition (`StreamingCheckpointManager.repartition`, Spark 4.2 and newer), in a process that ends with this one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from spark_ckpt.errors import CheckpointError, ConfigError, ConflictError
from spark_ckpt.process.jar import pyspark_home, spark_version
from spark_ckpt.stock.layout import location_of

_FIRST = (4, 2)
"""Spark that can do it."""
ROOM = "a rescale takes three times the state's size there: set TMPDIR to a folder that has it, and run the same command again"
_END_S = 20
_SHOWN = 400
_GROUP_S, _LOOK_S = 5, 0.05
_LEFT_OUT = frozenset(
    (
        *("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_DRIVER_PYTHON_OPTS", "SPARK_TESTING"),
        *("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    )
)
"""What would make another session of it, or another file system of a local path."""


class Repartition:
    """Spark repartitions the state in the `checkpointLocation` at `location`, a local folder. `scratch`: a new folder for what it needs.

    It has begun when the block is entered, and ends with it. Raises `ConfigError` where there is no Spark that can, or no Java.
    """

    def __init__(self, location: Path, partitions: int, scratch: Path) -> None:
        version = spark_version(pyspark_home())
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < _FIRST:
            raise ConfigError(f"Spark {version} cannot repartition state; install PySpark 4.2 or newer for this command")
        for name in ("conf", "local", "tmp"):
            (scratch / name).mkdir(parents=True)
        self._log, self._answer, self._scratch = scratch / "log", scratch / "answer", scratch
        url = location_of(str(location))
        self._command = [sys.executable, "-m", "spark_ckpt.stock.repartition_session", url, str(partitions), str(scratch)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Repartition:
        # A pipe that is read only at the end would hold up a long answer for ever.
        with open(self._log, "xb") as log, open(self._answer, "xb") as answer:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=answer,
                stderr=log,
                cwd=self._scratch,
                env=_environment(self._scratch),
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends it and its JVM, which writes below `scratch` as long as it lives."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        deadline = time.monotonic() + _GROUP_S
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(process.pid, signal.SIGKILL)
                time.sleep(_LOOK_S)

    def wait(self, seconds: float) -> bool:
        """Whether it is done. Raises `ConflictError` where Spark refuses, `ConfigError` where something is missing."""
        assert self._process is not None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        try:
            answer = json.loads(self._answer.read_bytes())
        except ValueError:
            raise self._refused({"class": f"exit status {status}", "message": self._said()}) from None
        if answer.get("ok") is not True:
            raise self._refused(answer)
        return True

    def _refused(self, answer: Mapping[str, Any]) -> CheckpointError:
        said, kind = str(answer.get("message")), str(answer.get("class"))
        if "No space left on device" in said + self._said():
            return ConfigError(
                f"the folder for temporary files, {self._scratch.parent}, is full (No space left on device); {ROOM}"
            )
        if "JAVA_GATEWAY_EXITED" in said:
            return ConfigError(f"Spark's JVM does not start ({self._said()}); `spark-ckpt doctor` looks for Java, or set JAVA_HOME")
        return ConflictError(f"Spark cannot repartition this state: {_first(said)} ({kind}); take an export and begin anew from there")

    def _said(self) -> str:
        """The last line of what Spark has said."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")[:_SHOWN]


def _first(message: str) -> str:
    return message.strip().splitlines()[0][:_SHOWN] if message.strip() else "it does not say why"


def _environment(scratch: Path) -> dict[str, str]:
    """Of PySpark's own Spark, without the configuration of this machine's: that would load the plugin here."""
    package = str(Path(__file__).resolve().parents[2])
    given = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return {
        **given,
        "PYTHONPATH": os.pathsep.join([package, *filter(None, [given.get("PYTHONPATH")])]),
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_CONF_DIR": str(scratch / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "TMPDIR": str(scratch / "tmp"),
    }
