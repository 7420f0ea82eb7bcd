"""Applications on another line of Spark than that of this interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign.lines import environment
from jvm_shim.sparks import PINNED, cached
from spark_ckpt.process.jar import jar_path


def missing() -> list[str]:
    """The lines whose PySpark has not been fetched."""
    return [line for line in PINNED if not cached(line).is_dir()]


def on(line: str) -> Mapping[str, Any]:
    """What the fixture `start` has to be given for an application on that line."""
    python, home = str(environment(line)), cached(line) / "pyspark"
    env = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    return {"jar": jar_path(PINNED[line][0]), "env": env}
