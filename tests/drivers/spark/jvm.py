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

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.harness import Scratch, class_path


@contextmanager
def jvm(*more: Path, memory: str = "512m", callbacks: bool = False) -> Iterator[Any]:
    """py4j's view of its packages. `more`: jars. `callbacks`: it can call objects of this process."""
    java = os.environ["JAVA_HOME"] + "/bin/java" if "JAVA_HOME" in os.environ else "java"
    # With --die-on-broken-pipe it ends with the pipe to its stdin, whatever becomes of this process.
    with tempfile.TemporaryDirectory() as folder:
        command = [java, *Scratch(Path(folder)).java, f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", class_path(jar_path(), *more), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            gateway = JavaGateway(
                gateway_parameters=GatewayParameters(port=port, auto_convert=True),
                callback_server_parameters=CallbackServerParameters(port=0) if callbacks else None,
            )
            try:
                if callbacks:
                    server_here = gateway.get_callback_server().get_listening_port()
                    client = gateway.java_gateway_server.getCallbackClient()
                    gateway.java_gateway_server.resetCallbackClient(client.getAddress(), server_here)
                yield gateway.jvm
            finally:
                gc.collect()  # py4j tells the JVM what Python lets go of: now, not over a closed connection
                gateway.shutdown_callback_server()
                gateway.close()
                # What pytest still holds goes later, in the middle of anything: nobody is told of it any more.
                gateway._gateway_client.is_connected = False
        finally:
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(20)
