"""The lines of Spark that there is a JAR for, and the PySpark that each JAR is compiled against."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "SPARK_CKPT_SPARKS"
"""Names another folder for the PySparks that are fetched."""
CACHE = Path(__file__).resolve().parents[1] / ".sparks"

PINNED = {
    "4.0": ("4.0.5", "a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6"),
    "4.1": ("4.1.4", "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"),
    "4.2": ("4.2.1", "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0"),
    "4.3": ("4.3.0", "e8c517948eff7088a7aa07449aa8eafa4a15a8d50319de2525a6fd26622476c6"),
}
"""Line: its patch release, and the SHA-256 of what the registry has under that name."""

_PY4J = ("0.10.9.9", "c7c26e4158defb37b0bb124933163641a2ff6e3a3913f7811b0ddbe07ed61533")
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


class BuildError(Exception):
    """What is missing or wrong, in one sentence, with the way out."""


@dataclass(frozen=True)
class Spark:
    """A PySpark to build against."""

    version: str
    jars: Path

    @property
    def line(self) -> str:
        """Major and minor version, which JARs and the folders of differing sources are named after."""
        return ".".join(self.version.split(".")[:2])


def spark_in(folder: Path) -> Spark:
    """The Spark in the folder of a PySpark. Raises `BuildError` if there is none that has a compiler."""
    jars = folder / "jars"
    found = [match for jar in jars.glob("spark-core_*.jar") if (match := _CORE.fullmatch(jar.name))]
    if not found or not any(jars.glob("scala-compiler-*.jar")):
        raise BuildError(f"{jars} holds no Spark with a Scala compiler; install the full PySpark: pip install pyspark")
    return Spark(found[0].group(1), jars)


def installed_spark() -> Spark:
    """The PySpark of this interpreter. Raises `BuildError` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError(f"PySpark is not installed for {sys.executable}; install it first: pip install 'pyspark>=4.0,<4.4'")
    return spark_in(Path(spec.origin).parent)


def cached(line: str) -> Path:
    """The folder, one for `sys.path`, that holds a line's pinned PySpark once it has been fetched. Raises `BuildError`."""
    if line not in PINNED:
        raise BuildError(f"there is no JAR for Spark {line}; there are those for {', '.join(PINNED)}")
    return Path(os.environ.get(CACHE_VARIABLE) or CACHE).resolve() / f"pyspark-{PINNED[line][0]}"


def fetch(line: str) -> Path:
    """As `cached`, and fetches it with pip if it is not there. What was fetched once needs no network again."""
    folder = cached(line)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    version, sha256 = PINNED[line]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as name:
        pins = Path(name) / "requirements.txt"
        pins.write_text(f"pyspark=={version} --hash=sha256:{sha256}\npy4j=={_PY4J[0]} --hash=sha256:{_PY4J[1]}\n")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        run = subprocess.run([*command, "--target", f"{name}/new", "--requirement", str(pins)], check=False)
        if run.returncode != 0:
            raise BuildError(f"PySpark {version}, which the JAR for Spark {line} is compiled against, could not be fetched with pip")
        shutil.rmtree(Path(name) / "new" / "bin", ignore_errors=True)
        try:
            os.replace(Path(name) / "new", folder)
        except OSError:
            # Somebody else has fetched it meanwhile.
            if not folder.is_dir():
                raise
    return folder
