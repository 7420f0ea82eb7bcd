"""Epochs that take longer than a checkpoint may: every one is durable soon after it has ended, and a restart goes on from there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

SINK_S = 4
CONF = {"spark.ckpt.interval": "500ms", "spark.ckpt.timeout": "2s"}


def test_a_sink_that_takes_longer_than_the_time_out_fails_no_checkpoint(start: Callable[..., Application], tmp_path: Path) -> None:
    location, out, storage = tmp_path / "location", tmp_path / "out", tmp_path / "storage"

    def begin() -> Application:
        return start("slow_sink.py", str(location), str(out), str(SINK_S), storage=f"file://{storage}", conf=CONF)

    def durable(run: int) -> int:
        found = storage.glob(f"**/run-{run:08d}/chk-*/_metadata")
        return max((int(p.parent.name.removeprefix("chk-")) for p in found), default=-1)

    app = begin()
    app.until(lambda: durable(1) >= 0, "the checkpoint of epoch 0, which was none when it ran")
    assert not (location / "commits" / "1").exists(), "it was to be stored while the long epoch after it runs"
    app.until(lambda: durable(1) >= 2, "more checkpoints")
    app.kill()
    reached = durable(1)
    shutil.rmtree(location)
    app = begin()
    app.until(lambda: durable(2) >= reached + 2, "checkpoints past the restart")
    app.kill()
    assert "was aborted" not in app.log.read_text()
    assert min(int(p.name) for p in (location / "commits").glob("[0-9]*")) >= reached - 1, "epochs that were durable ran again"
    numbers = [n for path in out.glob("[0-9]*.json") for n in json.loads(path.read_text())]
    assert sorted(numbers) == list(range(len(numbers)))
