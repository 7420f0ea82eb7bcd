"""Spark's standalone cluster: a master and workers, each a process of its own (Spark: `deploy.master.Master`, `deploy.worker.Worker`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_ckpt.process.jar import pyspark_home
from testbed.servers import free_port
from tests.drivers.spark.daemons import Cluster, group_of, java_processes
from tests.drivers.spark.harness import SMALL, Scratch


class Standalone(Cluster):
    """`env`: of the workers, and so of the executors."""

    def __init__(self, folder: Path, workers: int, env: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._first, self._env = workers, env
        self._port = free_port()
        self._scratch = Scratch(folder)
        self._workers: list[int] = []

    def _begin(self) -> None:
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start("master", "org.apache.spark.deploy.master.Master", where, "I have been elected leader")
        for _ in range(self._first):
            self.add_worker()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def add_worker(self) -> int:
        """One with a single core; its number."""
        number = len(list(self._daemons.folder.glob("worker-*.log")))
        work = self._daemons.folder / f"work-{number}"
        where = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url]
        self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", where, "Successfully registered with master")
        self._workers.append(number)
        return number

    def kill_worker(self, number: int) -> None:
        """With what it has started."""
        self._workers.remove(number)
        self._daemons.kill(f"worker-{number}")

    def executors(self) -> Iterator[tuple[int, int]]:
        """Worker's number and process id of each executor's JVM."""
        groups = {self._daemons.group(f"worker-{number}"): number for number in self._workers}
        for process in java_processes("org.apache.spark.executor.CoarseGrainedExecutorBackend"):
            if (group := group_of(process)) in groups:
                yield groups[group], process

    def _start(self, name: str, program: str, arguments: list[str], said: str) -> None:
        environment = {
            **self._env,
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*self._scratch.java, *SMALL]),
            "TMPDIR": self._scratch.env["TMPDIR"],
        }
        self._daemons.start(name, [str(pyspark_home() / "bin" / "spark-class"), program, *arguments], environment, said)
