"""Builds spark_ckpt/jars/spark-ckpt-<line>.jar with the Scala compiler that lies among PySpark's own jars, against exactly that Spark.

    python -m jvm_shim.build                the JAR for this interpreter's PySpark, unless its sources are unchanged: offline
    python -m jvm_shim.build --line 4.0     that of another line, against its pinned PySpark (`jvm_shim/sparks.py`), which is fetched once
    python -m jvm_shim.build --all          those of all lines
    python -m jvm_shim.build --check-java   say nothing if a Java that Spark can use is there, else one sentence, and exit status 1

Compiled are the folders `hooks`, `driver`, `executor`, `process` and `ui`, and of the folders named after lines those that the line is
in: `spark-4.0`, `spark-4.1-4.3`. `resources` is packed as it is. Only the standard library is used: setup.py runs this before anything
is installed. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from jvm_shim.class_files import Jars, links, listing
from jvm_shim.sparks import PINNED, BuildError, Spark, fetch, installed_spark, spark_in

HERE = Path(__file__).resolve().parent
FOLDERS = ("hooks", "driver", "executor", "process", "ui")
OUTPUT = HERE.parent / "spark_ckpt" / "jars"
LICENSE = HERE.parent / "LICENSE"
OLDEST_JAVA = 17
STAMP = "META-INF/spark-ckpt.properties"
LINKS = "META-INF/spark-ckpt-links.txt"
"""What the classes call of others: looked for at start where Spark is not the very one that they were compiled against."""
SCALAC_OPTIONS = ("-encoding", "UTF-8", "-deprecation", "-feature", "-unchecked")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time a zip entry can have: the JAR's bytes depend on its sources only."""


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


_LINES = re.compile(r"spark-(\d+)\.(\d+)(?:-(\d+)\.(\d+))?")


def _number(line: str) -> tuple[int, ...]:
    return tuple(map(int, line.split(".")))


def of_line(line: str, root: Path) -> list[str]:
    """The folders of what differs that this line of Spark is in: `spark-4.0` is for one line, `spark-4.1-4.3` for three."""
    found = []
    for folder in sorted(root.glob("spark-*")):
        named = _LINES.fullmatch(folder.name)
        if named is None:
            raise BuildError(f"{folder} is not named after lines of Spark, as spark-4.0 and spark-4.1-4.3 are")
        first = (int(named[1]), int(named[2]))
        last = (int(named[3]), int(named[4])) if named[3] else first
        if first <= _number(line) <= last:
            found.append(folder.name)
    return found


def sources(spark: Spark, root: Path) -> list[Path]:
    """All Scala files for this Spark, in a fixed order. Raises `BuildError` if there are none."""
    found = sorted(file for folder in (*FOLDERS, *of_line(spark.line, root)) for file in root.joinpath(folder).rglob("*.scala"))
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
    builders = [Path(__file__), HERE / "class_files.py"]
    for path in [*sources(spark, root), *(p for _, p in resources(root)), *builders]:
        content = path.read_bytes()
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) and path not in builders else path.name
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


def _write(jar: Path, spark: Spark, built_from: str, linked: str, entries: list[tuple[str, Path]]) -> None:
    manifest = f"Manifest-Version: 1.0\r\nImplementation-Title: spark-ckpt\r\nSpark-Version: {spark.version}\r\n\r\n"
    stamp = f"version={package_version()}\nspark.version={spark.version}\nsource.sha256={built_from}\n"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [("META-INF/MANIFEST.MF", manifest), (STAMP, stamp), (LINKS, linked)]:
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
        for name, path in entries:
            archive.writestr(zipfile.ZipInfo(name, EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)


def build(output: Path = OUTPUT, root: Path = HERE, force: bool = False, line: str | None = None) -> Path:
    """Build a line's JAR (None: that of this interpreter's PySpark) into the folder `output` unless an up-to-date one is there; its path.

    Several builds at once are harmless: each compiles apart and the name appears complete. Raises `BuildError` with the compiler's
    messages if the sources do not compile.
    """
    spark = installed_spark() if line is None else spark_in(fetch(line) / "pyspark")
    jar = output / f"spark-ckpt-{spark.line}.jar"
    wanted = digest(spark, root)
    if not force and recorded_digest(jar) == wanted:
        return jar
    if spark.line not in PINNED:
        raise BuildError(f"spark-ckpt has no sources for Spark {spark.version}; it has those for {', '.join(PINNED)}")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as name:
        work = Path(name)
        classes = _compiled(spark, root, work)
        compiled = [(p.relative_to(classes).as_posix(), p) for p in sorted(classes.rglob("*")) if p.is_file()]
        with Jars(spark.jars) as jars:
            linked = listing(links([p.read_bytes() for named, p in compiled if named.endswith(".class")], jars))
        _write(work / "new.jar", spark, wanted, linked, [*compiled, *resources(root)])
        os.replace(work / "new.jar", jar)
    return jar


def _compiled(spark: Spark, root: Path, work: Path) -> Path:
    """The folder of the classes."""
    java = find_java()
    classes = work / "classes"
    classes.mkdir()
    arguments = work / "arguments"
    arguments.write_text("\n".join(f'"{f}"' for f in sources(spark, root)), encoding="utf-8")
    command = [java, "-Xss8m", "-Xmx1g", "-cp", f"{spark.jars}{os.sep}*", "scala.tools.nsc.Main", "-usejavacp"]
    command += [*SCALAC_OPTIONS, "-d", str(classes), f"@{arguments}"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode != 0:
        raise BuildError(f"the Scala sources in {root} do not compile against Spark {spark.version}:\n{run.stdout.rstrip()}")
    if run.stdout.strip():
        print(run.stdout.rstrip(), file=sys.stderr)
    return classes


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the JAR of spark-ckpt with PySpark's own Scala compiler.")
    parser.add_argument("--check-java", action="store_true", help="only check that a Java is there that Spark can use")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--line", choices=list(PINNED), help="a line of Spark other than that of this interpreter's PySpark")
    which.add_argument("--all", action="store_true", help="all lines")
    parser.add_argument("--force", action="store_true", help="build even if the JAR is up to date")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the JAR (default: spark_ckpt/jars)")
    parser.add_argument("--source", type=Path, default=HERE, help="folder with the sources and resources/ (default: jvm_shim)")
    options = parser.parse_args()
    try:
        if options.check_java:
            find_java()
        else:
            for line in PINNED if options.all else [options.line]:
                print(build(options.output.resolve(), options.source.resolve(), options.force, line))
    except BuildError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
