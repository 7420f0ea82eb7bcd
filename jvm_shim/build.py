"""Builds spark-ckpt-<Spark version>.jar with the Scala compiler that lies among PySpark's own jars: offline, against exactly that Spark.

    python jvm_shim/build.py [--force]     build spark_ckpt/jars/spark-ckpt-<version>.jar unless its sources are unchanged
    python jvm_shim/build.py --check-java  say nothing if a Java that Spark can use is there, else one sentence, and exit status 1

Compiled are the folders `hooks`, `driver`, `executor`, `process` and `ui` and, for Spark 4.3.x, `spark-4.3`; `resources` is packed as it
is. Only the standard library is used: setup.py runs this before anything is installed. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("hooks", "driver", "executor", "process", "ui")
OUTPUT = HERE.parent / "spark_ckpt" / "jars"
LICENSE = HERE.parent / "LICENSE"
OLDEST_JAVA = 17
STAMP = "META-INF/spark-ckpt.properties"
SCALAC_OPTIONS = ("-encoding", "UTF-8", "-deprecation", "-feature", "-unchecked")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time a zip entry can have: the JAR's bytes depend on its sources only."""


class BuildError(Exception):
    """What is missing or wrong, in one sentence, with the way out."""


@dataclass(frozen=True)
class Spark:
    """The installed PySpark to build against."""

    version: str
    jars: Path

    @property
    def line(self) -> str:
        """Major and minor version, which the folders of differing sources are named after."""
        return ".".join(self.version.split(".")[:2])


def installed_spark() -> Spark:
    """The PySpark of this interpreter. Raises `BuildError` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError(f"PySpark is not installed for {sys.executable}; install it first: pip install 'pyspark>=4.3,<4.4'")
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("scala-compiler-*.jar")):
        raise BuildError(f"{jars} holds no Scala compiler; install the full PySpark: pip install 'pyspark>=4.3,<4.4'")
    return Spark(importlib.metadata.version("pyspark"), jars)


def find_java() -> str:
    """Path of a Java that Spark 4 runs on: `JAVA_HOME`'s, else the one on the PATH. Raises `BuildError`."""
    advice = f"install Java {OLDEST_JAVA} or newer (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"
    home = os.environ.get("JAVA_HOME")
    if home:
        java: str | None = shutil.which("java", path=str(Path(home) / "bin"))
        if java is None:
            raise BuildError(f"JAVA_HOME is {home}, where there is no bin/java: {advice}.")
    else:
        java = shutil.which("java")
        if java is None:
            raise BuildError(f"Java was not found: {advice}.")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise BuildError(f"{java} does not run ({e}): {advice}.") from e
    said = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or said is None:
        raise BuildError(f"{java} does not tell its version: {advice}.")
    if int(said.group(1)) < OLDEST_JAVA:
        raise BuildError(f"{java} is Java {said.group(1)}, which is too old for Spark 4: {advice}.")
    return java


def sources(spark: Spark, root: Path) -> list[Path]:
    """All Scala files for this Spark, in a fixed order. Raises `BuildError` if there are none."""
    found = sorted(file for folder in (*FOLDERS, f"spark-{spark.line}") for file in root.joinpath(folder).rglob("*.scala"))
    if not found:
        raise BuildError(f"there are no Scala files below {root}; the source tree is incomplete")
    return found


def resources(root: Path) -> list[tuple[str, Path]]:
    """Name in the JAR and file of everything below `resources/`, and of the licence."""
    base = root / "resources"
    found = [(p.relative_to(base).as_posix(), p) for p in sorted(base.rglob("*")) if p.is_file()]
    return [("META-INF/LICENSE", LICENSE), *found]


def package_version() -> str:
    """Of the Python package beside this; JAR and package tell each other theirs when they meet."""
    found = re.search(r'^__version__ = "([^"]+)"$', (OUTPUT.parent / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise BuildError(f"{OUTPUT.parent / '__init__.py'} does not say its version; take a complete source tree")
    return found.group(1)


def digest(spark: Spark, root: Path) -> str:
    """SHA-256 over whatever the JAR depends on: Spark's version and the package's, options, names and contents."""
    total = hashlib.sha256(repr((spark.version, package_version(), SCALAC_OPTIONS)).encode())
    for path in [*sources(spark, root), *(p for _, p in resources(root)), Path(__file__)]:
        content = path.read_bytes()
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) and path != Path(__file__) else path.name
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def recorded_digest(jar: Path) -> str | None:
    """The digest that a JAR was built from; None if there is no readable JAR."""
    try:
        with zipfile.ZipFile(jar) as archive:
            text = archive.read(STAMP).decode()
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError):
        return None
    found = re.search(r"^source\.sha256=([0-9a-f]{64})$", text, re.MULTILINE)
    return found.group(1) if found else None


def _write(jar: Path, spark: Spark, built_from: str, entries: list[tuple[str, Path]]) -> None:
    manifest = f"Manifest-Version: 1.0\r\nImplementation-Title: spark-ckpt\r\nSpark-Version: {spark.version}\r\n\r\n"
    stamp = f"version={package_version()}\nspark.version={spark.version}\nsource.sha256={built_from}\n"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [("META-INF/MANIFEST.MF", manifest.encode()), (STAMP, stamp.encode())]:
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
        for name, path in entries:
            archive.writestr(zipfile.ZipInfo(name, EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)


def build(output: Path = OUTPUT, root: Path = HERE, force: bool = False) -> Path:
    """Build the JAR into the folder `output` unless an up-to-date one is there; returns its path.

    Several builds at once are harmless: each compiles apart and the name appears complete. Raises `BuildError` with the compiler's
    messages if the sources do not compile.
    """
    spark = installed_spark()
    jar = output / f"spark-ckpt-{spark.version}.jar"
    wanted = digest(spark, root)
    if not force and recorded_digest(jar) == wanted:
        return jar
    java = find_java()
    files = sources(spark, root)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as name:
        work = Path(name)
        classes = work / "classes"
        classes.mkdir()
        arguments = work / "arguments"
        arguments.write_text("\n".join(f'"{f}"' for f in files), encoding="utf-8")
        command = [java, "-Xss8m", "-Xmx1g", "-cp", f"{spark.jars}{os.sep}*", "scala.tools.nsc.Main", "-usejavacp"]
        command += [*SCALAC_OPTIONS, "-d", str(classes), f"@{arguments}"]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if run.returncode != 0:
            raise BuildError(f"the Scala sources in {root} do not compile against Spark {spark.version}:\n{run.stdout.rstrip()}")
        if run.stdout.strip():
            print(run.stdout.rstrip(), file=sys.stderr)
        compiled = [(p.relative_to(classes).as_posix(), p) for p in sorted(classes.rglob("*")) if p.is_file()]
        _write(work / "new.jar", spark, wanted, [*compiled, *resources(root)])
        os.replace(work / "new.jar", jar)
    return jar


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the JAR of spark-ckpt with PySpark's own Scala compiler.")
    parser.add_argument("--check-java", action="store_true", help="only check that a Java is there that Spark can use")
    parser.add_argument("--force", action="store_true", help="build even if the JAR is up to date")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the JAR (default: spark_ckpt/jars)")
    parser.add_argument("--source", type=Path, default=HERE, help="folder with the sources and resources/ (default: jvm_shim)")
    options = parser.parse_args()
    try:
        if options.check_java:
            find_java()
        else:
            print(build(options.output.resolve(), options.source.resolve(), options.force))
    except BuildError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
