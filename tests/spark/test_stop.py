"""A running query is asked for a savepoint and its end, from another process, as a person would."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_ckpt import paths
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import FILES, write_events, write_file
from tests.drivers.spark.oracle import differences, read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

GATES: dict[str, dict[str, str]] = {"every epoch": {}, "interval": {"spark.ckpt.interval": "1h"}}


class Running:
    """jobs/endless.py over a folder of events, and what a person asks of it."""

    def __init__(self, start: Start, source: Path, tmp_path: Path, conf: Mapping[str, str]) -> None:
        self.storage, self.location, self.out = f"file://{tmp_path}/storage", tmp_path / "location", tmp_path / "out"
        self._begin, self._source, self._conf = start, source, conf

    def start(self, *how: str) -> Application:
        job = (str(self._source), str(self.location), str(self.out), *how)
        return self._begin("endless.py", *job, storage=self.storage, conf=self._conf)

    @property
    def stream(self) -> str:
        return paths.stream_url(self.storage, f"file:{self.location}")

    def completed(self) -> int:
        """The newest checkpoint's epoch."""
        found = Path(self.stream.removeprefix("file://")).glob("run-*/chk-*/_metadata")
        return max((int(path.parent.name.removeprefix("chk-")) for path in found), default=-1)

    def committed(self) -> int:
        return max((int(p.name) for p in (self.location / "commits").glob("[0-9]*")), default=-1)

    def ask(self, *options: str) -> subprocess.CompletedProcess[str]:
        """For a savepoint."""
        command = [str(Path(sys.executable).parent / "spark-ckpt"), "savepoint", self.stream, "--json", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def stop(self, *options: str) -> Path:
        """The savepoint's folder."""
        done = self.ask("--stop", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return Path(json.loads(done.stdout)["savepoint"].removeprefix("file://"))


@pytest.mark.campaign
@pytest.mark.parametrize("gate", ["every epoch", "interval"])
def test_a_query_stops_with_a_savepoint_goes_on_later_and_closes_its_windows_when_it_is_drained(
    gate: str, start: Start, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    source = tmp_path / "input" / "events"
    write_events(source, 0, FILES // 2)
    running = Running(start, source, tmp_path, GATES[gate])
    app = running.start()
    app.until(lambda: running.committed() >= FILES // 2 - 1, "the first half")
    savepoint = running.stop()
    app.expect_success(60)
    assert (savepoint / "_metadata").exists()

    first = running.committed()
    write_events(source, FILES // 2, FILES - FILES // 2)
    app = running.start()
    app.until(lambda: running.committed() >= first + FILES - FILES // 2, "the second half")
    assert differences(running.out / "windows", oracle["windows"]), "all windows are closed already: the test has lost its point"
    savepoint = running.stop("--drain")
    app.expect_success(60)
    assert (savepoint / "_metadata").exists()
    assert read(oracle["windows"])
    assert differences(running.out / "windows", oracle["windows"]) == []


@pytest.mark.campaign
@pytest.mark.parametrize("gate", ["every epoch", "interval"])
def test_a_query_that_was_drained_and_not_stopped_reads_nothing_that_would_be_dropped(gate: str, start: Start, tmp_path: Path) -> None:
    """(1) A drain runs; (2) its savepoint cannot be made, and the query ends; (3) rows come; (4) the query is started again, also with
    availableNow: it ends then, but not before the drain is in a checkpoint.

    An event far beyond its time moves the watermark to exactly the place where a drain puts it, and is no drain.
    """
    source = tmp_path / "input" / "events"
    write_events(source, 0, 1)
    event = {"id": 0, "key": "far", "ts": "+10000-01-01T00:09:59.999Z", "value": 0}
    write_file(source, 1, [event])
    running = Running(start, source, tmp_path, GATES[gate])
    app = running.start()
    app.until(lambda: running.committed() >= 2, "the first epochs, and one without rows")
    assert running.ask("--name", "taken").returncode == 0
    write_events(source, 2, 1)
    app.until(lambda: running.committed() >= 3, "another epoch")
    assert running.ask("--stop", "--drain", "--name", "taken").returncode == 1
    assert app.wait(60) != 0
    assert "the query has been drained and cannot go on" in app.log.read_text()
    drained = running.committed()

    write_events(source, 3, 2)
    completes = running.completed() < drained
    app = running.start("available")
    if completes:
        app.expect_success(120)
    else:
        assert app.wait(120) != 0
        assert "start it with a processingTime trigger and ask for its stop once more" in app.log.read_text()
    assert running.completed() == running.committed() == drained
    app = running.start("processed")
    app.until(lambda: "the query was drained: its watermark is at the end of time" in app.log.read_text(), "a word of it")
    app.until(lambda: "all is processed" in app.log.read_text(), "the end of processAllAvailable")
    time.sleep(3)
    assert running.committed() == drained, "rows were read, and dropped"
    assert app.log.read_text().count("Current batch is falling behind") < 20, "it waits longer than its trigger does"
    stopped = decode_metadata((running.stop() / "_metadata").read_bytes())
    app.expect_success(60)
    assert stopped.id.epoch == drained
