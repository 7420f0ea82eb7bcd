"""A job of stock Spark is killed, its checkpointLocation imported, and the same job goes on with the plugin, under kills; compared with a
batch query."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.stock.layout import STOCK
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
    "format-2-without-changelogs": {_FORMAT: "2", _CHANGELOGS: "false"},
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
    "right",
    "full",
    "unique",
    "within",
    "pandas",
    "transform",
    "timers",
    "chained",
    "stateless",
)


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
    """Queries of one application that stock Spark has begun, in a folder `at` of their own."""

    def __init__(self, start: Start, events: Path, at: Path, names: Sequence[str]) -> None:
        self.names, self.at, self.storage, self.out = names, at, at / "storage", at / "out"
        self._start = start
        self._args = ("operators.py", "run", ",".join(names), str(events), str(at / "moved"), str(self.out))

    def stock(self, name: str) -> Path:
        return self.at / "stock" / name

    def location(self, name: str) -> Path:
        return self.at / "moved" / name

    def imports(self, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
        """Into the folders of the streams to come. Each query has a batch that was begun."""
        told = {}
        for name in self.names:
            begun = cut_short(self.stock(name))
            before = contents(self.stock(name))
            status, told[name] = call(capsys, "import", str(self.stock(name)), f"{self.storage}{self.location(name)}")
            assert status == 0, told[name]
            assert contents(self.stock(name)) == before
            assert (told[name]["reruns"], told[name]["epoch"]) == ([begun], begun - 1)
        return told

    def begin(self, told: Mapping[str, Mapping[str, Any]], **conf: str) -> Application:
        paths = {"spark.ckpt.restore.path": ",".join(str(one["savepoint"]) for one in told.values())} if told else {}
        return self._start(*self._args, storage=f"file://{self.storage}", conf={**paths, **conf})

    def checkpoints(self, name: str) -> int:
        return len(completed(self.storage, self.location(name)))

    def compare(self, oracle: Mapping[str, Path], told: Mapping[str, Mapping[str, Any]]) -> None:
        for name in self.names:
            assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
            assert differences(self.out / name, oracle[name]) == [], name
            numbers = {int(p.name) for p in (self.location(name) / "offsets").glob("[0-9]*")}
            assert max(numbers) > told[name]["epoch"], f"{name} did not go on"
            assert min(numbers) >= told[name]["epoch"] - 1, f"{name} began anew"


@pytest.mark.campaign
@pytest.mark.parametrize("how", HOW)
def test_every_operator_moves_in_and_is_killed_right_after(
    how: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stock(tmp_path / "at", events, NAMES, HOW[how])
    moving = MovingIn(start, events, tmp_path / "at", NAMES)
    told = moving.imports(capsys)
    app = moving.begin(told)
    app.until(lambda: all(moving.checkpoints(n) >= 2 for n in NAMES), "the import and a checkpoint behind it, of every query", 250)
    app.kill()
    # Neither the old location nor the savepoint is needed any more, nor the machine.
    for name in NAMES:
        for gone in (moving.stock(name), moving.location(name), Path(told[name]["savepoint"].removeprefix("file://"))):
            shutil.rmtree(gone)
    moving.begin({}).expect_success()
    moving.compare(oracle, told)


@pytest.mark.campaign
def test_a_location_is_imported_at_the_start_and_the_query_is_killed_before_it_has_a_checkpoint(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    run_stock(tmp_path / "at", events, ["transform"], HOW["format-1"])
    moving = MovingIn(start, events, tmp_path / "at", ["transform"])
    location = moving.stock("transform")
    batch = cut_short(location) - 1
    before = contents(location)
    path = {"spark.ckpt.restore.path": str(location)}
    app = moving.begin({}, **path)
    app.until(lambda: moving.checkpoints("transform") >= 1, "the import", 200)
    app.kill()
    moving.begin({}, **path).expect_success()
    assert contents(location) == before
    moving.compare(oracle, {"transform": {"epoch": batch}})


@pytest.mark.campaign
def test_state_of_the_hdfs_backed_provider_is_refused(events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provider = STOCK.decode().replace("RocksDB", "HDFSBacked")
    run_stock(tmp_path / "at", events, ["update"], {f"{_STATE}.providerClass": provider}, 2)
    status, told = call(capsys, "import", str(tmp_path / "at/stock/update"), str(tmp_path / "storage"))
    assert status == 1
    assert "HDFSBackedStateStoreProvider, and only that of Spark's RocksDB provider can be imported" in str(told)
    assert not (tmp_path / "storage").exists()
