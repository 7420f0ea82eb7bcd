"""A file source that has seen very many files: its log is what grows without end. What a stream stores and says for each epoch must not."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_ckpt.paths import parse_driver_file_key
from spark_ckpt.protocol.entries import Plan, decode
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Application

EVENTS = 3
"""Rows in each input file."""
RECORDER = """#!/bin/sh
# All that is said between the JVM and its coordinator, line by line.
case "$2" in
  spark_ckpt.coordinator) tee -a "{folder}/heard" | "{python}" "$@" | tee -a "{folder}/said" ;;
  *) exec "{python}" "$@" ;;
esac
"""


def link_files(folder: Path, first: int, count: int) -> None:
    """Hard links of one small file: each a file of its own to the source."""
    folder.mkdir(parents=True, exist_ok=True)
    one = folder.parent / f".{folder.name[:100]}-one"
    rows = [{"id": n, "key": f"k{n}", "ts": "2026-01-01T00:00:00Z", "value": n + 1} for n in range(EVENTS)]
    one.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(one, (1_700_000_000, 1_700_000_000))
    for number in range(first, first + count):
        # A file has some 65,000 links at most.
        if (number - first) % 50_000 == 49_999:
            copy = one.with_name(f"{one.name}-{number}")
            shutil.copy2(one, copy)
            one = copy
        os.link(one, folder / f"{number:07d}.json")


class Places(NamedTuple):
    tmp: Path
    events: Path

    @property
    def storage(self) -> Path:
        return self.tmp / "storage"

    @property
    def location(self) -> Path:
        return self.tmp / "location"

    @property
    def stream(self) -> str:
        return f"file://{self.storage}{self.location}"

    @property
    def out(self) -> Path:
        return self.tmp / "out"

    def run(self, start: Callable[..., Application], files: int, compact_interval: int, *more: str) -> Application:
        """The pipe to the coordinator is recorded."""
        recorder = self.tmp / "recorder.sh"
        recorder.write_text(RECORDER.format(folder=self.tmp, python=sys.executable))
        recorder.chmod(0o700)
        arguments = [str(self.events), str(self.location), str(self.out)]
        arguments += ["--files", str(files), "--compact-interval", str(compact_interval)]
        conf = {
            "spark.ckpt.python": str(recorder),
            "spark.ckpt.retained": "2",
            "spark.sql.files.openCostInBytes": "0",  # else a task for each 32 files
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else a task for each file, which looks at it once more
            "spark.sql.shuffle.partitions": "2",
        }
        return start("file_totals.py", *arguments, *more, storage=f"file://{self.storage}", conf=conf)


class Weights(NamedTuple):
    """Bytes for each epoch, in the order of the epochs: of its plan, of its checkpoint's `_metadata`, of what was said with its trigger."""

    plans: list[int]
    metadata: list[int]
    triggers: list[int]
    longest_line: int
    """Of all that crossed the pipe, starts included."""
    objects: list[int]
    """Large files of the driver in the storage."""


def weights(places: Places) -> Weights:
    with open_storage(places.stream) as storage:
        stored = list(storage.list(""))
        entries = {s.key: storage.get(s.key) for s in stored if s.key.startswith("log/")}
        plans = [len(data) for key, data in sorted(entries.items()) if isinstance(decode(int(key[4:]), data), Plan)]
        documents = {decode_metadata(storage.get(s.key)).id.epoch: s.size for s in stored if s.key.endswith("/_metadata")}
    heard = (places.tmp / "heard").read_bytes().splitlines()
    said = (places.tmp / "said").read_bytes().splitlines()
    return Weights(
        plans,
        [size for _, size in sorted(documents.items())],
        [len(line) for line in heard if b'"type":"trigger"' in line],
        max(map(len, [*heard, *said])),
        [s.size for s in stored if parse_driver_file_key(s.key) is not None],
    )


def held(places: Places) -> dict[str, tuple[int, int]]:
    """What the query gave: rows and sum of each key."""
    found: dict[str, tuple[int, int]] = {}
    for batch in sorted(places.out.glob("batch-*.json"), key=lambda path: int(path.stem.removeprefix("batch-"))):
        for row in map(json.loads, batch.read_text().splitlines()):
            found[row["key"]] = (row["n"], row["total"])
    return found


def batch(files: int) -> dict[str, tuple[int, int]]:
    """The same of so many input files at once."""
    return {f"k{n}": (files, files * (n + 1)) for n in range(EVENTS)}
