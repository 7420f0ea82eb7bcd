"""Builds the JARs along with the package; everything else about the project is in pyproject.toml.

    python setup.py build_jar    build spark_ckpt/jars/spark-ckpt-<line>.jar unless it is up to date

The JAR for the PySpark of this build, or for the lines that SPARK_CKPT_LINES names: `SPARK_CKPT_LINES=4.0,4.3`, `SPARK_CKPT_LINES=all`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from jvm_shim.build import build
from jvm_shim.sparks import PINNED, BuildError


def _build() -> list[Path]:
    named = os.environ.get("SPARK_CKPT_LINES", "")
    lines: list[str | None] = [*PINNED] if named == "all" else [line.strip() for line in named.split(",") if line.strip()]
    try:
        return [build(line=line) for line in lines or [None]]
    except BuildError as e:
        raise SystemExit(f"spark-ckpt: {e}") from e


class BuildJar(Command):
    """`python setup.py build_jar`: for development."""

    description = "build the JAR of spark-ckpt with PySpark's own Scala compiler"
    user_options: list[tuple[str, str | None, str]] = []

    def initialize_options(self) -> None:
        """No options."""

    def finalize_options(self) -> None:
        """No options."""

    def run(self) -> None:
        print(*_build(), sep="\n")


class BuildPyWithJars(build_py):
    """Puts the JARs of this build, and no other ones, beside the modules. An editable install finds them in the source tree."""

    def _in_build(self, jar: Path) -> Path:
        return Path(self.build_lib) / "spark_ckpt" / "jars" / jar.name

    def run(self) -> None:
        super().run()
        self._jars = _build()
        if not self.editable_mode:
            folder = self._in_build(self._jars[0]).parent
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            for jar in self._jars:
                shutil.copyfile(jar, self._in_build(jar))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = list(super().get_outputs(include_bytecode))
        jars = [] if self.editable_mode else getattr(self, "_jars", [])
        return [*outputs, *(str(self._in_build(jar)) for jar in jars)]


setup(cmdclass={"build_jar": BuildJar, "build_py": BuildPyWithJars})
