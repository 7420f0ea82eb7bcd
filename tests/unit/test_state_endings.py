"""`spark-ckpt state --to`: what it replaces and what it leaves alone, and what is left when it is ended halfway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.cli.state_verb import parquet_columns
from tests.drivers.command_line import call
from tests.stored.earlier import HERE, place

_SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from spark_ckpt.state import reading
reading.BATCH_BYTES, before = 1, reading.groups
def groups(*what):
    for found in before(*what):
        yield found
        time.sleep(0.4)
reading.groups = groups
from spark_ckpt.cli.main import main
main()
"""


@pytest.fixture
def stream(tmp_path: Path) -> str:
    place("1", tmp_path / "stream")
    return f"file://{tmp_path}/stream"


def test_only_a_file_is_replaced(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No device of this machine is named here: who breaks the rule as root would take it away from everybody."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "to_fifo").symlink_to(fifo)
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_folder").symlink_to("folder")
    near, far = os.pipe()
    targets = [str(tmp_path / name) for name in ("fifo", "to_fifo", "itself", "to_folder")] + [f"/proc/self/fd/{far}"]
    for target in targets:
        assert run(["state", stream, "--to", target]) == 2, target
        assert target in capsys.readouterr().err
    os.close(near)
    os.close(far)
    assert fifo.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "folder", "itself", "stream", "to_fifo", "to_folder"]


def test_a_link_is_followed(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link, other = tmp_path / "link", tmp_path / "other"
    other.mkdir()
    link.symlink_to(other / "state.parquet")
    for _ in range(2):  # it leads nowhere first, then to a file
        status, doc = call(capsys, "state", stream, "--to", str(link))
        assert (status, doc["rows"], doc["size"]) == (0, 5, (other / "state.parquet").stat().st_size)
        assert link.is_symlink()
        assert pq.read_metadata(other / "state.parquet").num_rows == 5


def _begun(stream: str, target: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _SLOW, "state", stream, "--to", str(target)]
    environment = {**os.environ, "TMPDIR": str(target.parent)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    until = time.monotonic() + 60
    while not list(target.parent.glob(".spark-ckpt-state-*/state.parquet")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.3)
    return process


def test_what_an_ended_one_has_left_goes_with_the_next(stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    process = _begun(stream, folder / "state.parquet")
    process.kill()
    process.communicate(timeout=60)
    assert list(folder.iterdir()) != []
    assert call(capsys, "state", stream, "--to", str(folder / "state.parquet"))[0] == 0
    assert [p.name for p in folder.iterdir() if not p.name.startswith(".spark-ckpt-state-")] == ["state.parquet"]
    assert list(folder.glob(".spark-ckpt-state-*/state.parquet")) == []


def test_who_interrupts_it_sees_a_sentence_and_nothing_is_left(stream: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    process = _begun(stream, folder / "state.parquet")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "\nspark-ckpt: interrupted\n")
    assert list(folder.iterdir()) == []


@pytest.mark.campaign
@pytest.mark.parametrize(("arguments", "status"), [
    (["verify"], 0), (["verify", "--deep"], 0), (["list"], 0), (["show"], 0), (["state", "--deep"], 0), (["gc"], 0),
    (["verify", "--nothing"], 2), (["show", "--checkpoint", "run-7/chk-7"], 1),
])
def test_a_closed_stderr_changes_no_verdict(stream: str, arguments: list[str], status: int) -> None:
    command = [sys.executable, "-m", "spark_ckpt.cli.main", *arguments, stream]
    ran = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ran.returncode == status
    json_too = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command, "--json"], stdout=subprocess.PIPE, check=False, timeout=60)
    assert json_too.returncode == status
    assert status == 2 or json.loads(json_too.stdout)


_ON_A_FULL_DISK = """
import resource, sys
import spark_ckpt
from spark_ckpt.errors import StorageError
from spark_ckpt.state import contents
contents.SPILL_BYTES = 1
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    spark_ckpt.read_state(sys.argv[1]).to_table()
except StorageError as e:
    print(e)
"""


@pytest.mark.parametrize(("room", "kind"), [(20, "changelogs"), (700, "changelogs"), (20, "full snapshot"), (3000, "full snapshot")])
def test_a_full_disk_is_no_damage(stream: str, room: int, kind: str) -> None:
    """A limit of the size of files is what a test can have in its place."""
    url = stream if kind == "changelogs" else f"file://{HERE}/states/update"
    ran = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, url, str(room)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.stderr == ""
    assert "run-" in ran.stdout
    assert ": operator 0, partition " in ran.stdout
    assert "File too large" in ran.stdout
    assert "free space there" in ran.stdout
    assert "TMPDIR" in ran.stdout


def test_a_key_without_columns_is_no_column_of_a_parquet_file() -> None:
    schema = pa.schema([("key", pa.struct([])), ("value", pa.struct([("count", pa.int64())])), ("partition_id", pa.int32())])
    assert parquet_columns(schema) == ["value", "partition_id"]
    pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([schema.field(name) for name in parquet_columns(schema)])).close()
