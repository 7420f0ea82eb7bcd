"""An archive of the classes that Spark loads (JDK's class data sharing, JEP 350): with it an application starts in half the time.

Made once for a virtual environment, from what a few queries load. A JVM that cannot use it, another version or with another class path,
starts as it would without. The classes of tests/spark/local_files are first on the class path of all of Spark's tests, and compiled here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.drivers.spark.harness import CLASS_ARCHIVE, DIRECT_FILES, submit
from tests.drivers.spark.inputs import write_events

ROOT = Path(__file__).resolve().parents[3]
QUERIES = "windows,unique,outer"


def compile_direct_files() -> None:
    """Raises CalledProcessError, whose words are on stderr, if they do not compile."""
    build, sources = ROOT / "jvm_shim" / "build.py", ROOT / "tests" / "spark" / "local_files"
    command = [sys.executable, str(build), "--source", str(sources), "--output", str(DIRECT_FILES.parent)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def make() -> None:
    """Raises AssertionError, TimeoutExpired or OSError where the queries or their JVM fail."""
    with tempfile.TemporaryDirectory(dir=CLASS_ARCHIVE.parent) as name:
        folder = Path(name)
        write_events(folder / "in", 0, 2, closing=True)
        made = folder / CLASS_ARCHIVE.name
        dumping = {"SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"}
        args = ["run", QUERIES, str(folder / "in"), str(folder / "locations"), str(folder / "out")]
        ui = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
        with submit("operators.py", args, log=folder / "log", storage=f"file://{folder}/storage", conf=ui, env=dumping) as app:
            app.expect_success()
        made.rename(CLASS_ARCHIVE)


if __name__ == "__main__":
    try:
        compile_direct_files()
        make()
    except Exception as reason:
        sys.exit(f"the tests go on without an archive of Spark's classes, and take longer: {reason}")
