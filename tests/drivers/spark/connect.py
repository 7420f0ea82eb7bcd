"""A Spark Connect server with the plugin, and what its clients run."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from spark_ckpt.process.jar import jar_path, pyspark_home
from testbed.servers import free_port
from tests.drivers.spark.harness import PLUGIN, SMALL, Application, Scratch

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer(Application):
    """As `sbin/start-connect-server.sh` starts it, with a metastore in `folder` that outlives it. Ends with its `with` block."""

    def __init__(self, folder: Path, log: Path, conf: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.port = free_port()
        scratch = Scratch(log.with_suffix(".scratch"))
        metastore = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
        settings = {
            **scratch.conf,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.extraJavaOptions": " ".join(["-Duser.timezone=UTC", f"-Dderby.system.home={folder}", *SMALL]),
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
            "spark.plugins": PLUGIN,
            "spark.ckpt.python": sys.executable,
            **conf,
        }
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--class", _CLASS, "--master", "local[2]", "--driver-memory", "1g"]
        command += ["--jars", str(jar_path()), *given, "spark-internal"]
        super().__init__(command, log, {**_environment(), **scratch.env, **env}, folder)

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def pipelines_run(spec: Path, server: str, log: Path) -> Application:
    """`spark-pipelines run` on a server."""
    command = [str(pyspark_home() / "bin" / "spark-pipelines"), "--remote", server, "run", "--spec", str(spec)]
    return Application(command, log, {**_environment(), "TMPDIR": str(log.parent)}, spec.parent)


def _environment() -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(pyspark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
