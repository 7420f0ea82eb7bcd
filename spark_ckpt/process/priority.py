"""How much a process of this package gives way to others of its machine (nice(2))."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOWEST = 19
_THREADS = Path("/proc/self/task")


def give_way(nice: int) -> None:
    """Of this process, from now on: nobody without rights can take it back. 0 leaves it as it was started.

    In Linux each thread has a value of its own, which those that it starts inherit.
    """
    if nice <= 0:
        return
    for thread in [int(entry.name) for entry in _THREADS.iterdir()]:
        with suppress(OSError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
