"""PySpark's own folder, and one that stands in for it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def pyspark_home() -> Path:
    """As spark-submit finds it. Raises ModuleNotFoundError."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("PySpark is not installed for this Python", name="pyspark")
    return Path(spec.origin).resolve().parent


def linked_home(home: Path) -> Path:
    """PySpark's folder in links: local-cluster's workers make theirs in SPARK_HOME/work (Worker.createWorkDir), named by the second."""
    home.mkdir(parents=True, exist_ok=True)
    for entry in pyspark_home().iterdir():
        if entry.name != "work" and not (home / entry.name).is_symlink():
            (home / entry.name).symlink_to(entry)
    return home
