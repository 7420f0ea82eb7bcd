"""When checkpoints begin and end behind a running query, and what a storage that is away does to it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.protocol.checkpoints.policy import first_delay_ms
from spark_ckpt.protocol.entries import Claim, decode
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.reading import StreamReader
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady, keys_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

MIB = 1 << 20
MAINTENANCE_S = 2
GAP = 12
"""Commits between two full snapshots of a store, in the last of three partitions (SnapshotSpread)."""
EPOCHS = 60


def first_claim(s3: Server, stream: str) -> Claim:
    with open_storage(stream, S3Options(s3.proxy.endpoint, "us-east-1", True)) as storage:
        entry = decode(1, storage.get(paths.log_key(1)))
    assert isinstance(entry, Claim)
    return entry


def newest_epoch(s3: Server, stream: str) -> int:
    with open_storage(stream, S3Options(s3.proxy.endpoint, "us-east-1", True)) as storage:
        return max(checkpoint for checkpoint, _ in StreamReader(storage).checkpoints()).epoch


@contextmanager
def credentials(s3: Server) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.env.items():
            patch.setenv(name, value)
        yield


@pytest.mark.campaign
def test_checkpoints_begin_when_they_are_due_and_failures_in_a_row_are_counted(start: Start, s3: Server, tmp_path: Path) -> None:
    steady = Steady(start, s3, tmp_path, ("left", "right"), rows=20, size=128)
    steady.start(interval="3s", minPause="2s", timeout="15s", tolerableFailures="1")
    steady.until(lambda: steady.count("left", "completed") >= 3 and steady.count("right", "completed") >= 1, "checkpoints")

    delays = {}
    for name in ("left", "right"):
        with credentials(s3):
            claim = first_claim(s3, steady.stream(name))
        delays[name] = first_delay_ms(claim.nonce, 3000, 2000)
        assert 2000 <= delays[name] <= 3000
        # The timer is set when the run begins, after its claim.
        assert steady.heard(name, "triggered")[0]["at"] * 1000 >= claim.time_ms + delays[name], name
    assert delays["left"] != delays["right"], "two streams that start together were to begin at different moments"

    # One failure, a success, one failure, a success: never two in a row.
    for _ in range(2):
        aborted, completed = steady.count("left", "aborted"), steady.count("left", "completed")
        s3.proxy.inject(WireFault(Wire.STATUS, r"^PUT \S*/left/\S*/(seg|sst)/", times=None, status=503))
        steady.until(lambda before=aborted: steady.count("left", "aborted") > before, "a failure")  # type: ignore[misc]
        s3.proxy.heal()
        steady.until(lambda before=completed: steady.count("left", "completed") > before, "a success")  # type: ignore[misc]
    assert {event["reason"] for event in steady.heard("left", "aborted")} <= {"EXPIRED", "DECLINED"}
    ended = 0
    for event in steady.heard("left"):
        if event["kind"] == "triggered":
            # `time_ms` of a late one is its epoch's end, which may have been before the checkpoint was due.
            begun = event["at"] * 1000 if event["late"] else event["time_ms"]
            assert begun - ended > 1000, "the pause of two seconds was not kept"
        else:
            ended = event["time_ms"] + event.get("duration_ms", 0)  # when one was given up is not told

    steady.stop()
    steady.until_quiet(8)  # longer than the interval: a query that does not run has no checkpoints
    steady.tell("end")
    steady.app.expect_success()
    assert all("/run-00000002/" not in line for line in s3.proxy.requests)
    for name in ("left", "right"):
        assert steady.numbers(name)


class Watch:
    """The most that ever lay in a folder, in bytes; a file that is linked twice counts once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.most = folder, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.1):
            self.most = max(self.most, self.now())

    def now(self) -> int:
        sizes = {}
        for folder, _, names in os.walk(self._folder):
            for name in names:
                try:
                    stat = os.lstat(f"{folder}/{name}")
                except OSError:
                    continue
                sizes[stat.st_ino] = stat.st_size
        return sum(sizes.values())


