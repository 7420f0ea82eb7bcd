"""Two real drivers on one stream: the older one is fenced, and the sinks have each row once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.sightings import lines
from tests.drivers.spark.trials import completed

ROOT = Path(__file__).parents[2]
JOB = ROOT / "campaign" / "job.py"
STREAMS = {"windows": "skips", "unique": "file"}
FIRST_FILES = 6

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Pair:
    """Drivers of the same job; each has a folder, which `location` may depend on, and tells in a file of its own how far it is."""

    def __init__(self, start: Start, tmp_path: Path, location: str, interval: str) -> None:
        self.tmp, self.source, self.out, self.storage = tmp_path, tmp_path / "in", tmp_path / "out", tmp_path / "storage"
        self.location, self.end = location, tmp_path / "end"
        self._begin, self._conf = start, {"spark.ckpt.interval": interval}

    def start(self, name: str) -> Application:
        folder = self.tmp / name
        folder.mkdir()
        streams = [{"name": stream, "operator": stream, "sink": sink} for stream, sink in STREAMS.items()]
        paths = {"source": self.source, "out": self.out, "progress": folder / "progress", "end": self.end}
        spec = {"streams": streams, "locations": self.location, **{what: str(path) for what, path in paths.items()}}
        (folder / "spec").write_text(json.dumps(spec))
        env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'spark' / 'jobs'}"}
        return self._begin(str(JOB), str(folder / "spec"), storage=f"file://{self.storage}", conf=self._conf, env=env, cwd=folder)

    def reached(self, name: str, files: int) -> bool:
        """Every stream has taken so many."""
        progress = self.tmp / name / "progress"
        told = json.loads(progress.read_text()) if progress.exists() else {}
        return all(told.get(stream, {}).get("files", 0) >= files for stream in STREAMS)

    def runs(self, stream: str) -> set[str]:
        return {path.parts[-3] for path in completed(self.storage, Path(self.location) / stream)}


@pytest.mark.parametrize(
    ("machines", "interval"),
    [
        ("two machines", "0"),
        ("one machine", "1s"),
        pytest.param("one machine", "0", marks=pytest.mark.campaign),
        pytest.param("two machines", "1s", marks=pytest.mark.campaign),
    ],
)
def test_the_older_of_two_drivers_is_fenced(
    machines: str, interval: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    # The same path on two machines is two folders: each driver has another working folder.
    location = "/proc/self/cwd/locations" if machines == "two machines" else str(tmp_path / "locations")
    pair = Pair(start, tmp_path, location, interval)
    files = sorted(events.iterdir())
    pair.source.mkdir()
    for file in files[:FIRST_FILES]:
        shutil.copy2(file, pair.source / file.name)
    older = pair.start("older")
    older.until(lambda: pair.reached("older", FIRST_FILES), "all of what there is")
    newer = pair.start("newer")
    newer.until(lambda: not older.running, "the older driver's end")
    assert older.wait() != 0
    assert "took over the stream" in older.log.read_text(), older.tail()
    for file in files[FIRST_FILES:]:
        shutil.copy2(file, pair.source / f".{file.name}")
        (pair.source / f".{file.name}").rename(pair.source / file.name)
    pair.end.touch()
    newer.expect_success()
    for stream in STREAMS:
        assert read(oracle[stream]), f"the oracle of {stream} is empty: the comparison would show nothing"
        assert differences(pair.out / stream, oracle[stream]) == [], stream
        assert max(pair.runs(stream)) > "run-00000001", f"{stream} was to go on in a second run"


@pytest.mark.parametrize("interval", ["0", "1h"])
def test_an_older_driver_that_is_busy_does_not_write_into_the_folder_of_the_newer_one(interval: str, start: Start, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    write_events(source, 0, 4)

    def held(name: str) -> tuple[Application, Path]:
        """In the sink of its first epoch."""
        (tmp_path / name).mkdir()
        hold = tmp_path / name / "hold"
        hold.touch()
        args = (str(source), str(tmp_path / "location"), str(out), str(tmp_path / name))
        app = start("held.py", *args, storage=f"file://{tmp_path}/storage", conf={"spark.ckpt.interval": interval})
        app.until(lambda: lines(app, "WRITTEN") == ["0"], "its first epoch in the sink")
        return app, hold

    older, let_older_go = held("older")
    newer, let_newer_go = held("newer")
    let_older_go.unlink()
    assert older.wait() != 0
    assert "took over the stream" in older.log.read_text(), older.tail()
    assert "Concurrent update to the log" not in older.log.read_text()
    let_newer_go.unlink()
    newer.expect_success()
    ids = sorted(n for path in out.glob("[0-9]*.json") for n in json.loads(path.read_text()))
    assert ids == sorted({json.loads(line)["id"] for path in source.iterdir() for line in path.read_text().splitlines()})
