"""Chains of changelogs stay short where epochs are, though Spark's maintenance never comes; and state comes back from them."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from spark_ckpt.model import HandleKind
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

EPOCHS = 80


def kinds(s3: Server, url: str) -> list[Counter[HandleKind]]:
    """Of the files of each store in the newest checkpoint, how many are of which kind."""
    with closing(open_storage(url, S3Options(s3.proxy.endpoint, "us-east-1", True))) as storage:
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
    found = kinds(s3, steady.stream("thin"))
    assert all(files[HandleKind.SNAPSHOT] == 1 for files in found), found
    assert all(files[HandleKind.CHANGELOG] < EPOCHS * 3 // 4 for files in found), found
    shutil.rmtree(steady.locations)
    steady.start(maintenance="10h")
    steady.until_epochs("thin", 3)
    steady.stop()
    steady.tell("end")
    steady.app.expect_success()
    assert len(steady.numbers("thin")) > 3 * EPOCHS
