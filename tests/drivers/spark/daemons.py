"""Processes of a cluster, each with a log of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.servers import ending_with_starter

_START_S = 60


class Daemons:
    """By name. Each is the first of a process group, and ends with whoever has started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str], said: str) -> None:
        """Until it has said so."""
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            self._running[name] = subprocess.Popen(
                ending_with_starter(command), stdout=log, stderr=log, env={**os.environ, **env}, cwd=self.folder, start_new_session=True
            )
        deadline = time.monotonic() + _START_S
        while said not in path.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} does not start:\n{path.read_text(errors='replace')[-3000:]}"
            time.sleep(0.05)

    def group(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL for it and its process group, at one moment, as when a machine dies."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def end(self) -> None:
        for name in reversed(list(self._running)):
            self.kill(name)


class Cluster(ABC):
    """Ends with its `with` block, with all that it has started."""

    def __init__(self, folder: Path) -> None:
        self._daemons = Daemons(folder)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    @abstractmethod
    def _begin(self) -> None: ...

    def _end(self) -> None:
        self._daemons.end()


def java_processes(program: str) -> Iterator[int]:
    """Process ids of the JVMs that run this class."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
            if arguments[0].endswith(b"java") and program.encode() in arguments:
                yield int(entry.name)


def group_of(process: int) -> int:
    """0 where it has gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[2])
    return 0
