"""What queries that have ended leave in the spool of executors which live on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.sightings import lines

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("queries", "locations"), [(5, 3), (100, 60)])
def test_queries_that_end_leave_no_folder_in_the_spool(
    start: Callable[..., Application], tmp_path: Path, queries: int, locations: int
) -> None:
    spool, events = tmp_path / "spool", tmp_path / "events"
    write_events(events, 0, 2, closing=True)
    conf = {"spark.ckpt.spool.dir": str(spool), "spark.sql.streaming.stateStore.maintenanceInterval": "1s"}
    args = ("many.py", str(events), str(tmp_path / "ckpt"), str(queries), str(locations), str(tmp_path))
    app = start(*args, storage=f"file://{tmp_path}/storage", conf=conf)

    def runs() -> list[Path]:
        return list(spool.glob("spark-ckpt-*/*/run-*"))

    app.until(lambda: bool(runs()), "a run's folder")
    app.until(lambda: str(queries - 1) in lines(app, "ENDED"), "the last query's end", 600)
    app.until(lambda: not runs(), "the end of their folders", 60)
    streams = [p for p in spool.glob("spark-ckpt-*/*") if p.is_dir() and not list(p.glob("*"))]
    assert streams == [], "empty folders of streams"
    (tmp_path / "end").touch()
    app.expect_success()
    assert "ERROR" not in app.log.read_text()
