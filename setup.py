"""Builds the JAR along with the package; everything else about the project is in pyproject.toml.

    python setup.py build_jar    build spark_ckpt/jars/spark-ckpt-<Spark version>.jar unless it is up to date
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Command, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def _builder() -> ModuleType:
    """`jvm_shim/build.py`, which is no part of any package."""
    spec = importlib.util.spec_from_file_location("spark_ckpt_build_jar", ROOT / "jvm_shim" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _build() -> Path:
    builder = _builder()
    try:
        jar: Path = builder.build()
    except builder.BuildError as e:
        raise SystemExit(f"spark-ckpt: {e}") from e
    return jar


class BuildJar(Command):
    """`python setup.py build_jar`: for development."""

    description = "build the JAR of spark-ckpt with PySpark's own Scala compiler"
    user_options: list[tuple[str, str | None, str]] = []

    def initialize_options(self) -> None:
        """No options."""

    def finalize_options(self) -> None:
        """No options."""

    def run(self) -> None:
        print(_build())


class BuildPyWithJar(build_py):
    """Puts the JAR for the Spark of this build, and no other one, beside the modules. An editable install finds it in the source tree."""

    def _jar_in_build(self, name: str) -> Path:
        return Path(self.build_lib) / "spark_ckpt" / "jars" / name

    def run(self) -> None:
        super().run()
        jar = _build()
        self._jar: Path | None = jar
        if not self.editable_mode:
            target = self._jar_in_build(jar.name)
            if target.parent.exists():
                shutil.rmtree(target.parent)
            target.parent.mkdir(parents=True)
            shutil.copyfile(jar, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = list(super().get_outputs(include_bytecode))
        jar = getattr(self, "_jar", None)
        if jar is not None and not self.editable_mode:
            outputs.append(str(self._jar_in_build(jar.name)))
        return outputs


setup(cmdclass={"build_jar": BuildJar, "build_py": BuildPyWithJar})
