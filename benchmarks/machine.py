"""What the figures were taken on: without it they say little."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.far_s3 import LATENCY_MS

QUIET = 0.5
"""Load for each processor before a run, above which its times say nothing."""
WAIT_S, _LOOK_S = 600.0, 15.0


def describe() -> dict[str, Any]:
    """Facts for the head of a page. Names no host and no path."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "time": now(),
        "processors": f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}",
        "memory_gib": round(int(memory[1]) / 1024 / 1024) if memory else 0,
        "kernel": kernel(platform.release()),
        "python": platform.python_version(),
        "java": java[0] if java else "",
        "pyspark": version("pyspark"),
        "commit": commit(Path(__file__).parent),
        "processor_count": os.cpu_count() or 1,
        "latency_ms": LATENCY_MS,
        "load_before": round(os.getloadavg()[0], 2),
    }


def quietened(tell: Callable[[str], None]) -> float:
    """The load, in processors, once it is so low that times say something; after `WAIT_S` what it is by then."""
    until = time.monotonic() + WAIT_S
    while (load := os.getloadavg()[0]) > QUIET * (os.cpu_count() or 1) and time.monotonic() < until:
        tell(f"the load of the machine is {load:.2f}: waiting until it is quiet, {max(0.0, until - time.monotonic()):.0f} s at most")
        time.sleep(_LOOK_S)
    return load


def now() -> str:
    """To the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def commit(folder: Path) -> str:
    """Of the code that is measured, with a + where it was changed since; empty where that cannot be told."""
    try:
        told = [
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "--", ".."))
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    changed = [line for line in told[1].splitlines() if not line.endswith((".json", ".svg", ".md"))]
    return told[0] + ("+" if changed else "")


def kernel(release: str) -> str:
    """The first two numbers: what follows names a build, and often who made it."""
    return ".".join(release.split(".")[:2])
