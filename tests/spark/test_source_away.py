"""A source that is away for a moment while a query begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.storage import open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.spark.harness import Start
from tests.drivers.spark.scala_jobs import compiled

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]


def test_a_query_whose_source_could_not_be_made_does_not_run_without_its_barriers(start: Start, events: Path, tmp_path: Path) -> None:
    """Spark would make the plan once more, and succeed."""
    jar = compiled("AwayOnce.scala", tmp_path / "scala")
    location, storage = tmp_path / "location", f"file://{tmp_path}/storage"

    def live() -> int:
        started = start("away_once.py", str(events), str(location), str(tmp_path / "been"), storage=storage, jars=[jar])
        status = started.wait()
        assert ("the catalog is away for a moment" in started.log.read_text()) == (status != 0)
        return status

    assert live() != 0
    assert live() == 0
    with open_storage(f"{storage}{location}") as stream:
        assert StreamReader(stream).checkpoints() != []
