"""A JVM with Spark's classes and the JAR, but no application: for what must hold without one."""

from __future__ import annotations

import gc
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.harness import Scratch, class_path


@contextmanager
def jvm(*, memory: str = "512m") -> Iterator[Any]:
    """py4j's view of its packages."""
    java = os.environ["JAVA_HOME"] + "/bin/java" if "JAVA_HOME" in os.environ else "java"
    # With --die-on-broken-pipe it ends with the pipe to its stdin, whatever becomes of this process.
    with tempfile.TemporaryDirectory() as folder:
        command = [java, *Scratch(Path(folder)).java, f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", class_path(jar_path()), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
            try:
                yield gateway.jvm
            finally:
                gc.collect()  # py4j tells the JVM what Python lets go of: now, not over a closed connection
                gateway.close()
        finally:
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(20)
