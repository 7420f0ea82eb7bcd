"""The floor: this project's own coordinator and agent over a storage that throws everything away.

`spark.ckpt.python` names a wrapper (`write_interpreter`) that runs the same two modules with another storage behind them.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.sampler import VARIABLE, sample
from spark_ckpt.agent import __main__ as agent
from spark_ckpt.coordinator import main as coordinator
from spark_ckpt.storage.base import Slice
from spark_ckpt.storage.memory import MemoryStorage
from spark_ckpt.storage.options import S3Options

URL = "file:///nothing-is-stored-here"
"""What the options say; `throw_away` stands in for the storage that would be opened there."""


class ThrowAwayStorage(MemoryStorage):
    """Keeps what was put if absent (log entries and `_metadata`, which the protocol may read back), throws away what holds state."""

    def put(self, key: str, data: bytes) -> None:  # noqa: ARG002
        self._begin(key, "put")

    def put_slices(self, key: str, slices: Sequence[Slice]) -> None:  # noqa: ARG002 - not even read
        self._begin(key, "put")


def write_interpreter(path: Path) -> Path:
    """An executable that takes the place of the Python interpreter."""
    root = Path(__file__).resolve().parents[1]
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m benchmarks.floor "$@"\n')
    path.chmod(0o755)
    return path


def throw_away(_url: str, _options: S3Options) -> ThrowAwayStorage:
    """Each stream its own: of one that has run before it would be said that its state is missing."""
    return ThrowAwayStorage(f"memory://{uuid.uuid4()}")


def main(arguments: Sequence[str]) -> None:
    programs: dict[str, Callable[[], None]] = {
        "spark_ckpt.agent": lambda: agent.main(throw_away),
        "spark_ckpt.coordinator": lambda: coordinator.main(throw_away),
    }
    if len(arguments) != 2 or arguments[0] != "-m" or arguments[1] not in programs:
        os.execv(sys.executable, [sys.executable, *arguments])
    if samples := os.environ.get(VARIABLE):
        sample(Path(samples))
    programs[arguments[1]]()


if __name__ == "__main__":
    main(sys.argv[1:])
