"""What a job says to its test: lines in a file in the application's own folder for temporary files (`tests/drivers/spark/sightings.py`).

The job's output would not do: spark-submit passes it on in pieces of 1,024 bytes (Spark's `RedirectThread`), and the JVM's log comes
between two pieces of one line.
"""

from __future__ import annotations

import os
from pathlib import Path


def say(line: str) -> None:
    """In one write: listeners speak in threads of their own."""
    said = os.open(Path(os.environ["TMPDIR"]) / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(said, f"{line}\n".encode())
    finally:
        os.close(said)
