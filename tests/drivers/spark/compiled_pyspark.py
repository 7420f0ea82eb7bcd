"""PySpark's ZIP files with their modules compiled beside the sources, for the tests' own virtual environment.

Every interpreter that Spark starts imports PySpark from them, and compiles it anew where there are only sources: 2 s of a processor. Spark
waits ten seconds for an interpreter (PythonWorkerFactory.createSimpleWorker), which is too little where two busy processors have to start
several. An interpreter of another version reads the sources, as it would without.
"""

from __future__ import annotations

import compileall
import re
import shutil
import tempfile
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from py_compile import PycInvalidationMode

from spark_ckpt.process.jar import pyspark_home

_TESTS = re.compile("/tests/")


def compile_into(file: Path) -> None:
    """Raises OSError or BadZipFile. Not while an interpreter runs from the file: it has read the old one's table of contents."""
    with tempfile.TemporaryDirectory(dir=file.parent) as name:
        folder = Path(name) / "modules"
        with zipfile.ZipFile(file) as sources:
            if any(name.endswith(".pyc") and sources.read(name).startswith(MAGIC_NUMBER) for name in sources.namelist()):
                return
            sources.extractall(folder)
        # Not by time: a ZIP file's times are local, and no job of the tests has to have the time zone of whoever ran this.
        by_hash = PycInvalidationMode.UNCHECKED_HASH
        # PySpark knows its own frames by the path that they have in the file (errors/utils.py).
        compileall.compile_dir(
            folder, quiet=2, legacy=True, rx=_TESTS, stripdir=str(folder), prependdir=str(file), invalidation_mode=by_hash
        )
        Path(shutil.make_archive(str(folder), "zip", folder)).replace(file)


if __name__ == "__main__":
    for found in (pyspark_home() / "python" / "lib").glob("*.zip"):
        compile_into(found)
