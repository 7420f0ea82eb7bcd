"""Whatever goes wrong in what shows checkpoints, the query does not notice: not a row, not a checkpoint."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_ckpt.process.jar import jar_path
from tests.drivers.spark.harness import Application
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.sightings import lines
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]

UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


def without(left_out: str, folder: Path) -> Path:
    """The JAR without one of its classes: whoever needs it meets an Error, over which Spark would stop the application."""
    broken = folder / "broken.jar"
    with zipfile.ZipFile(jar_path()) as whole, zipfile.ZipFile(broken, "w") as out:
        names = [name for name in whole.namelist() if name != f"org/apache/spark/ckpt/{left_out}.class"]
        assert len(names) == len(whole.namelist()) - 1
        for name in names:
            out.writestr(name, whole.read(name))
    return broken


@pytest.mark.parametrize(
    ("left_out", "where"),
    [
        ("ui/CheckpointsTab", "when the application starts"),
        ("ui/PackedRows", "at every completed checkpoint, in the tab's listener"),
        ("CheckpointEvents$", "at every message of the coordinator"),
    ],
)
def test_an_error_in_the_tab_stops_no_query(
    left_out: str, where: str, start: Callable[..., Application], events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    storage, locations, out = tmp_path / "storage", tmp_path / "locations", tmp_path / "out"
    job = ("operators.py", "run", "windows", str(events), str(locations), str(out))
    app = start(*job, storage=f"file://{storage}", conf={**UI, "spark.ckpt.retained": "50"}, jar=without(left_out, tmp_path))
    app.expect_success()
    said = app.log.read_text()
    assert "NoClassDefFoundError" in said, f"nothing went wrong {where}: the test has lost its point"
    assert "could not be shown; nothing but that is concerned" in said
    assert read(oracle["windows"])
    assert differences(out / "windows", oracle["windows"]) == []
    epochs = len(list((locations / "windows" / "commits").glob("[0-9]*")))
    assert len(completed(storage, locations / "windows")) == epochs


def test_listeners_that_hang_and_fail_and_unreadable_events_hold_up_nothing(
    start: Callable[..., Application], events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = ("faults.py", str(events), str(tmp_path / "location"), str(out))
    app = start(*job, storage=f"file://{tmp_path}/storage", conf=UI)
    app.expect_success()
    said = app.log.read_text()
    assert lines(app, "ENDED") == ["while a listener hangs: True"]
    assert "a listener that fails at every event" in said
    assert "a checkpoint event could not be shown; nothing but that is concerned" in said
    assert said.count(" completed: acks ") == len(list((tmp_path / "location" / "commits").glob("[0-9]*")))
    assert [line.split(" ")[-1] for line in lines(app, "PAGE")] == ["200", "200", "200", "200", "400"]
    assert differences(out / "windows", oracle["windows"]) == []
