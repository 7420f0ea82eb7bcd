"""A stream that moves to newer lines of Spark, one after the other, and what becomes of one that moves back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jvm_shim.sparks import PINNED
from tests.drivers.spark import lines
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(2400)]

QUERIES = "complete,update,windows,sliding,sessions,inner,outer,right,full,unique,within,pandas,transform,timers,chained,stateless"
EACH = 3
"""Files that come before each move: as many epochs."""


class Moving:
    """Every kind of query, on one line of Spark after the other."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.events, self.locations, self.out, self.storage = (folder / n for n in ("events", "locations", "out", "storage"))
        self.names = QUERIES.split(",")
        self._begin, self._files = start, 0

    def more(self, closing: bool = False) -> None:
        write_events(self.events, self._files, EACH, closing=closing)
        self._files += EACH

    def start(self, line: str) -> Application:
        job = ("operators.py", "run", QUERIES, str(self.events), str(self.locations), str(self.out))
        return self._begin(*job, storage=f"file://{self.storage}", **lines.on(line))

    def newest(self, name: str) -> int:
        return max((int(p.parent.name.removeprefix("chk-")) for p in completed(self.storage, self.locations / name)), default=-1)

    def survives(self, line: str) -> None:
        """The driver is killed on that line, and loses its disk; then the queries come to the end of what there is."""
        before = {name: self.newest(name) for name in self.names}
        app = self.start(line)
        app.until(lambda: all(self.newest(name) > before[name] for name in self.names), "another checkpoint of every query", 300)
        app.kill()
        shutil.rmtree(self.locations)
        self.start(line).expect_success(400)

    def differing(self, start: Start, oracle: Path) -> dict[str, list[str]]:
        start("operators.py", "batch", QUERIES, str(self.events), str(oracle), storage=None, plugin=False).expect_success()
        assert all(read(oracle / name) for name in self.names), "an oracle is empty: the comparison would show nothing"
        return {name: found for name in self.names if (found := differences(self.out / name, oracle / name))}


@pytest.fixture
def moving(start: Start, tmp_path: Path) -> Moving:
    if lines.missing():
        pytest.skip(f"the PySparks for {', '.join(lines.missing())} have not been fetched: make jars")
    return Moving(start, tmp_path)


def test_every_query_goes_on_on_each_newer_line(moving: Moving, start: Start, tmp_path: Path) -> None:
    for number, line in enumerate(PINNED):
        moving.more(closing=number == len(PINNED) - 1)
        moving.survives(line)
    assert moving.differing(start, tmp_path / "oracle") == {}


@pytest.mark.parametrize("back", list(PINNED)[:-1])
def test_going_back_from_the_newest_line(moving: Moving, start: Start, tmp_path: Path, back: str) -> None:
    newest = list(PINNED)[-1]
    moving.more()
    moving.start(newest).expect_success(400)
    moving.more(closing=True)
    moving.start(back).expect_success(400)
    assert moving.differing(start, tmp_path / "oracle") == {}
