"""How the program ends when what it prints cannot be read, or a person does not want to wait: a sentence and a status, never a lie."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_ckpt.storage import Storage
from tests.drivers.stored_stream import StreamWriter, flip, make_store

PROGRAM = [sys.executable, "-m", "spark_ckpt.cli.main"]


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Epochs 0 and 1."""
    writer = StreamWriter(storage)
    writer.begin(1)
    for epoch in range(2):
        writer.complete(1, epoch, [make_store(tmp_path, 30 + epoch, f"s{epoch}")])
    return writer


def unread(arguments: Sequence[str], *, also_stderr: bool = False) -> tuple[int, str]:
    """Exit status and stderr of a call whose reader is gone before it begins, as with `| head -0`."""
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as head:
        assert head.stdin is not None
        head.wait()
        err = head.stdin if also_stderr else subprocess.PIPE
        ran = subprocess.run([*PROGRAM, *arguments], stdout=head.stdin, stderr=err, text=True, check=False, timeout=60)
        return ran.returncode, ran.stderr or ""


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
