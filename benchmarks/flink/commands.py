"""How a job runs on Flink: its jars, what is set for all jobs, and the command of a JVM that has a whole Flink in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from testbed.maven import Artifact, fetched
from testbed.servers import ACCESS, SECRET, UnavailableError

NAME = "Flink, RocksDB, s3://"
FLINK, FLINK_KAFKA = "2.3.0", "5.0.0-2.2"
JARS = Path(sys.prefix) / "flink-jars" / f"{FLINK}-kafka-{FLINK_KAFKA}"
DATES = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
"""With which each line of its log begins."""
CHECKPOINTS = "flink"
"""The folder in the bucket."""


def settings(s3: FarS3, bucket: str, folder: Path, interval_ms: int) -> dict[str, str]:
    """Incremental checkpoints of RocksDB in this bucket. `folder`: what it has on the disk."""
    return {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{interval_ms} ms",
        "execution.checkpointing.dir": f"s3://{bucket}/{CHECKPOINTS}",
        "pipeline.object-reuse": "true",
        # Shared by the slots: with Flink's 128 MB for local runs RocksDB in each of 20 has less than it needs, and says so.
        "taskmanager.memory.managed.size": "1gb",
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


def command(job: str, given: Sequence[str], made: Mapping[str, str], folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    """Command and environment of the job of that class, whose source lies beside this module. `given` come before what is set.

    Raises BenchmarkError.
    """
    jars, plugins = flink_jars()
    (folder / "tmp").mkdir()
    java, javac = _java()
    classes = _compiled(job, javac, jars, folder / "classes")
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.time", "java.net")]
    dated = [f"-Dorg.slf4j.simpleLogger.{name}" for name in ("showDateTime=true", f"dateTimeFormat={DATES}")]
    machine = [java, "-Xms2g", "-Xmx2g", *dated, *opens, "-cp", f"{classes}{os.pathsep}{jars}/*"]
    return [*machine, job, *given, *(f"{key}={value}" for key, value in made.items())], {"FLINK_PLUGINS_DIR": str(plugins)}


def missing() -> str:
    """Why no job can be run here; empty if one can. What is missing is fetched."""
    try:
        _java()
        flink_jars()
    except BenchmarkError as e:
        return str(e)
    return ""


def _java() -> tuple[str, str]:
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise BenchmarkError("Flink needs a Java with its compiler: install a JDK")
    return java, javac


def _compiled(job: str, javac: str, jars: Path, classes: Path) -> Path:
    """Not by `java <file>`: Flink finds the types of a function by its class's name, which that one's loader does not tell it."""
    source = Path(__file__).with_name(f"{job}.java")
    command = [javac, "-cp", f"{jars}/*", "-sourcepath", str(source.parent), "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"{source.name} does not compile: {done.stderr[-500:]}")
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
