"""A stream that an earlier version stored goes on with today's, on real Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application
from tests.stored.earlier import EVENTS, place, place_events, totals

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(params=["1", pytest.param("2", marks=pytest.mark.campaign)])
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """Its input is where the stream's source has found it; nobody else may have that folder meanwhile."""
    EVENTS.parent.mkdir()
    try:
        place_events()
        yield str(request.param)
    finally:
        shutil.rmtree(EVENTS.parent)


def test_it_goes_on_where_it_was(version: str, start: Callable[..., Application], tmp_path: Path) -> None:
    location, out, storage = tmp_path / "location", tmp_path / "out", tmp_path / "storage"
    place(version, Path(f"{storage}{location}"))
    conf = {"spark.sql.shuffle.partitions": "2"}
    with start("file_totals.py", str(EVENTS), str(location), str(out), storage=f"file://{storage}", conf=conf) as app:
        app.expect_success()
    held: dict[str, tuple[int, int]] = {}
    for epoch in (6, 7):
        for row in map(json.loads, (out / f"batch-{epoch}.json").read_text().splitlines()):
            held[row["key"]] = (row["n"], row["total"])
    assert sorted(path.name for path in out.iterdir()) == ["batch-6.json", "batch-7.json"]
    expected = totals(8)
    assert held
    assert held == {key: expected[key] for key in held}
