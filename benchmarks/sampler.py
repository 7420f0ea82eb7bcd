"""Where a Python process spends its time: what each thread that works is at, every few milliseconds, by module of this project."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import spark_ckpt

VARIABLE = "SPARK_CKPT_BENCHMARK_SAMPLES"
"""Of the environment: the file into which samples go."""
EVERY_S = 0.002
_PACKAGE = Path(spark_ckpt.__file__).parent
# Modules in which a thread only waits for another one, or for bytes on the pipe.
_WAITING = ("threading.py", "queue.py", "selectors.py", "socket.py", "thread.py", "pipe.py")


def sample(path: Path) -> None:
    """From now on, into this file, until the process ends in whatever way."""
    threading.Thread(target=_sample, args=(path,), name="samples", daemon=True).start()


def _sample(path: Path) -> None:
    own = threading.get_ident()
    with path.open("w", buffering=1) as file:
        while True:
            time.sleep(EVERY_S)
            now = time.monotonic()
            at = [_module(frame) for thread, frame in sys._current_frames().items() if thread != own]
            if names := [name for name in at if name]:
                file.write("".join(f"{now} {name}\n" for name in names))


def shares(path: Path, windows: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Percent of the samples within these times (of `time.monotonic`), by module, largest first."""
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        at, name = line.split(" ", 1)
        if any(start <= float(at) <= end for start, end in windows):
            found[name] += 1
    return {name: 100 * n / found.total() for name, n in found.most_common()}


def _module(frame: FrameType | None) -> str:
    """The nearest module of this project that the thread is in, as `stored.metadata.codec`; empty for one that waits."""
    if frame is None or Path(frame.f_code.co_filename).name in _WAITING:
        return ""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            return ".".join(file.relative_to(_PACKAGE).with_suffix("").parts)
        frame = frame.f_back
    return ""
