"""A stream that reads 300,000 small files: killed, its folder deleted, started again from the storage, equal; and what it stores and says
for each epoch does not grow with the number of files that it has seen."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from tests.drivers.spark.harness import Application
from tests.drivers.spark.many_files import Places, batch, held, link_files, weights

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(5400)]

FILES = int(os.environ.get("FILES") or 300_000)
EACH = 6_000
TOLERANCE = 1.5
"""A document holds up to two compact intervals of references, one more or less from epoch to epoch."""


def test_300000_files_killed_and_started_again(start: Callable[..., Application], tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "in")
    link_files(places.events, 0, FILES)
    dies_in = FILES // EACH * 9 // 10
    with places.run(start, EACH, 10, "--die-in", str(dies_in)) as app:
        assert app.wait(3600) != 0
    assert (places.out / f"batch-{dies_in - 1}.json").exists(), app.tail()
    shutil.rmtree(places.location)
    with places.run(start, EACH, 10) as app:
        app.expect_success(3600)
    assert held(places) == batch(FILES)
    assert run(["verify", places.stream]) == 0

    seen = weights(places)
    print(json.dumps(seen._asdict()))
    for sizes in (seen.plans, seen.triggers):
        # From the second compact file on, in which everything is a reference.
        tail = sizes[20:]
        half = len(tail) // 2
        assert statistics.median(tail[half:]) < TOLERANCE * statistics.median(tail[:half])
        assert max(tail) < TOLERANCE * max(sizes[:20])
    assert max(seen.metadata) < 100_000
    assert seen.longest_line < 1_000_000
