"""Scratch folders go with their process, or with the next one's start."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_ckpt.process.scratch import ScratchFolder
from spark_ckpt.stored.copies import SCRATCH
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


def held(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(parent), SCRATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
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
    being_made, other = tmp_path / f"{SCRATCH}new", tmp_path / "other"
    being_made.mkdir()
    other.mkdir()
    with ScratchFolder(tmp_path, SCRATCH) as mine:
        assert {p.name for p in tmp_path.iterdir()} == {in_use.name, being_made.name, other.name, mine.name}
        assert (in_use / "large").read_bytes() == b"x"
    assert not mine.exists()
    kill(living)


def test_a_coordinator_removes_the_unfinished_copies_of_killed_ones(jvm: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, left = held(tmp_path)
    kill(dead)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    one = jvm()
    deadline = time.monotonic() + WAIT_S
    while left.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert one.close() == 0
