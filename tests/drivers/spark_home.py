"""A folder that passes for a Spark's."""

from __future__ import annotations

from pathlib import Path


def a_spark(home: Path, version: str) -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").write_bytes(b"")
    return home
