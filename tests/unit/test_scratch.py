"""Scratch folders go with their process, or with the next one's start."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.process.scratch import TEMPORARY, ScratchFolder, remove_dead, temporary_folder
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
    strange, other = tmp_path / f"{TEMPORARY}thesis", tmp_path / "other"
    (strange / "chapters").mkdir(parents=True)
    other.mkdir()
    with ScratchFolder(tmp_path, TEMPORARY) as mine:
        assert {p.name for p in tmp_path.iterdir()} == {in_use.name, strange.name, other.name, mine.name}
        assert (in_use / "large").read_bytes() == b"x"
    assert not mine.exists()
    kill(living)


def test_what_another_user_has_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be too deep to be removed, and would keep this user from having any."""
    theirs = tmp_path / f"{TEMPORARY}state-theirs"
    (theirs / "d").mkdir(parents=True)
    (theirs / "lock").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
        remove_dead(tmp_path, TEMPORARY)
        assert (theirs / "d").exists()
    remove_dead(tmp_path, TEMPORARY)
    assert not theirs.exists()


def test_who_is_interrupted_while_it_removes_others_folders_leaves_none_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_parent: Path, _prefix: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_ckpt.process.scratch.remove_dead", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ScratchFolder(tmp_path, TEMPORARY)
    assert list(tmp_path.iterdir()) == []


def test_who_was_forked_meanwhile_removes_nothing(tmp_path: Path) -> None:
    folder = ScratchFolder(tmp_path, TEMPORARY)
    (folder.path / "state").touch()
    if not (forked := os.fork()):
        folder.close()
        os._exit(0)
    os.waitpid(forked, 0)
    assert (folder.path / "state").exists()
    remove_dead(tmp_path, TEMPORARY)
    assert (folder.path / "state").exists()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_who_is_interrupted_while_it_removes_its_folder_can_do_so_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ScratchFolder(tmp_path, TEMPORARY)
    for number in range(3):
        (folder.path / str(number)).touch()
    unlink = os.unlink

    def interrupted(path: str, dir_fd: int) -> None:
        if path == "1":
            raise KeyboardInterrupt
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []
    folder.close()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_temporary_folder_of_a_process_that_was_ended_goes_with_the_next(
    signal_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which tests that run under nohup ignore\n{_TEMPORARY}"
    process = subprocess.Popen([sys.executable, "-c", code, "verify"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    assert left.parent == tmp_path
    process.send_signal(signal_number)
    process.communicate()
    assert left.exists()
    with temporary_folder("state") as mine:
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


_REMOVE = """
import sys
from pathlib import Path
from spark_ckpt.process.scratch import ScratchFolder, remove_dead
left = int(sys.argv[3])
def audit(event, args):
    global left
    if event in ("tempfile.mkdtemp", "open", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "fcntl.flock", "os.scandir"):
        left -= 1
        if left < 0:
            import os
            os._exit(9)
sys.addaudithook(audit)
if sys.argv[4] == "own":
    folder = ScratchFolder(Path(sys.argv[1]), sys.argv[2])
    for name in ("a", "m", "z"):
        (folder.path / name).mkdir()
        (folder.path / name / "file").touch()
        (folder.path / f"{name}.file").touch()
    folder.close()
else:
    remove_dead(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("whose", ["own", "dead"])
def test_whatever_a_process_that_is_killed_leaves_the_next_one_removes(whose: str, tmp_path: Path) -> None:
    """It dies at its n-th call that changes the file system, for every n until it gets through: while it makes a folder, or removes one."""
    for number in range(200):
        if whose == "dead":
            dead, left = held(tmp_path)
            kill(dead)
            (left / "a" / "b").mkdir(parents=True)
            (left / "z").mkdir()
        child = subprocess.run([sys.executable, "-c", _REMOVE, str(tmp_path), TEMPORARY, str(number), whose], check=False)
        assert child.returncode in (0, 9)
        remove_dead(tmp_path, TEMPORARY)
        assert list(tmp_path.iterdir()) == [], number
        if child.returncode == 0:
            break
    assert child.returncode == 0
    assert number > 8


def test_a_folder_that_a_remover_takes_while_it_is_made_is_made_again(tmp_path: Path) -> None:
    ends = threading.Event()

    def remove() -> None:
        while not ends.is_set():
            remove_dead(tmp_path, TEMPORARY)

    removers = [threading.Thread(target=remove) for _ in range(2)]
    for thread in removers:
        thread.start()
    try:
        for _ in range(100):
            with ScratchFolder(tmp_path, TEMPORARY) as mine:
                (mine / "file").write_bytes(b"x")
                assert (mine / "file").read_bytes() == b"x"
    finally:
        ends.set()
        for thread in removers:
            thread.join()
    assert list(tmp_path.iterdir()) == []


def test_what_others_have_laid_there_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").touch()
    (victim / "data").touch()
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / f"{TEMPORARY}link").symlink_to(victim)
    for name in ("pipe", "file", "none"):
        (parent / f"{TEMPORARY}{name}").mkdir()
    os.mkfifo(parent / f"{TEMPORARY}pipe" / "lock")
    (parent / f"{TEMPORARY}file" / "lock").symlink_to(victim / "lock")
    (parent / f"{TEMPORARY}none" / "thesis.doc").touch()
    remove_dead(parent, TEMPORARY)
    assert sorted(path.name for path in victim.iterdir()) == ["data", "lock"]
    assert (parent / f"{TEMPORARY}none" / "thesis.doc").exists()


def test_a_disk_that_takes_no_lock_keeps_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def full(path: Any, *args: Any, **named: Any) -> int:
        if str(path).endswith("lock"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(OSError, match="No space"):
            ScratchFolder(tmp_path, TEMPORARY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", ["held", "gone"])
def test_a_disk_that_keeps_no_lock_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Of some file systems in user space every lock is held, or no file has a name."""
    real = os.fstat

    def held(_fd: int, _how: int) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def nameless(fd: int) -> os.stat_result:
        found = real(fd)
        return os.stat_result((*found[:3], 0, *found[4:10])) if stat.S_ISREG(found.st_mode) else found

    with monkeypatch.context() as patch:
        patch.setattr(*((fcntl, "flock", held) if fault == "held" else (os, "fstat", nameless)))
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(ConfigError, match=r"keeps no locks\); set TMPDIR"), temporary_folder("test"):
            pass
    assert list(tmp_path.iterdir()) == []
