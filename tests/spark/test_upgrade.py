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
NEWEST = list(PINNED)[-1]
EACH = 3
"""Files that come before each move: as many epochs."""


TRANSFORMS = ("transform", "timers")
READ_NEWER = {"4.0": False, "4.1": False, "4.2": True}
"""Whether a line reads what transformWithState has written on the newest one. In 4.1.4 the state's server of such a query ends without a
word; in 4.0.5 the query hangs."""


class Moving:
    """Every kind of query, on one line of Spark after the other."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.events, self.locations, self.out, self.storage = (folder / n for n in ("events", "locations", "out", "storage"))
        self.names = QUERIES.split(",")
        """They may become fewer before it starts."""
        self._begin, self._files = start, 0

    def more(self, closing: bool = False) -> None:
        write_events(self.events, self._files, EACH, closing=closing)
        self._files += EACH

    def start(self, line: str) -> Application:
        job = ("operators.py", "run", ",".join(self.names), str(self.events), str(self.locations), str(self.out))
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
        start("operators.py", "batch", ",".join(self.names), str(self.events), str(oracle), storage=None, plugin=False).expect_success()
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
    if not READ_NEWER[back]:
        moving.names = [name for name in moving.names if name not in TRANSFORMS]
    moving.more()
    moving.start(NEWEST).expect_success(400)
    moving.more(closing=True)
    app = moving.start(back)
    app.expect_success(400)
    assert f"and this is Spark {PINNED[back][0]}: Spark promises nothing" in app.log.read_text()
    assert moving.differing(start, tmp_path / "oracle") == {}


@pytest.mark.parametrize("back", [line for line, reads in READ_NEWER.items() if not reads])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_going_back_with_state_that_the_older_line_does_not_read_is_refused(moving: Moving, name: str, back: str) -> None:
    """And nothing has happened: the newest line goes on."""
    moving.names = [name]
    moving.more()
    moving.start(NEWEST).expect_success(200)
    at = moving.newest(name)
    moving.more(closing=True)
    app = moving.start(back)
    assert app.wait(120) != 0
    assert f"and this is Spark {PINNED[back][0]}, which does not read the state of Python's transformWithState" in app.log.read_text()
    assert moving.newest(name) == at
    moving.start(NEWEST).expect_success(200)
    assert moving.newest(name) > at
