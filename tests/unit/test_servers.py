"""A server that a test or a benchmark starts ends with its starter, also if that one is killed."""

from __future__ import annotations

from pathlib import Path

from tests.drivers.killed_starter import left

PROGRAM = """
import sys, time
from pathlib import Path
from testbed.servers import Kind, running
kind = Kind("python3", "", ("-m", "http.server", "{port}", "--bind", "127.0.0.1"), {})
with running(kind, Path(sys.argv[1])) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def test_a_server_ends_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    assert left(PROGRAM, tmp_path / "folder") == []
