"""A folder that stands in for PySpark's own."""

from __future__ import annotations

from pathlib import Path

from spark_ckpt.process.jar import pyspark_home


def linked_home(home: Path) -> Path:
    """PySpark's folder in links: local-cluster's workers make theirs in SPARK_HOME/work (Worker.createWorkDir), named by the second."""
    home.mkdir(parents=True, exist_ok=True)
    for entry in pyspark_home().iterdir():
        if entry.name != "work" and not (home / entry.name).is_symlink():
            (home / entry.name).symlink_to(entry)
    return home
