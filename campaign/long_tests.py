"""The tests that `make test` leaves out, one after the other, each in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaign.record import about
from campaign.tested import ROOT, code_of

_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m")


class CollectionError(Exception):
    """pytest could not tell which tests there are."""


def names() -> list[str]:
    """As pytest calls them. Raises CollectionError."""
    done = subprocess.run([*_PYTEST, "campaign", "--collect-only", "-q", "tests"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CollectionError(done.stdout[-2000:] + done.stderr[-2000:])
    return [line for line in done.stdout.splitlines() if "::" in line]


def run(name: str, log: Path, marks: str = "campaign") -> dict[str, Any]:
    """The line for it. What it prints goes to the log. `marks`: which tests pytest takes."""
    head, began = about(code_of(name)), time.monotonic()
    command = [*_PYTEST, marks, "-v", "-s", "-rA", name]
    with log.open("w") as out:
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    said = outcome(status, log.read_text(errors="replace"))
    return {**head, "test": name, "outcome": said, "seconds": round(time.monotonic() - began, 1)}


def outcome(status: int, printed: str) -> str:
    """One of passed, skipped and failed: what pytest's exit status and last line say of one test."""
    last = printed.splitlines()[-1:]
    found = re.search(r"\b1 (passed|skipped)\b", last[0]) if last else None
    return found[1] if found and status == 0 else "failed"
