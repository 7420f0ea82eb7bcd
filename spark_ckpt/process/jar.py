"""The Spark that is there, and which JAR belongs to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from urllib.parse import unquote

from spark_ckpt.errors import ConfigError

_JARS = Path(__file__).resolve().parents[1] / "jars"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OURS = re.compile(r"spark-ckpt-(\d+\.\d+)\.jar")
_WAY_OUT = "install one (pip install 'spark-ckpt[pyspark]'), or set SPARK_HOME to a Spark"


def pyspark_home() -> Path:
    """The installed PySpark's folder, which is a SPARK_HOME. Raises ConfigError where there is none."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(f"PySpark is not installed for this Python; {_WAY_OUT}")
    home = Path(spec.origin).resolve().parent  # as spark-submit finds it
    # A PySpark that was installed with PYSPARK_HADOOP_VERSION.
    other = home / "spark-distribution"
    return other if _version_in(other) is not None else home


def spark_home() -> Path:
    """The folder of the Spark that a driver started here runs: as PySpark finds it, SPARK_HOME before PySpark's own."""
    named = os.environ.get("SPARK_HOME")
    return Path(named) if named and _version_in(Path(named)) is not None else pyspark_home()


def spark_version(home: Path | None = None) -> str:
    """Version of the Spark in that folder (default: `spark_home`). Raises ConfigError where there is none."""
    folder = home or spark_home()
    version = _version_in(folder)
    if version is None:
        raise ConfigError(f"{folder} is a PySpark without a Spark (jars/spark-core_*.jar), a client; {_WAY_OUT}")
    return version


def jar_path(version: str | None = None, folder: Path = _JARS) -> Path:
    """The JAR for this version of Spark (default: the one that is there). Raises ConfigError with the way out where none fits."""
    wanted = version or spark_version()
    path = folder / f"spark-ckpt-{_line(wanted)}.jar"
    if path.is_file():
        return path
    found = [match.group(1) for p in folder.glob("spark-ckpt-*.jar") if (match := _OURS.fullmatch(p.name))]
    if found:
        lines = ", ".join(sorted(found, key=_numbers))
        raise ConfigError(
            f"no JAR of this spark-ckpt fits Spark {wanted}: it has those for Spark {lines}; use a Spark of these, or {_BUILD}"
        )
    raise ConfigError(f"the JAR for Spark {wanted} was not built; {_BUILD}")


def is_ours(entry: str) -> bool:
    """Whether an entry of a list of jars names a JAR of this project, of whatever line."""
    return _OURS.fullmatch(entry.rpartition("/")[2]) is not None


def names_ours(entry: str) -> bool:
    """Whether a session has one by such an entry: what is on this machine has to be there, what is elsewhere nobody knows."""
    path = _on_this_machine(entry)
    return is_ours(entry) and (path is None or os.path.isfile(path))


def driver_has_ours(jars: Iterable[str], class_path: Iterable[str], home: Path) -> bool:
    """Whether a driver has one that spark-submit starts: by the list of jars, by its class path, or from the Spark at `home`."""
    entries = [*class_path, f"{home}/jars/*"]
    folders = [Path(entry).parent for entry in entries if entry.rpartition("/")[2] == "*"]  # Java knows no other pattern
    listed = (path.name for folder in folders for path in folder.glob("*.jar"))
    return any(map(submit_brings_ours, jars)) or any(map(names_ours, entries)) or any(map(is_ours, listed))


def submit_brings_ours(entry: str) -> bool:
    """The same of an entry that spark-submit sees: it takes patterns, too, but not for these schemes (Spark: `DependencyUtils`)."""
    if names_ours(entry):
        return True
    path = _on_this_machine(entry)
    if path is not None:
        return any(is_ours(found) and os.path.isfile(found) for found in glob(path))
    name = entry.rpartition("/")[2]
    fits = "{" in name or any(fnmatchcase(f"spark-ckpt-4.{minor}.jar", name) for minor in range(10))
    return fits and not entry.startswith(("local:", "http:", "https:", "ftp:"))


def _on_this_machine(entry: str) -> str | None:
    """The path, None if it is elsewhere (Spark: `Utils.resolveURI`)."""
    if entry.startswith("file:"):
        return unquote(re.sub(r"^file:(//[^/]*)?", "", entry))
    return None if _SCHEME.match(entry) else entry


_BUILD = "in a source tree build the JAR for yours (python -m jvm_shim.build), and install from there with pip's --no-build-isolation"


def _version_in(home: Path) -> str | None:
    for jar in home.glob("jars/spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_[\d.]+-(.+)", jar.stem):
            return match.group(1)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _line(version: str) -> str:
    """Major and minor, whatever a vendor has added: 4.1 of `4.1.2-amzn-0`."""
    return ".".join(map(str, _numbers(version)))
