"""Spark's standalone cluster: a master and workers, each a process of its own (Spark: `deploy.master.Master`, `deploy.worker.Worker`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from spark_ckpt.process.jar import pyspark_home
from testbed.servers import ending_with_starter, free_port
from tests.drivers.spark.harness import SMALL, Scratch

_START_S = 60


class Standalone:
    """Ends with its `with` block, with all executors that its workers have started. `env`: of the workers, and so of the executors."""

    def __init__(self, folder: Path, workers: int, env: Mapping[str, str]) -> None:
        self._folder, self._first, self._env = folder, workers, env
        self._port = free_port()
        self._scratch = Scratch(folder)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
            self._master = self._started("master", "org.apache.spark.deploy.master.Master", where)
            self._until("master", "I have been elected leader")
            for _ in range(self._first):
                self.add_worker()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number in list(self._workers):
            self.kill_worker(number)
        if self._master is not None:
            self._master.kill()
            self._master.wait(30)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def add_worker(self) -> int:
        """One with a single core; its number."""
        number = len(list(self._folder.glob("worker-*.log")))
        work = self._folder / f"work-{number}"
        where = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url]
        self._workers[number] = self._started(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", where)
        self._until(f"worker-{number}", "Successfully registered with master")
        return number

    def kill_worker(self, number: int) -> None:
        """SIGKILL for it and for what it has started, at one moment, as when a machine dies."""
        worker = self._workers.pop(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)

    def executors(self) -> Iterator[tuple[int, int]]:
        """Worker's number and process id of each executor's JVM."""
        groups = {worker.pid: number for number, worker in self._workers.items()}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if not entry.name.isdigit() or b"CoarseGrainedExecutorBackend" not in (entry / "cmdline").read_bytes():
                    continue
                group = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[2])
                if group in groups:
                    yield groups[group], int(entry.name)

    def _started(self, name: str, program: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self._env,
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*self._scratch.java, *SMALL]),
            "TMPDIR": self._scratch.env["TMPDIR"],
        }
        command = ending_with_starter([str(pyspark_home() / "bin" / "spark-class"), program, *arguments])
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self._folder, start_new_session=True)

    def _until(self, name: str, said: str) -> None:
        log, deadline = self._folder / f"{name}.log", time.monotonic() + _START_S
        while said not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} does not start:\n{log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.05)
