"""The jars that stock Spark needs for S3A, fetched by Maven into the virtual environment, once."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.errors import BenchmarkError
from testbed.maven import Artifact, fetched
from testbed.servers import UnavailableError

HADOOP, SDK, CLOUD = "3.5.0", "2.35.4", "4.1.1"
"""hadoop-aws as old as the Hadoop in PySpark 4.3.0; hadoop-cloud of 4.1.1 is the newest there is on Maven Central."""
FOLDER = Path(sys.prefix) / "s3a-jars" / f"hadoop-{HADOOP}-sdk-{SDK}-cloud-{CLOUD}"

# What PySpark's own jars hold already, in its own versions.
_PROVIDED = ("io.netty:*", "org.slf4j:*", "commons-codec:*", "commons-logging:*", "org.apache.httpcomponents:*")


def artifacts() -> list[Artifact]:
    """SDK modules instead of the bundle of 686 MB; of hadoop-cloud nothing but its own jar."""
    hadoop = Artifact(f"org.apache.hadoop:hadoop-aws:{HADOOP}", (*_PROVIDED, "org.apache.hadoop:*", "software.amazon.awssdk:bundle"))
    modules = ("s3", "s3-transfer-manager", "sts", "apache-client")
    sdk = [Artifact(f"software.amazon.awssdk:{module}:{SDK}", _PROVIDED) for module in modules]
    return [hadoop, *sdk, Artifact(f"org.apache.spark:spark-hadoop-cloud_2.13:{CLOUD}", ("*:*",))]


def s3a_jars(kept: Path = FOLDER) -> Path:
    """A folder of jars for the class path, fetched into `kept` once. Raises BenchmarkError."""
    try:
        return fetched(kept, artifacts())
    except UnavailableError as e:
        raise BenchmarkError(f"stock Spark on S3A needs jars that are not here: {e}") from e
