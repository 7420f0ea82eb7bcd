"""How the program ends when what it prints cannot be read, or a person does not want to wait: a sentence and a status, never a lie."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.paths import log_key
from spark_ckpt.storage import Storage, open_storage
from tests.drivers.stored_stream import StreamWriter, begun, flip, make_store
from tests.stored.earlier import HERE

PROGRAM = [sys.executable, "-m", "spark_ckpt.cli.main"]
_HEARING = "signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module('spark_ckpt.cli.main', run_name='__main__')"
HEARING = [sys.executable, "-c", f"import runpy, signal; {_HEARING}"]
"""The same, and it hears Ctrl-C also where the tests run in the background: what a shell begins there ignores it."""


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Epochs 0 and 1."""
    return begun(storage, tmp_path, 2)


def unread(arguments: Sequence[str], *, also_stderr: bool = False) -> tuple[int, str]:
    """Exit status and stderr of a call whose reader is gone before it begins, as with `| head -0`."""
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as head:
        assert head.stdin is not None
        head.wait()
        err = head.stdin if also_stderr else subprocess.PIPE
        ran = subprocess.run([*PROGRAM, *arguments], stdout=head.stdin, stderr=err, text=True, check=False, timeout=60)
        return ran.returncode, ran.stderr or ""


@pytest.mark.campaign
@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("also_stderr", [False, True])
def test_a_reader_that_is_gone_changes_no_verdict(
    writer: StreamWriter, storage: Storage, url: str, form: list[str], also_stderr: bool
) -> None:
    assert unread(["verify", url, *form], also_stderr=also_stderr) == (0, "")
    flip(storage, next(s.key for s in storage.list("run-") if "/sst/" in s.key))
    assert unread(["verify", url, *form], also_stderr=also_stderr) == (1, "")
    status, said = unread(["verify", f"{url}/nowhere", *form], also_stderr=also_stderr)
    assert status == 1
    assert also_stderr or said.startswith("spark-ckpt: ")
    assert unread(["savepoint", url, "--drain", *form], also_stderr=also_stderr)[0] == 2
    assert unread(["verify", url, "--nothing", *form], also_stderr=also_stderr)[0] == 2


def test_where_nothing_was_found_out_yet_the_status_is_that_of_the_signal() -> None:
    assert unread(["--help"]) == (141, "")


@pytest.mark.parametrize(("arguments", "status"), [(["list", "/nonexistent"], 1), (["list"], 2), (["list", "ftp://host/x"], 2)])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_error_that_cannot_be_written_has_its_status(arguments: list[str], form: list[str], status: int) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([*PROGRAM, *arguments, *form], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert ran.returncode == status
        assert "Traceback" not in ran.stderr
        assert ran.stderr
        assert subprocess.run([*PROGRAM, *arguments, *form], stdout=full, stderr=full, check=False).returncode == status


def interrupted(
    arguments: Sequence[str], begun: Callable[[], bool], number: int = signal.SIGINT, program: Sequence[str] = HEARING, **env: str
) -> tuple[int, str, str]:
    """A person presses Ctrl-C when it has `begun`, or it gets another signal."""
    around = {**os.environ, **env}
    process = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around)
    try:
        until = time.monotonic() + 60
        while not begun() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "its query may still make the savepoint: it would be in a new folder of {url}/savepoints\n"),
        (
            ["--stop", "--name", "x", "--json"],
            "may still make the savepoint, and end: `spark-ckpt verify {url}/savepoints/x` says whether it is there\n",
        ),
    ],
)
def test_who_does_not_wait_for_a_savepoint_is_told_what_stays(
    writer: StreamWriter, storage: Storage, url: str, options: list[str], says: str
) -> None:
    number = writer.log + 1
    status, out, err = interrupted(["savepoint", url, "--timeout", "50s", *options], lambda: storage.size(log_key(number)) is not None)
    assert (status, out) == (130, "")
    assert f"spark-ckpt: interrupted; the request stays in log entry {number} of {url}, and" in err
    assert err.endswith(says.format(url=url))
    assert "Traceback" not in err


def test_nor_for_a_checkpoint(writer: StreamWriter, storage: Storage, url: str) -> None:
    number = writer.log + 1
    status, out, err = interrupted(["checkpoint", url, "--timeout", "50s"], lambda: storage.size(log_key(number)) is not None)
    assert (status, out) == (130, "")
    assert err.endswith(f"interrupted; the request stays in log entry {number} of {url}, and its query may still meet it\n")


