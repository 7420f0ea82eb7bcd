"""Chains of changelogs stay short where epochs are, though Spark's maintenance never comes; and state comes back from them."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from spark_ckpt import paths
from spark_ckpt.model import HandleKind
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

EPOCHS, STARTS = 80, 44


def kinds(url: str, s3: S3Options | None = None) -> list[Counter[HandleKind]]:
    """Of the files of each store in the newest checkpoint, how many are of which kind."""
    with closing(open_storage(url, s3)) as storage:
        reader = StreamReader(storage)
        newest = reader.read(max(c for c, _ in reader.checkpoints()))
    return [Counter(handle.kind for handle in snapshot.handles) for snapshot in newest.snapshots]


def test_short_epochs_have_short_chains_and_state_comes_back_from_them(
    start: Start, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    steady = Steady(start, s3, tmp_path, ("thin",), rows=3, size=128)
    app = steady.start(maintenance="10h")
    steady.until(lambda: steady.committed("thin") >= EPOCHS, "many epochs", 240)
    app.kill()
    found = kinds(steady.stream("thin"), S3Options(s3.proxy.endpoint, "us-east-1", True))
    assert all(files[HandleKind.SNAPSHOT] == 1 for files in found), found
    assert all(files[HandleKind.CHANGELOG] < EPOCHS * 3 // 4 for files in found), found
    shutil.rmtree(steady.locations)
    steady.start(maintenance="10h")
    steady.until_epochs("thin", 3)
    steady.stop()
    steady.tell("end")
    steady.app.expect_success()
    assert len(steady.numbers("thin")) > 3 * EPOCHS


def test_a_job_that_runs_one_epoch_a_start_has_short_chains_too(start: Start, tmp_path: Path) -> None:
    """A full snapshot that is written behind its only commit is in no checkpoint, and the next start may be on another machine."""
    storage, location = f"file://{tmp_path}/storage", tmp_path / "location"
    args = (str(STARTS), "300", str(tmp_path / "in"), str(location))
    conf = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.stateStore.maintenanceInterval": "10h"}
    start("one_epoch_starts.py", *args, storage=storage, conf=conf).expect_success()
    [files] = kinds(paths.stream_url(storage, f"file:{location}"))
    assert files[HandleKind.SNAPSHOT] == 1, files
    assert files[HandleKind.CHANGELOG] < STARTS // 2, files
