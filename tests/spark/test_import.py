"""A job of stock Spark is killed, its checkpointLocation imported, and the same job goes on with the plugin, under kills; compared with a
batch query."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.spark.stock import STOCK

from tests.drivers.command_line import call
from tests.drivers.spark.harness import Application, Start, submit
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_STATE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{_STATE}.providerClass": STOCK.decode(),
    f"{_STATE}.minDeltasForSnapshot": "2",
    f"{_STATE}.maintenanceInterval": "500ms",
}
"""With full snapshots, and changelogs behind them."""
_CHANGELOGS, _FORMAT = f"{_STATE}.rocksdb.changelogCheckpointing.enabled", f"{_STATE}.checkpointFormatVersion"
HOW = {
    "format-1": {_FORMAT: "1", _CHANGELOGS: "true"},
    "format-1-without-changelogs": {_FORMAT: "1", _CHANGELOGS: "false"},
    "format-1-zstd": {_FORMAT: "1", _CHANGELOGS: "true", f"{_STATE}.compression.codec": "zstd"},
    "format-1-snappy": {_FORMAT: "1", _CHANGELOGS: "true", f"{_STATE}.compression.codec": "snappy"},
    "format-2": {_FORMAT: "2", _CHANGELOGS: "true"},
    "format-2-zstd": {_FORMAT: "2", _CHANGELOGS: "true", f"{_STATE}.compression.codec": "zstd"},
}
NAMES = (
    "complete",
    "update",
    "windows",
    "sliding",
    "sessions",
    "inner",
    "outer",
    "unique",
    "within",
    "pandas",
    "transform",
    "timers",
    "chained",
    "stateless",
)
GROUPS = (NAMES[:7], NAMES[7:])
Stocks = Callable[[str, str], Path]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def newest(location: Path, log: str) -> int:
    return max((int(p.name) for p in (location / log).glob("[0-9]*")), default=-1)


def run_stock(at: Path, events: Path, names: Sequence[str], conf: Mapping[str, str], batches: int = 3) -> None:
    """Until all queries have committed so many batches; then killed."""
    at.mkdir(parents=True)
    args = ("run", ",".join(names), str(events), str(at / "stock"), str(at / "out"))
    app = submit("operators.py", args, log=at / "stock.log", storage=None, plugin=False, conf={**ROCKSDB, **conf})
    with app:
        app.until(lambda: all(newest(at / "stock" / n, "commits") >= batches - 1 for n in names), "batches of every query", 250)


def cut_short(location: Path) -> int:
    """As if stock Spark had died after the newest batch's sink, and before its commit: that batch is to run again. Returns its number."""
    batch = newest(location, "commits")
    if newest(location, "offsets") == batch:
        (location / "commits" / str(batch)).unlink()
        (location / "commits" / f".{batch}.crc").unlink(missing_ok=True)
    return newest(location, "offsets")


class MovingIn:
    """One query that stock Spark has begun, in a folder `at` of its own."""

    def __init__(self, start: Start, events: Path, at: Path, name: str) -> None:
        self.name, self.storage, self.out = name, at / "storage", at / "out"
        self.stock, self.location = at / "stock" / name, at / "moved" / name
        self._start = start
        self._args = ("operators.py", "run", name, str(events), str(at / "moved"), str(self.out))

    def imports(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        before = contents(self.stock)
        status, told = call(capsys, "import", str(self.stock), str(self.storage))
        assert status == 0, told
        assert contents(self.stock) == before
        return dict(told)

    def begin(self, **conf: str) -> Application:
        return self._start(*self._args, storage=f"file://{self.storage}", conf=conf)

    def checkpoints(self) -> int:
        return len(completed(self.storage, self.location))

    def compare(self, oracle: Mapping[str, Path], told: Mapping[str, Any]) -> None:
        assert read(oracle[self.name]), f"the oracle of {self.name} is empty: the comparison would show nothing"
        assert differences(self.out / self.name, oracle[self.name]) == [], self.name
        first = {p.name for p in completed(self.storage, self.location)[0].parent.parent.glob("chk-*")}
        assert first, "no run went on from the import"
        numbers = sorted(int(p.name) for p in (self.location / "offsets").glob("[0-9]*"))
        assert numbers[-1] > told["epoch"], f"{self.name} did not go on"


@pytest.fixture(scope="module")
def stocks(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Stocks:
    """What a group of queries has left with stock Spark, run once for all of them: a function of how, and of the query's name."""
    made: dict[tuple[str, Sequence[str]], Path] = {}

    def stock(how: str, name: str) -> Path:
        group = next(group for group in GROUPS if name in group)
        if (how, group) not in made:
            at = made[how, group] = tmp_path_factory.mktemp(how) / "run"
            run_stock(at, events, group, HOW[how])
        return made[how, group]

    return stock


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", HOW)
def test_every_operator_moves_in_and_is_killed_right_after(
    how: str,
    name: str,
    start: Start,
    events: Path,
    stocks: Stocks,
    oracle: Mapping[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    moving = MovingIn(start, events, stocks(how, name), name)
    begun = cut_short(moving.stock)
    told = moving.imports(capsys)
    assert (told["reruns"], told["epoch"]) == ([begun], begun - 1)
    app = moving.begin(**{"spark.ckpt.restore.path": told["savepoint"]})
    app.until(lambda: moving.checkpoints() >= 2, "the import and a checkpoint behind it", 200)
    app.kill()
    # Neither the old location nor the savepoint is needed any more, nor the machine.
    for gone in (moving.stock, moving.location, Path(told["savepoint"].removeprefix("file://"))):
        shutil.rmtree(gone)
    moving.begin().expect_success()
    moving.compare(oracle, told)


def test_a_query_moves_in(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stock(tmp_path / "at", events, ["windows"], HOW["format-1"])
    moving = MovingIn(start, events, tmp_path / "at", "windows")
    begun = cut_short(moving.stock)
    told = moving.imports(capsys)
    assert told["reruns"] == [begun]
    moving.begin(**{"spark.ckpt.restore.path": told["savepoint"]}).expect_success()
    moving.compare(oracle, told)


@pytest.mark.campaign
def test_state_of_the_hdfs_backed_provider_is_refused(events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provider = STOCK.decode().replace("RocksDB", "HDFSBacked")
    run_stock(tmp_path / "at", events, ["update"], {f"{_STATE}.providerClass": provider}, 2)
    status, told = call(capsys, "import", str(tmp_path / "at/stock/update"), str(tmp_path / "storage"))
    assert status == 1
    assert "HDFSBackedStateStoreProvider, and only that of Spark's RocksDB provider can be imported" in str(told)
    assert not (tmp_path / "storage").exists()
