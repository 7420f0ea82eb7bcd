"""What is shown first on a line of Spark: a small aggregation whose driver is killed and loses its disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Start
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.totals import last_totals, totals_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.campaign
def test_a_driver_killed_twice_without_its_disk(start: Start, tmp_path: Path) -> None:
    events, location, out = tmp_path / "events", tmp_path / "location", tmp_path / "out"
    write_events(events, 0, FILES)
    job = ("file_totals.py", str(events), str(location), str(out))
    for dies_in in (2, 5):
        with start(*job, "--die-in", str(dies_in), storage=str(tmp_path / "storage")) as app:
            assert app.wait() != 0
        assert not (out / f"batch-{dies_in}.json").exists(), "it was to die in that epoch"
        shutil.rmtree(location)
    with start(*job, storage=str(tmp_path / "storage")) as app:
        app.expect_success()
    assert sorted(path.name for path in out.glob("batch-*")) == [f"batch-{epoch}.json" for epoch in range(FILES)]
    assert last_totals(out) == totals_of(events)
    claims = list(tmp_path.glob("storage/**/run-*"))
    assert len({path.name for path in claims}) == 3, json.dumps([str(path) for path in claims])
