"""An archive of the classes that Spark loads (JDK's class data sharing, JEP 350): with it an application starts in half the time.

Made once for a virtual environment, from what a few queries load. A JVM that cannot use it, another version or with another class path,
starts as it would without.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.drivers.spark.harness import CLASS_ARCHIVE, submit
from tests.drivers.spark.inputs import write_events

QUERIES = "windows,unique,outer"


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
        make()
    except Exception as reason:
        sys.exit(f"the tests go on without an archive of Spark's classes, and take longer: {reason}")
