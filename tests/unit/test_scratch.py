"""Scratch folders go with their process, or with the next one's start."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from spark_ckpt.process.scratch import TEMPORARY, ScratchFolder, temporary_folder
from tests.drivers.coordinator_process import WAIT_S, Jvm

_HOLD = """
import sys, time
from pathlib import Path
from spark_ckpt.process.scratch import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1]), sys.argv[2])
(folder.path / "large").write_bytes(b"x")
print(folder.path, flush=True)
sys.stdin.read()
"""

_TEMPORARY = """
import sys
from spark_ckpt.process.scratch import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def held(parent: Path, prefix: str = TEMPORARY) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(parent), prefix], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_what_a_killed_process_left_goes_and_what_lives_stays(tmp_path: Path) -> None:
    dead, left = held(tmp_path)
    kill(dead)
    living, in_use = held(tmp_path)
    assert not left.exists()
    being_made, other = tmp_path / f"{TEMPORARY}new", tmp_path / "other"
    being_made.mkdir()
    other.mkdir()
    with ScratchFolder(tmp_path, TEMPORARY) as mine:
        assert {p.name for p in tmp_path.iterdir()} == {in_use.name, being_made.name, other.name, mine.name}
        assert (in_use / "large").read_bytes() == b"x"
    assert not mine.exists()
    kill(living)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_temporary_folder_of_a_process_that_was_ended_goes_with_the_next(
    signal_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", _TEMPORARY, "verify"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    assert left.parent == tmp_path
    process.send_signal(signal_number)
    process.communicate()
    assert left.exists()
    with temporary_folder("verify") as mine:
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == [mine]


@pytest.mark.parametrize("purpose", ["copy", "verify"])
def test_a_coordinator_removes_what_killed_processes_have_left(
    purpose: str, jvm: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, left = held(tmp_path, f"{TEMPORARY}{purpose}-")
    kill(dead)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    one = jvm()
    deadline = time.monotonic() + WAIT_S
    while left.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert one.close() == 0