def test_who_does_not_wait_for_anything_else_sees_a_sentence(tmp_path: Path) -> None:
    python, begun = tmp_path / "python", tmp_path / "begun"
    python.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 50\n")
    python.chmod(0o755)
    assert interrupted(["doctor", "--python", str(python)], begun.exists) == (130, "", "\nspark-ckpt: interrupted\n")


HOLDING = """
import os, pathlib, runpy, signal, time
import pyarrow.parquet as pq
def held(self, batch):
    pathlib.Path(os.environ["BEGUN"]).touch()
    time.sleep(50)
pq.ParquetWriter.write_batch = held
signal.signal(signal.SIGHUP, signal.SIG_DFL)
runpy.run_module("spark_ckpt.cli.main", run_name="__main__")
"""
"""It hangs when it has something to write."""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_ends_it_from_outside_leaves_no_state_behind(number: int, status: int, tmp_path: Path) -> None:
    """`timeout`, systemd and Kubernetes send SIGTERM, a terminal that is closed SIGHUP."""
    for name in ("tmp", "out"):
        (tmp_path / name).mkdir()
    arguments = ["state", f"{HERE}/states/update", "--to", f"{tmp_path}/out/state.parquet"]
    env = {"BEGUN": f"{tmp_path}/begun", "TMPDIR": f"{tmp_path}/tmp"}
    ended = interrupted(arguments, (tmp_path / "begun").exists, number, [sys.executable, "-c", HOLDING], **env)
    assert ended == (status, "", "\nspark-ckpt: interrupted\n")
    assert [*(tmp_path / "tmp").iterdir(), *(tmp_path / "out").iterdir()] == []


def test_what_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    """Under `nohup` SIGHUP is ignored, and stays so."""
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv[1:] = ['--version']\n"
    code += "from spark_ckpt.cli.main import main\ntry: main()\nexcept SystemExit: print(signal.getsignal(signal.SIGHUP).name)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.endswith("SIG_IGN\n")


@pytest.mark.campaign
@pytest.mark.parametrize("encoding", ["iso-8859-1", "iso-8859-7"])
def test_a_terminal_that_lacks_characters_gets_the_others(tmp_path: Path, encoding: str) -> None:
    """In `verify` more than twenty problems end with an ellipsis, which ISO 8859-1 has not either."""
    url = f"file://{tmp_path}/\u65e5\u672c"
    writer = StreamWriter(open_storage(url))
    writer.begin(1)
    for epoch in range(25):
        writer.complete(1, epoch, [make_store(tmp_path, 3, f"s{epoch}")])
    for stored in list(writer.storage.list("run-")):
        if "/seg/" in stored.key or "/sst/" in stored.key:
            flip(writer.storage, stored.key)
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for verb, status, shown in (("show", 0, "\\u65e5\\u672c"), ("verify", 1, "\\u2026 and ")):
        ran = subprocess.run([*PROGRAM, verb, url], capture_output=True, check=False, env=environment)
        assert (ran.returncode, ran.stderr) == (status, b"")
        assert shown in ran.stdout.decode(encoding)


@pytest.mark.parametrize("verb", [["list", "~nobodyx/y"], ["savepoint", "file:///nowhere", "--target", "~nobodyx/y"]])
def test_a_home_that_nobody_has_is_no_folder_here(capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    assert run(verb) == 2
    assert "the home folder ~nobodyx is not known; write the path itself, or ./~nobodyx" in capsys.readouterr().err
    assert run(["list", "./~nobodyx/y"]) == 1
    assert "there is no stream at file:///" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["0", "1", "7"])
def test_a_terminal_without_columns_gets_the_rows(writer: StreamWriter, url: str, columns: str) -> None:
    mine, terminal = pty.openpty()
    try:
        environment = {**os.environ, "COLUMNS": columns, "TERM": "xterm"}
        ran = subprocess.run([*PROGRAM, "list", url], stdout=terminal, env=environment, check=False)
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(mine, 1 << 16)
            except OSError:  # Linux: nobody has the other end any more
                break
    finally:
        os.close(mine)
    assert ran.returncode == 0
    first_column = "".join(line.partition(" ")[0] for line in shown.decode().splitlines())
    assert "run-1/chk-0run-1/chk-1" in first_column
