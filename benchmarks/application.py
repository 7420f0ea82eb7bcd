"""An application that runs until somebody is done with it, in a session of processes of its own, with a log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Self

from benchmarks import processes
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV
from benchmarks.processes import Elsewhere
from testbed.servers import ending_with_starter

END_S = 60


class Application:
    """Use as a context manager. The end of its stdin tells it to end."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.log, self._killed = folder / "application.log", False
        self.spawned_ms, self._elsewhere = time.time() * 1000, Elsewhere()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_starter(command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **ENV, **env},
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        killed = self._killed
        with suppress(OSError):
            stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()
        if error is None and self._process.returncode and not killed:
            self._fail("the query has failed")

    def tell(self) -> None:
        """A line on its stdin."""
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        with suppress(OSError):  # it has ended, and `check` says so
            stdin.write(b"\n")
            stdin.flush()

    def kill(self) -> None:
        """All its processes, at once."""
        self._killed = True
        processes.tell_session(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)

    def elsewhere_percent(self) -> float:
        """How much of the machine's processors others had since it was begun."""
        return self._elsewhere.percent(self._process.pid)

    def check(self) -> None:
        """Raises BenchmarkError where it has ended."""
        if self._process.poll() is not None:
            self._fail("the application has ended")

    def _fail(self, why: str) -> NoReturn:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        raise BenchmarkError(f"{why}\n{tail}")
