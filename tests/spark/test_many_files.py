"""A source whose log is larger than any line of the pipe: killed, its folder deleted, started again from the storage, on real Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from tests.drivers.spark.harness import Application
from tests.drivers.spark.many_files import Places, batch, held, link_files, weights

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(900)]

FILES, MORE, EACH = 6200, 200, 3000
"""The second epoch's compaction holds 6,000 files, the fourth's all."""
DEEP = 14
"""Folders with names of 250 letters: each file takes 3.5 kB in the source's log, so that few of them make a large one."""


def test_a_source_log_larger_than_any_line_comes_back_from_the_storage(start: Callable[..., Application], tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path.joinpath("in", *(f"{n:02d}" + "d" * 248 for n in range(DEEP))))
    link_files(places.events, 0, FILES)
    with places.run(start, EACH, 2, "--die-in", "2") as app:
        assert app.wait(400) != 0
    assert (places.out / "batch-1.json").exists(), app.tail()
    shutil.rmtree(places.location)
    link_files(places.events, FILES, MORE)
    with places.run(start, EACH, 2) as app:
        app.expect_success(400)
    assert held(places) == batch(FILES + MORE)

    seen = weights(places)
    assert max(seen.objects) > 20_000_000, "larger than a string that Jackson takes"
    assert max(seen.plans) < 10_000
    assert max(seen.metadata) < 50_000
    assert max(seen.triggers) < 10_000
    assert seen.longest_line < 200_000
    assert run(["verify", places.stream, "--deep"]) == 0
