"""What a test or a benchmark starts ends with its starter, also if that one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.killed_starter import left

SERVER = """
import sys, time
from pathlib import Path
from testbed.servers import Kind, running
kind = Kind("python3", "", ("-m", "http.server", "{port}", "--bind", "127.0.0.1"), {})
with running(kind, Path(sys.argv[1])) as url:
    print(url, flush=True)
    time.sleep(600)
"""

APPLICATION = """
import os, sys, time
from pathlib import Path
from tests.drivers.spark.harness import Application
Path(sys.argv[1]).mkdir()
with Application(["sleep", "600"], Path(sys.argv[1]) / "log", os.environ) as application:
    print(application.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("program", [SERVER, APPLICATION], ids=["server", "application"])
def test_it_ends_with_a_starter_that_is_killed(tmp_path: Path, program: str) -> None:
    assert left(program, tmp_path / "folder") == []
