"""What runs the query: Spark as `benchmarks.systems` sets it up, and Flink with what its users would set for latency."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Self

from benchmarks import processes
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV, FarS3
from benchmarks.realtime.topics import PARTITIONS, Topics
from benchmarks.systems import System, set_up
from testbed.kafka import connector_jars
from testbed.maven import Artifact, fetched
from testbed.servers import ACCESS, SECRET, UnavailableError, ending_with_starter

ROOT = Path(__file__).resolve().parents[2]
FLINK, FLINK_KAFKA = "2.3.0", "5.0.0-2.2"
JARS = Path(sys.prefix) / "flink-jars" / f"{FLINK}-kafka-{FLINK_KAFKA}"
END_S = 60
WARM_BATCH_S = 1.0
"""Short ones: a pause between two batches is what has to be warm, and of long ones a minute has few."""
DATES = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
PROGRESS = "progress.json"
"""In an application's folder, once it has ended; Flink has none."""
FLINK_NAME = "Flink, RocksDB, s3://"


class Engine(Enum):
    """The value is how tables call it."""

    STOCK_LOCAL = System.SAME_LOCAL.value
    STOCK_TUNED = System.SAME_TUNED.value
    FLOOR = System.FLOOR.value
    FILE = System.FILE.value
    S3 = System.S3.value
    FLINK = FLINK_NAME


@dataclass(frozen=True)
class Turn:
    """`batch_s`: how long a batch takes rows; Flink's checkpoint interval. `rate`: records a second."""

    engine: Engine
    partitions: int
    batch_s: float
    rate: int


class Application:
    """Runs the query until the `with` block ends, in a session of processes of its own."""

    def __init__(self, turn: Turn, warm: Topics, topics: Topics, s3: FarS3, folder: Path) -> None:
        """`warm`: what Spark reads and writes until `measure`; Flink has one job, and no use for it."""
        folder.mkdir(parents=True)
        command, env = _flink(turn, topics, s3, folder) if turn.engine is Engine.FLINK else _spark(turn, warm, topics, s3, folder)
        self.log = folder / "application.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_starter(command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **ENV, **env},
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        with suppress(OSError):
            stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            processes.tell_session(self._process.pid, signal.SIGKILL)
            self._process.wait(END_S)
        if error is None and self._process.returncode:
            self._fail("the query has failed")

    def measure(self) -> None:
        """Spark's query ends, and the one that is measured begins."""
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        with suppress(OSError):  # it has ended, and `check` says so
            stdin.write(b"\n")
            stdin.flush()

    def check(self) -> None:
        """Raises BenchmarkError where it has ended."""
        if self._process.poll() is not None:
            self._fail("the application has ended")

    def _fail(self, why: str) -> NoReturn:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        raise BenchmarkError(f"{why}\n{tail}")


def _spark(turn: Turn, warm: Topics, topics: Topics, s3: FarS3, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    more = {
        "spark.master": f"local[{PARTITIONS + turn.partitions + 1}]",
        "spark.sql.shuffle.partitions": str(turn.partitions),
        "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",
        "spark.sql.execution.sortBeforeRepartition": "false",
    }
    setup = set_up(System(turn.engine.value), s3, folder, more, connector_jars())
    spec = {
        "conf": dict(setup.conf),
        "servers": topics.servers,
        "locations": setup.locations,
        "queries": [
            {"source": both.source, "sink": both.sink, "batch_ms": round(batch_s * 1000)}
            for both, batch_s in ((warm, WARM_BATCH_S), (topics, turn.batch_s))
        ],
        "progress": str(folder / PROGRESS),
    }
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **setup.environment}
    return [sys.executable, "-m", "benchmarks.realtime.spark_job", json.dumps(spec)], env


def _flink(turn: Turn, topics: Topics, s3: FarS3, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    jars, plugins = flink_jars()
    settings = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{round(turn.batch_s * 1000)} ms",
        "execution.checkpointing.dir": f"s3://{s3.bucket()}/flink",
        "execution.buffer-timeout.interval": "1 ms",
        "pipeline.object-reuse": "true",
        # Shared by the slots: with Flink's 128 MB for local runs RocksDB in each of 20 has less than it needs, and says so.
        "taskmanager.memory.managed.size": "1gb",
        "taskmanager.memory.network.min": "256mb",
        "taskmanager.memory.network.max": "256mb",
        "s3.endpoint": s3.endpoint,
        "s3.path.style.access": "true",
        # A server over a file system refuses to remove a folder's marker while there is something under it, which S3 does not.
        "s3.directory.marker.retention": "keep",
        "s3.access-key": ACCESS,
        "s3.secret-key": SECRET,
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "io.tmp.dirs": str(folder / "tmp"),
    }
    (folder / "tmp").mkdir()
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise BenchmarkError("Flink needs a Java with its compiler: install a JDK")
    classes = _compiled(javac, jars, folder / "classes")
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.time", "java.net")]
    given = [topics.servers, topics.source, topics.sink, str(turn.partitions), *(f"{k}={v}" for k, v in settings.items())]
    dated = [f"-Dorg.slf4j.simpleLogger.{name}" for name in ("showDateTime=true", f"dateTimeFormat={DATES}")]
    command = [java, "-Xms2g", "-Xmx2g", *dated, *opens, "-cp", f"{classes}{os.pathsep}{jars}/*", "FlinkJob", *given]
    return command, {"FLINK_PLUGINS_DIR": str(plugins)}


def _compiled(javac: str, jars: Path, classes: Path) -> Path:
    """Not by `java FlinkJob.java`: Flink finds the types of a function by its class's name, which that one's loader does not tell it."""
    command = [javac, "-cp", f"{jars}/*", "-d", str(classes), str(Path(__file__).with_name("FlinkJob.java"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"FlinkJob.java does not compile: {done.stderr[-500:]}")
    return classes


def flink_jars() -> tuple[Path, Path]:
    """A class path's folder, and one of plugins, fetched once. Raises BenchmarkError."""
    names = ("flink-streaming-java", "flink-clients", "flink-statebackend-rocksdb", "flink-connector-base")
    own = [Artifact(f"org.apache.flink:{name}:{FLINK}") for name in names]
    kafka = [
        Artifact(f"org.apache.flink:flink-connector-kafka:{FLINK_KAFKA}", ("org.apache.flink:*",)),
        Artifact("org.slf4j:slf4j-simple:1.7.36"),
    ]
    try:
        jars = fetched(JARS / "lib", [*own, *kafka])
        plugin = fetched(JARS / "plugins" / "s3-fs-hadoop", [Artifact(f"org.apache.flink:flink-s3-fs-hadoop:{FLINK}", ("*:*",))])
    except UnavailableError as e:
        raise BenchmarkError(f"Flink needs jars that are not here: {e}") from e
    return jars, plugin.parent