@pytest.mark.campaign
def test_a_storage_that_is_away_slows_the_query_and_costs_neither_disk_nor_rows(start: Start, s3: Server, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    steady = Steady(start, s3, tmp_path, ("fat",), rows=400, size=2048)
    conf = {"interval": "1s", "maxConcurrent": "2", "spool_maxSize": "6m", "spool_dir": str(spool), "timeout": "3min"}
    app = steady.start(maintenance=f"{MAINTENANCE_S}s", **conf)
    with Watch(spool) as watch:
        steady.until(lambda: steady.count("fat", "completed") >= 2, "checkpoints")
        s3.proxy.inject(WireFault(Wire.DELAY, r"^PUT \S*/(seg|sst)/", times=None, delay_s=3))
        steady.until(lambda: pending(steady.heard("fat")) == 2, "two checkpoints at a time")
        s3.proxy.heal()

        # No snapshot can be stored: the spool fills up to its bound, and tasks wait.
        s3.proxy.inject(WireFault(Wire.STATUS, r"^PUT \S*/(seg|sst)/", times=None, status=503))
        steady.until(lambda: "tasks wait until the storage has taken some" in app.log.read_text(), "a full spool")
        steady.until_stalled("fat")
        before, size = steady.committed("fat"), watch.now()
        time.sleep(3)
        assert steady.committed("fat") == before
        assert watch.now() <= size + MIB, "the spool goes on growing"
        print(f"spool: at most {watch.most} bytes at epoch {before}")
        lag = steady.lag()
        print(f"lag: {lag}")
        assert lag["epochs"] >= 1
        assert lag["bytes"] >= lag["epochs"] * MIB // 2
        assert lag["ms"] > 0
        s3.proxy.heal()
        steady.until_epochs("fat", 5)

        # Nothing can be stored, plans neither: no epoch starts.
        s3.proxy.inject(WireFault(Wire.STATUS, "^PUT", times=None, status=503))
        steady.until_stalled("fat")
        s3.proxy.heal()
        steady.until_epochs("fat", 3)
        # The one that covers for an epoch whose tasks wait for the spool is one more than maxConcurrent.
        assert pending(steady.heard("fat")) <= 2 + 1
        assert pending([event for event in steady.heard("fat") if not event["late"]]) <= 2
        # What has been stored does not stay for long either. Spark keeps the newest full snapshot that is ten versions old, and what came
        # since (RocksDBFileManager.deleteOldVersions): (1) that is the one before the newest, (2) a next one is due, (3) a maintenance
        # writes it, (4) the one after that deletes.
        steady.until_epochs("fat", max(1, EPOCHS - steady.committed("fat")))
        before = steady.committed("fat")
        time.sleep(2 * MAINTENANCE_S)
        most = 2 * GAP + steady.committed("fat") - before
        assert most < EPOCHS
        steady.until(lambda: versions(spool) <= most, "old versions to go")
        print(f"spool: at most {watch.most} bytes, {versions(spool)} versions at epoch {steady.committed('fat')}")
    app.kill()
    shutil.rmtree(steady.locations)

    steady.start(**conf)
    steady.until(lambda: steady.count("fat", "completed") >= 2, "checkpoints of the second run")
    steady.stop()
    steady.tell("end")
    steady.app.expect_success()
    assert steady.numbers("fat")
    with credentials(s3):
        newest = newest_epoch(s3, steady.stream("fat"))
        assert keys_of(s3, steady.stream("fat")) == 400 * (newest + 1), "the state lost or invented rows"


def versions(spool: Path) -> int:
    """Of the store that has the most of them in the spool."""
    counts: dict[Path, set[str]] = {}
    for path in spool.glob("spark-ckpt-*/*/run-*/*/*/*/*_*"):
        if path.suffix in (".changelog", ".zip"):
            counts.setdefault(path.parent, set()).add(path.name.split("_")[0])
    return max(map(len, counts.values()))


def pending(events: list[dict[str, Any]]) -> int:
    """How many checkpoints were in the making at the same time, at most."""
    most, now = 0, set()
    for event in events:
        if event["kind"] == "triggered":
            now.add(event["epoch"])
            most = max(most, len(now))
        else:
            now.discard(event["epoch"])
    return most
