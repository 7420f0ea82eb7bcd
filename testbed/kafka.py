"""A real Kafka broker (KRaft, one node) and the jars with which PySpark reads it, fetched by Maven into the virtual environment, once."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.maven import Artifact, fetched
from testbed.servers import UnavailableError, ending_with_starter, free_port

BROKER = "4.4.0"
CONNECTOR, TOKENS, CLIENTS, POOL = "4.2.0", "4.0.0", "3.9.2", "2.13.1"
"""The connector of 4.3.0 cannot be resolved from Maven Central; this set runs with PySpark 4.3.0."""
JARS = Path(sys.prefix) / "kafka-jars"
START_S, STOP_S = 60, 30
CLUSTER_ID = "c3BhcmstY2twdC10ZXN0cw"
_MEMORY = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def broker_jars() -> Path:
    """Raises UnavailableError."""
    kafka = Artifact(f"org.apache.kafka:kafka_2.13:{BROKER}", ("org.apache.kafka:kafka-tools-api",))
    return fetched(JARS / f"broker-{BROKER}", [kafka, Artifact("org.slf4j:slf4j-simple:1.7.36")])


def connector_jars() -> list[Path]:
    """For `--jars`, beside PySpark's own. Raises UnavailableError."""
    alone = ("*:*",)
    artifacts = [
        Artifact(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}", alone),
        Artifact(f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{TOKENS}", alone),
        Artifact(f"org.apache.kafka:kafka-clients:{CLIENTS}", alone),
        Artifact(f"org.apache.commons:commons-pool2:{POOL}", alone),
    ]
    return sorted(fetched(JARS / f"connector-{CONNECTOR}-{TOKENS}-{CLIENTS}-{POOL}", artifacts).glob("*.jar"))


class KafkaBroker:
    """A broker over a folder of its own; as a context manager it runs. `users` (name -> password) may come in by SASL PLAIN.

    It can be stopped and started again: ports and data stay. Raises UnavailableError.
    """

    def __init__(self, folder: Path, users: Mapping[str, str] | None = None) -> None:
        java = shutil.which("java")
        if java is None:
            raise UnavailableError("a Kafka broker needs Java: install it")
        self._folder, self._users = folder, users or {}
        self._java = [java, *_MEMORY, "-cp", f"{broker_jars()}/*"]
        self._port, self._controller, self._secure = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`bootstrap.servers` for everybody on this machine."""
        return f"127.0.0.1:{self._port}"

    @property
    def secure_address(self) -> str:
        """`bootstrap.servers` for the users (SASL_PLAINTEXT, PLAIN)."""
        return f"127.0.0.1:{self._secure}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        (self._folder / "server.properties").write_text(self._properties())
        self._tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties")
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it answers."""
        with (self._folder / "broker.log").open("ab") as log:
            command = ending_with_starter([*self._java, "kafka.Kafka", "server.properties"])
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._listens():
            assert self._process.poll() is None, f"the broker ended with {self._process.returncode}: {self._told()}"
            assert time.monotonic() < deadline, f"the broker does not answer: {self._told()}"
            time.sleep(0.05)

    def stop(self, kill: bool = False) -> None:
        """`kill`: as by a power failure of its process."""
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._process = None

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), 1).close()
            return True
        return False

    def _told(self) -> str:
        return (self._folder / "broker.log").read_text(errors="replace")[-2000:]

    def _tool(self, *arguments: str) -> None:
        done = subprocess.run([*self._java, *arguments], cwd=self._folder, capture_output=True, text=True, timeout=START_S, check=False)
        assert done.returncode == 0, f"{arguments[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"

    def _properties(self) -> str:
        listeners = {"PLAIN": self._port, "CONTROLLER": self._controller, **({"SECURE": self._secure} if self._users else {})}
        at = {name: f"{name}://127.0.0.1:{port}" for name, port in listeners.items()}
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": ",".join(at.values()),
            "advertised.listeners": ",".join(where for name, where in at.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAIN",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Else a broker that was killed is let in again when its session has run out, after 9 s.
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
        }
        if self._users:
            known = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
            settings["listener.name.secure.sasl.enabled.mechanisms"] = "PLAIN"
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            settings["listener.name.secure.plain.sasl.jaas.config"] = f"{module} required {known};"
        return "".join(f"{name}={value}\n" for name, value in settings.items())
