"""What a test or a benchmark starts ends with its starter, also if that one is killed; what it builds is built once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers.killed_starter import ROOT, left

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

BUILD = """
import os, sys, threading, time
from pathlib import Path
from testbed import servers
servers.BUILT = folder = Path(sys.argv[1])
folder.mkdir()
(folder / "go").write_text('#!/bin/sh\\ntouch "$GOBIN/../began"; exec sleep 600')
(folder / "go").chmod(0o755)
os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
def tell():
    while not (folder / "began").exists():
        time.sleep(0.02)
    print("it builds", flush=True)
threading.Thread(target=tell, daemon=True).start()
servers.binary(servers.Kind("no-such-server", "example.org/server", (), {}))
"""


@pytest.mark.parametrize("program", [SERVER, APPLICATION, BUILD], ids=["server", "application", "build"])
def test_it_ends_with_a_starter_that_is_killed(tmp_path: Path, program: str) -> None:
    assert left(program, tmp_path / "folder") == []


def test_two_that_want_the_same_server_build_it_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    server = "$GOBIN/no-such-server"
    go.write_text(f'#!/bin/sh\necho >> "$GOBIN/../builds"; sleep 0.5; printf "#!/bin/sh" > "{server}"; chmod +x "{server}"')
    go.chmod(0o755)
    code = "import sys; from pathlib import Path; from testbed import servers; servers.BUILT = Path(sys.argv[1])"
    code += "; print(servers.binary(servers.Kind('no-such-server', 'example.org/server', (), {})))"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate(timeout=60)[0] for one in both] == [f"{tmp_path}/no-such-server\n"] * 2
    assert (tmp_path / "builds").read_text() == "\n"
