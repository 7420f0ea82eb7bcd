"""Compares what a stream's sink holds with what a batch query over the same input gives, row by row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

Rows = Counter[str]


def read(folder: Path) -> Rows:
    """All JSON rows below a sink's folder; the file sink's own log decides where there is one."""
    held = folder / "held.json"
    if held.exists():
        return _rows(json.dumps(row) for row in json.loads(held.read_text()).values())
    log = folder / "_spark_metadata"
    parts = _committed(log) if log.exists() else sorted(folder.rglob("part-*.json"))
    return _rows(line for part in parts for line in part.read_text().splitlines())


def differences(stream: Path, batch: Path) -> list[str]:
    """The rows that only one side has, as readable lines; results of the closing event are on neither side."""
    ours, theirs = read(stream), read(batch)
    missing = [f"missing {n} x {row}" for row, n in (theirs - ours).items()]
    extra = [f"extra {n} x {row}" for row, n in (ours - theirs).items()]
    return sorted(missing + extra)


def _rows(lines: object) -> Rows:
    counted: Rows = Counter()
    for line in lines:  # type: ignore[attr-defined]
        row = json.loads(line)
        if not _closing(row):
            counted[json.dumps(row, sort_keys=True)] += 1
    return counted


def _closing(row: dict[str, object]) -> bool:
    """A window that slides begins before what is in it: as FAR is midnight, on the day before."""
    return "far" in (row.get("key"), row.get("lkey"), row.get("rkey")) or str(row.get("start", "")) >= "2029-12-31"


def _committed(log: Path) -> list[Path]:
    """Files that the file sink has committed (Spark: FileStreamSinkLog), compacted entries included."""
    names: set[str] = set()
    for entry in log.iterdir():
        if entry.name.split(".")[0].isdigit():
            names.update(json.loads(line)["path"] for line in entry.read_text().splitlines()[1:])
    return [Path(name.removeprefix("file:").replace("///", "/")) for name in sorted(names)]
