"""A JAR of a job's own classes, made by the Scala compiler that lies among PySpark's jars."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

from jvm_shim.build import find_java
from spark_ckpt.process.jar import pyspark_home
from tests.drivers.spark.harness import JOBS


def compiled(source: str, folder: Path) -> Path:
    """Of a file in `tests/spark/jobs`."""
    classes, jar = folder / "classes", folder / Path(source).with_suffix(".jar").name
    classes.mkdir(parents=True)
    command = [find_java(), "-Xss8m", "-Xmx1g", "-cp", f"{pyspark_home()}/jars{os.sep}*", "scala.tools.nsc.Main", "-usejavacp"]
    done = subprocess.run([*command, "-d", str(classes), str(JOBS / source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(jar, "w") as made:
        for file in classes.rglob("*.class"):
            made.write(file, file.relative_to(classes))
    return jar
