"""The jars that stock Spark needs for S3A, fetched by Maven into the virtual environment, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.errors import BenchmarkError

HADOOP, SDK, CLOUD = "3.5.0", "2.35.4", "4.1.1"
"""hadoop-aws as old as the Hadoop in PySpark 4.3.0; hadoop-cloud of 4.1.1 is the newest there is on Maven Central."""
FOLDER = Path(sys.prefix) / "s3a-jars" / f"hadoop-{HADOOP}-sdk-{SDK}-cloud-{CLOUD}"
FETCH_S = 1200

# What PySpark's own jars hold already, in its own versions.
_PROVIDED = ("io.netty", "org.slf4j", "commons-codec", "commons-logging", "org.apache.httpcomponents")


def s3a_jars(kept: Path = FOLDER) -> Path:
    """A folder of jars for the class path, fetched into `kept` once. Raises BenchmarkError."""
    if kept.is_dir():
        return kept
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchmarkError("stock Spark on S3A needs hadoop-aws from Maven Central, and there is no Maven (mvn) on the PATH: install it")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as work:
        folder = Path(work)
        (folder / "pom.xml").write_text(pom())
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = [maven, "-q", "-B", goal, "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired as e:
            raise BenchmarkError(f"Maven did not fetch the jars for S3A within {FETCH_S} s; is Maven Central within reach?") from e
        if done.returncode != 0:
            raise BenchmarkError(f"Maven could not fetch the jars for S3A: {(done.stdout + done.stderr).strip()[-500:]}")
        (folder / "jars").rename(kept)
    return kept


def pom() -> str:
    """SDK modules instead of the bundle of 686 MB; of hadoop-cloud nothing but its own jar."""
    sdk = "".join(
        _dependency("software.amazon.awssdk", module, SDK, _PROVIDED) for module in ("s3", "s3-transfer-manager", "sts", "apache-client")
    )
    hadoop = _dependency("org.apache.hadoop", "hadoop-aws", HADOOP, (*_PROVIDED, "org.apache.hadoop"), "software.amazon.awssdk:bundle")
    cloud = _dependency("org.apache.spark", "spark-hadoop-cloud_2.13", CLOUD, ("*",))
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>spark-ckpt</groupId><artifactId>s3a-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{hadoop}{sdk}{cloud}</dependencies></project>\n"
    )


def _dependency(group: str, artifact: str, version: str, without: tuple[str, ...], *single: str) -> str:
    left_out = [(g, "*") for g in without] + [tuple(name.split(":")) for name in single]
    exclusions = "".join(f"<exclusion><groupId>{g}</groupId><artifactId>{a}</artifactId></exclusion>" for g, a in left_out)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )
