"""Who has started a server is killed: what is left of the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 5


def left(program: str, folder: Path) -> list[int]:
    """The processes that `program`, Python code that starts some, prints a line and waits, leaves behind when it is killed then. None of
    them lives when this returns. `folder` is its argument."""
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE) as starter:
        started: list[int] = []
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline(), "it ended, or has printed nothing"
            started = [int(pid) for pid in Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text().split()]
            assert started
            starter.kill()
            starter.wait(20)
            deadline = time.monotonic() + ENDS_WITHIN_S
            while (living := [pid for pid in started if _lives(pid)]) and time.monotonic() < deadline:
                time.sleep(0.02)
            return living
        finally:
            starter.kill()
            for pid in filter(_lives, started):
                os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
