"""A job with the plugin is killed, its checkpoint exported, and the same job goes on with stock Spark; compared with a batch query."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.command_line import call
from tests.drivers.spark.harness import Start
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GROUPS = (
    ("complete", "update", "windows", "sliding", "sessions"),
    ("inner", "outer", "unique", "within"),
    ("pandas", "transform", "timers"),
    ("chained", "stateless"),
)
SKIPS = {
    **dict.fromkeys(("windows", "outer"), "batch={}/_SUCCESS"),
    **dict.fromkeys(("sliding", "unique", "stateless"), "_spark_metadata/{}"),
}
"""Where those sinks note a batch which look at nothing of a batch that they have."""


class Leaving:
    """Queries that leave: with the plugin, then with stock Spark from what was exported."""

    def __init__(self, start: Start, events: Path, tmp_path: Path, names: Sequence[str]) -> None:
        self.names, self.out, self.stock = names, tmp_path / "out", tmp_path / "stock"
        self._start, self._events = start, events
        self._storage, self._locations = tmp_path / "storage", tmp_path / "locations"

    def run_and_kill(self, names: Sequence[str], checkpoints: int = 2) -> None:
        wanted = {name: self._newest(name) + checkpoints for name in names}
        app = self._begin(names, self._locations, storage=f"file://{self._storage}")
        app.until(lambda: all(self._newest(n) >= wanted[n] for n in names), "checkpoints of every query", 200)
        app.kill()

    def export(self, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
        told = {}
        for name in self.names:
            status, told[name] = call(capsys, "export", f"file://{self._storage}{self._locations}/{name}", str(self.stock / name))
            assert status == 0, told[name]
        shutil.rmtree(self._locations)
        shutil.rmtree(self._storage)
        return told

    @property
    def skipping(self) -> list[str]:
        """Queries whose sink has the batch that would run again, and would not run it: stock Spark cannot go on from there."""
        return [n for n in self.names if n in SKIPS and (self.out / n / SKIPS[n].format(self._newest(n) + 1)).exists()]

    def go_on(self, **conf: str) -> None:
        self._begin(self.names, self.stock, storage=None, plugin=False, conf=conf).expect_success()

    def _begin(self, names: Sequence[str], locations: Path, **how: Any) -> Any:
        return self._start("operators.py", "run", ",".join(names), str(self._events), str(locations), str(self.out), **how)

    def _newest(self, name: str) -> int:
        found = completed(self._storage, self._locations / name)
        return max((int(p.parent.name.removeprefix("chk-")) for p in found), default=-1)


def committed(location: Path) -> set[int]:
    return {int(p.name) for p in (location / "commits").glob("[0-9]*")}


def shown(leaving: Leaving, told: Mapping[str, Mapping[str, Any]], oracle: Mapping[str, Path]) -> None:
    for name in leaving.names:
        assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
        assert differences(leaving.out / name, oracle[name]) == [], name
        epoch = told[name]["epoch"]
        assert committed(leaving.stock / name) >= {epoch, epoch + 1}, f"{name} did not go on with stock Spark"


@pytest.mark.campaign
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_stock_spark_goes_on_after_a_kill(
    names: Sequence[str], start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = Leaving(start, events, tmp_path, names)
    leaving.run_and_kill(names)
    while skipping := leaving.skipping:
        leaving.run_and_kill(skipping, 1)
    told = leaving.export(capsys)
    leaving.go_on()
    shown(leaving, told, oracle)
