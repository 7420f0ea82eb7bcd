"""The tests that `make test` leaves out, one after the other, each in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaign.record import ROOT, about

OUTCOMES = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}
_PYTEST = (sys.executable, "-m", "pytest", "-m", "campaign", "-p", "no:cacheprovider")


class CollectionError(Exception):
    """pytest could not tell which tests there are."""


def names() -> list[str]:
    """As pytest calls them. Raises CollectionError."""
    done = subprocess.run([*_PYTEST, "--collect-only", "-q", "tests"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CollectionError(done.stdout[-2000:] + done.stderr[-2000:])
    return [line for line in done.stdout.splitlines() if "::" in line]


def run(name: str, log: Path) -> dict[str, Any]:
    """The line for it. What it prints goes to the log."""
    head, began = about(), time.monotonic()
    with log.open("w") as out:
        status = subprocess.run([*_PYTEST, "-v", "-s", "-rA", name], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    last = log.read_text(errors="replace").splitlines()[-1:]
    found = re.search(r"\d+ (passed|failed|error|skipped)", last[0] if last else "")
    outcome = OUTCOMES[found[1]] if found and (status == 0) == (found[1] in ("passed", "skipped")) else "failed"
    return {**head, "test": name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
