"""Where a Python process spends its processor time: how much each thread has used, every few milliseconds, and in which module it is."""

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


def sample(path: Path) -> None:
    """From now on, into this file, until the process ends in whatever way."""
    threading.Thread(target=_sample, args=(path,), name="samples", daemon=True).start()


def _sample(path: Path) -> None:
    own, before = threading.get_ident(), dict[int, int]()
    with path.open("w", buffering=1) as file:
        while True:
            time.sleep(EVERY_S)
            now, frames = time.monotonic(), sys._current_frames()
            for thread in threading.enumerate():
                if thread.ident is None or thread.ident == own or thread.native_id is None:
                    continue
                used = _on_processor(thread.native_id)
                spent, before[thread.native_id] = used - before.get(thread.native_id, used), used
                if spent > 0 and (name := _module(frames.get(thread.ident))):
                    file.write(f"{now} {spent} {name}\n")


def _on_processor(thread: int) -> int:
    """Nanoseconds; none for a thread that has just ended."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])
    except OSError:
        return 0


def shares(path: Path, windows: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Percent of the processor time that was used within these times (of `time.monotonic`), by module, largest first."""
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        at, spent, name = line.split(" ")
        if any(start <= float(at) <= end for start, end in windows):
            found[name] += int(spent)
    return {name: 100 * n / found.total() for name, n in found.most_common()}


def _module(frame: FrameType | None) -> str:
    """The nearest module of this project that the thread is in, as `stored.metadata.codec`; empty for one that is in none."""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            return ".".join(file.relative_to(_PACKAGE).with_suffix("").parts)
        frame = frame.f_back
    return ""
