"""YARN: a resource manager and node managers, each a process of its own, from Hadoop's own classes (`hadoop-client-minicluster`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_ckpt.process.jar import pyspark_home
from testbed.maven import Artifact, fetched
from testbed.servers import UnavailableError, free_port
from tests.drivers.spark.daemons import Cluster, java_processes
from tests.drivers.spark.harness import SMALL, Scratch

HADOOP, BOUNCY_CASTLE = "3.5.0", "1.82"
"""Of PySpark 4.3, whose jars have the rest of Hadoop."""
DRIVER, EXECUTOR = "org.apache.spark.deploy.yarn.ApplicationMaster", "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
_ALONE = ("*:*",)
_LOG = """rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def jars() -> Path:
    """Raises UnavailableError."""
    return fetched(
        Path(sys.prefix) / "yarn-jars" / f"{HADOOP}-{BOUNCY_CASTLE}",
        [
            Artifact(f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}", _ALONE),
            Artifact(f"org.bouncycastle:bcprov-jdk18on:{BOUNCY_CASTLE}", _ALONE),
            Artifact(f"org.bouncycastle:bcpkix-jdk18on:{BOUNCY_CASTLE}"),
        ],
    )


class Yarn(Cluster):
    def __init__(self, folder: Path, nodes: int) -> None:
        super().__init__(folder)
        self._folder, self._first = folder, nodes
        self._scratch = Scratch(folder)
        names = ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
        self._manager = {f"yarn.resourcemanager.{name}address": f"127.0.0.1:{free_port()}" for name in names}

    def _begin(self) -> None:
        program = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
        self._start("manager", program, self._conf("manager", {}), "Transitioned to active state")
        for number in range(self._first):
            self._add_node(number)

    def _end(self) -> None:
        super()._end()
        for process in [*self._containers(DRIVER), *self._containers(EXECUTOR)]:
            _kill(process)

    @property
    def env(self) -> Mapping[str, str]:
        """Of who submits to it."""
        return {"HADOOP_CONF_DIR": str(self._folder / "manager")}

    def driver(self) -> int | None:
        """Process id of the JVM of an application that was submitted with `--deploy-mode cluster`, if it runs."""
        return next(self._containers(DRIVER), None)

    def executors(self) -> Iterator[tuple[int, int]]:
        """Node's number and process id of each executor's JVM."""
        for process in self._containers(EXECUTOR):
            with contextlib.suppress(OSError):
                yield int(self._node_of(process).removeprefix("node-")), process

    def driver_node(self) -> int:
        process = self.driver()
        assert process is not None
        return int(self._node_of(process).removeprefix("node-"))

    def kill_node(self, number: int) -> None:
        """With all of its containers, as when a machine dies."""
        self._daemons.kill(f"node-{number}")
        for process in [*self._containers(DRIVER), *self._containers(EXECUTOR)]:
            with contextlib.suppress(OSError):
                if self._node_of(process) == f"node-{number}":
                    _kill(process)

    def _add_node(self, number: int) -> None:
        name = f"node-{number}"
        at = self._folder / name
        own = {
            "yarn.nodemanager.address": "127.0.0.1:0",
            "yarn.nodemanager.localizer.address": "127.0.0.1:0",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": f"{at}/local",
            "yarn.nodemanager.log-dirs": f"{at}/logs",
            "yarn.nodemanager.resource.memory-mb": "3072",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        }
        self._start(name, "org.apache.hadoop.yarn.server.nodemanager.NodeManager", self._conf(name, own), "Registered with ResourceManager")

    def _start(self, name: str, program: str, conf: Path, said: str) -> None:
        java = self._java()
        class_path = f"{conf}:{jars()}/*:{pyspark_home()}/jars/*"
        options = [*self._scratch.java, *SMALL, "-Xmx256m"]
        self._daemons.start(name, [str(java / "bin" / "java"), *options, "-cp", class_path, program], {"JAVA_HOME": str(java)}, said)

    def _conf(self, name: str, own: Mapping[str, str]) -> Path:
        at = self._folder / name
        at.mkdir(parents=True)
        site = {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.resourcemanager.nm.liveness-monitor.interval-ms": "1000",
            **self._manager,
            **own,
        }
        queues = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{at}/tmp"}
        for file, values in (("yarn-site", site), ("capacity-scheduler", queues), ("core-site", core)):
            properties = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
            (at / f"{file}.xml").write_text(f"<configuration>{properties}</configuration>")
        (at / "log4j2.properties").write_text(_LOG)
        return at

    def _java(self) -> Path:
        """Its home: containers are started with it."""
        if "JAVA_HOME" in os.environ:
            return Path(os.environ["JAVA_HOME"])
        found = shutil.which("java")
        if found is None:
            raise UnavailableError("there is no java on the PATH")
        return Path(found).resolve().parent.parent

    def _containers(self, program: str) -> Iterator[int]:
        for process in java_processes(program):
            with contextlib.suppress(OSError, ValueError):
                self._node_of(process)
                yield process

    def _node_of(self, process: int) -> str:
        """A container's folder is its node's. Raises ValueError for one of another cluster, OSError where it has gone."""
        return Path(f"/proc/{process}/cwd").readlink().relative_to(self._folder.resolve()).parts[0]


def _kill(process: int) -> None:
    """A container is a process group (`setsid`)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpgid(process), signal.SIGKILL)
