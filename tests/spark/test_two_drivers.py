"""Two real drivers on one stream: the older one is fenced, and the sinks have each row once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
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
        pytest.param("one machine", "1s", marks=pytest.mark.campaign),
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


class Held:
    """Drivers of one job that waits in its sink as long as a file is there (jobs/held.py)."""

    def __init__(self, start: Start, tmp_path: Path, interval: str) -> None:
        self.tmp, self.source, self.out = tmp_path, tmp_path / "in", tmp_path / "out"
        self._begin, self._conf = start, {"spark.ckpt.interval": interval}
        write_events(self.source, 0, 4)

    def start(self, name: str) -> tuple[Application, Path]:
        """And the file."""
        (self.tmp / name).mkdir()
        hold = self.tmp / name / "hold"
        hold.touch()
        args = (str(self.source), str(self.tmp / "location"), str(self.out), str(self.tmp / name))
        return self._begin("held.py", *args, storage=f"file://{self.tmp}/storage", conf=self._conf), hold

    def compare(self) -> None:
        ids = sorted(n for path in self.out.glob("[0-9]*.json") for n in json.loads(path.read_text()))
        assert ids == sorted({json.loads(line)["id"] for path in self.source.iterdir() for line in path.read_text().splitlines()})


def in_sink(app: Application) -> None:
    app.until(lambda: lines(app, "WRITTEN") == ["0"], "its first epoch in the sink")


@pytest.mark.campaign
@pytest.mark.parametrize("interval", ["0", "1h"])
def test_an_older_driver_that_is_busy_does_not_write_into_the_folder_of_the_newer_one(interval: str, start: Start, tmp_path: Path) -> None:
    drivers = Held(start, tmp_path, interval)
    older, let_older_go = drivers.start("older")
    in_sink(older)
    newer, let_newer_go = drivers.start("newer")
    in_sink(newer)
    let_older_go.unlink()
    assert older.wait() != 0
    assert "took over the stream" in older.log.read_text(), older.tail()
    assert "Concurrent update to the log" not in older.log.read_text()
    let_newer_go.unlink()
    newer.expect_success()
    drivers.compare()


@pytest.mark.campaign
@pytest.mark.parametrize("interval", ["0", "1h"])
def test_an_older_driver_that_sleeps_between_its_claim_and_its_mark_does_not_take_the_folder_from_the_newer_one(
    interval: str, start: Start, tmp_path: Path
) -> None:
    drivers = Held(start, tmp_path, interval)
    older, _ = drivers.start("older")
    log, mark = Path(f"{tmp_path}/storage{tmp_path}/location/log"), tmp_path / "location" / ".spark-ckpt-run"
    deadline = time.monotonic() + 120
    while not log.is_dir() or not any(entry.name.isdigit() for entry in log.iterdir()):
        assert time.monotonic() < deadline, older.tail()
        assert older.running, older.tail()
        time.sleep(0.0002)
    os.kill(older.pid, signal.SIGSTOP)
    time.sleep(1)
    assert not mark.exists(), "it was not stopped in time: the test has lost its point"
    newer, let_newer_go = drivers.start("newer")
    in_sink(newer)
    os.kill(older.pid, signal.SIGCONT)
    assert older.wait() != 0
    assert "took over the stream" in older.log.read_text(), older.tail()
    let_newer_go.unlink()
    newer.expect_success()
    drivers.compare()
