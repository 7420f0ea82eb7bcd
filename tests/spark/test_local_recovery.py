"""State comes from the local spool where its checksums match, and only the rest is downloaded: reads of the S3 server are counted."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def downloads(s3: Server) -> int:
    """Bytes of state that were read; what a start reads of the log and of `_metadata` is not state."""
    answered = s3.proxy.answered.copy()
    return sum(size for line, size in answered.items() if line.startswith("GET") and ("/seg/" in line or "/sst/" in line))


def damage(spool: Path, partition: int) -> int:
    """Other bytes, the same lengths, in whatever the spools of earlier executors hold of a partition; how many files."""
    files = [path for path in spool.glob(f"spark-ckpt-*/*/run-*/*/{partition}/**/*") if path.is_file() and path.stat().st_size > 0]
    for path in files:
        content = bytes(byte ^ 1 for byte in path.read_bytes())
        path.unlink()
        path.write_bytes(content)
    return len(files)


def modes(spool: Path) -> set[str]:
    """Of all that lies in the spools there."""
    found = set()
    for path in spool.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # uploaded, or superseded
            found.add(stat.filemode(path.lstat().st_mode))
    return found


@pytest.mark.campaign
def test_a_query_that_starts_again_on_its_machine_downloads_what_is_damaged_there(start: Start, s3: Server, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=1024)
    conf = {"interval": "1s", "spool_dir": str(spool)}
    before = os.umask(0)
    try:
        app = steady.start(**conf)
    finally:
        os.umask(before)
    steady.until(lambda: steady.count("fat", "completed") >= 2, "checkpoints")
    assert modes(spool) == {"drwx------", "-rw-------"}
    # In the same session: a new run of the same executor.
    steady.tell("again")
    steady.until(lambda: "/run-00000002/chk-" in "".join(s3.proxy.requests), "a checkpoint of the second run")
    assert downloads(s3) == 0
    app.kill()

    # After the whole machine's processes died: another executor's spool, in which one partition of three is damaged.
    assert damage(spool, 0) > 0
    shutil.rmtree(steady.locations)
    steady.start(**conf)
    steady.until(lambda: "/run-00000003/chk-" in "".join(s3.proxy.requests), "a checkpoint of the third run")
    some = downloads(s3)
    assert some > 0, "a damaged file was used"
    steady.app.kill()

    shutil.rmtree(steady.locations)
    steady.start(**conf, localRecovery="false")
    steady.until(lambda: "/run-00000004/chk-" in "".join(s3.proxy.requests), "a checkpoint of the fourth run")
    assert downloads(s3) - some > some, "one partition of three was to be downloaded, and then all of them"
    steady.stop()
    steady.tell("end")
    steady.app.expect_success()
    assert steady.numbers("fat")


@pytest.mark.campaign
def test_an_executor_that_takes_the_place_of_a_dead_one_uses_its_spool(start: Start, s3: Server, tmp_path: Path) -> None:
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=1024)
    app = steady.start(master="local-cluster[1,2,1024]", spool_dir=str(tmp_path / "spool"))
    for _ in range(2):
        steady.until_epochs("fat", 4)
        app.kill_one("CoarseGrainedExecutorBackend")
    steady.until_epochs("fat", 4)
    steady.stop()
    steady.tell("end")
    steady.app.expect_success()
    assert "Lost executor 1 " in app.log.read_text(), "no executor was lost: the test has lost its point"
    assert all("/run-00000002/" not in line for line in s3.proxy.requests), "the running query was to survive"
    assert downloads(s3) == 0
    assert steady.numbers("fat")


@pytest.mark.campaign
def test_what_a_stopped_query_has_not_stored_leaves_the_spool(start: Start, s3: Server, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=1024)
    steady.start(interval="10min", spool_dir=str(spool))
    steady.until_epochs("fat", 5)

    def staged() -> int:
        return sum(path.name != "lock" for path in spool.glob("spark-ckpt-*/.agent-*/*"))

    assert staged() > 0, "nothing was kept: the test has lost its point"
    steady.stop()
    steady.until(lambda: staged() == 0, "what the agent kept is gone")
    steady.tell("end")
    steady.app.expect_success()
