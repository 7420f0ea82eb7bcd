"""The tests that `make test` leaves out, one after the other, each in a pytest of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from campaign.record import about
from campaign.tested import ROOT, code_of

KILL = "kill"
"""The name under which a test tells pytest's `record_property` of each of its kills: in JSON, as the schema of `kills` says."""
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
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [*_PYTEST, marks, "-v", "-s", "-rA", f"--junitxml={report}", name]
    with log.open("w") as out:
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    said = outcome(status, log.read_text(errors="replace"))
    line = {**head, "test": name, "outcome": said, "seconds": round(time.monotonic() - began, 1)}
    killed = kills(report)
    return {**line, "kills": killed} if killed else line


def outcome(status: int, printed: str) -> str:
    """One of passed, skipped and failed: what pytest's exit status and last line say of one test."""
    last = printed.splitlines()[-1:]
    found = re.search(r"\b1 (passed|skipped)\b", last[0]) if last else None
    return found[1] if found and status == 0 else "failed"


def kills(report: Path) -> list[dict[str, Any]]:
    """Those that the test has recorded, in order; also of one that has failed. None where pytest itself was killed."""
    if not report.exists():
        return []
    properties = ET.parse(report).iter("property")
    found = [json.loads(one.get("value", "")) for one in properties if one.get("name") == KILL]
    report.unlink()
    return found
