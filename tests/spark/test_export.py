"""A job with the plugin is killed, its checkpoint exported, and the same job goes on with stock Spark; compared with a batch query."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.conf.spark_settings import FORMAT_KEY
from spark_ckpt.paths import stream_url
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.command_line import call
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.s3_server import REGION, Server
from tests.drivers.spark.state_reads import READER, SparkReads, kept, rows
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GROUPS = (
    ("complete", "update", "windows", "sliding", "sessions"),
    ("inner", "outer", "right", "full", "unique", "within"),
    ("pandas", "transform", "timers"),
    ("chained", "stateless"),
)
SKIPS = {
    **dict.fromkeys(("windows", "outer"), "batch={}/_SUCCESS"),
    **dict.fromkeys(("sliding", "unique", "right", "stateless"), "_spark_metadata/{}"),
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

    def export(self, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, Any]]:
        told = {}
        for name in self.names:
            status, told[name] = call(capsys, "export", f"file://{self._storage}{self._locations}/{name}", str(self.stock / name), *options)
            assert status == 0, told[name]
        shutil.rmtree(self._locations)
        shutil.rmtree(self._storage)
        return told

    @property
    def skipping(self) -> list[str]:
        """Queries whose sink has the batch that would run again, and would not run it: stock Spark cannot go on from there."""
        return [n for n in self.names if n in SKIPS and (self.out / n / SKIPS[n].format(self._newest(n) + 1)).exists()]

    def go_on(self, conf: Mapping[str, str] | None = None) -> None:
        self.with_stock(conf).expect_success()

    def go_on_until_killed(self, conf: Mapping[str, str] | None = None) -> None:
        wanted = {name: max(committed(self.stock / name)) + 1 for name in self.names}
        app = self.with_stock(conf)
        app.until(lambda: all(max(committed(self.stock / n)) >= wanted[n] for n in self.names), "a batch of every query", 200)
        app.kill()

    def with_stock(self, conf: Mapping[str, str] | None = None) -> Application:
        return self._begin(self.names, self.stock, storage=None, plugin=False, conf=conf)

    def _begin(self, names: Sequence[str], locations: Path, **how: Any) -> Application:
        return self._start("operators.py", "run", ",".join(names), str(self._events), str(locations), str(self.out), **how)

    def has_planned(self, name: str) -> bool:
        """Whether an epoch past the newest checkpoint is in the log."""
        log = Path(stream_url(f"file://{self._storage}", f"file:{self._locations / name}").removeprefix("file://")) / "log"
        entries = [json.loads(path.read_text()) for path in log.glob("[0-9]*")]
        return any(entry["type"] == "plan" and entry["epoch"] > self._newest(name) for entry in entries)

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


CHANGELOGS = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


@pytest.mark.campaign
@pytest.mark.parametrize("conf", [{}, CHANGELOGS], ids=["snapshots", "changelogs"])
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_stock_spark_goes_on_after_a_kill(
    names: Sequence[str],
    conf: Mapping[str, str],
    start: Start,
    events: Path,
    oracle: Mapping[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And after one of its own: what it has written meanwhile goes together with what was exported."""
    leaving = Leaving(start, events, tmp_path, names)
    leaving.run_and_kill(names)
    while skipping := leaving.skipping:
        leaving.run_and_kill(skipping, 1)
    told = leaving.export(capsys)
    leaving.go_on_until_killed(conf)
    leaving.go_on(conf)
    shown(leaving, told, oracle)


@pytest.mark.campaign
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_stock_spark_goes_on_with_unique_ids(
    names: Sequence[str], start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoint format 2. It is not killed: with that format stock Spark does not start again once a sink has skipped a batch."""
    leaving = Leaving(start, events, tmp_path, names)
    leaving.run_and_kill(names)
    while skipping := leaving.skipping:
        leaving.run_and_kill(skipping, 1)
    told = leaving.export(capsys, "--checkpoint-format", "2")
    leaving.go_on({FORMAT_KEY: "2"})
    shown(leaving, told, oracle)


@pytest.mark.campaign
def test_a_sink_that_skips_the_planned_batch_ends_stock_spark(
    start: Start, events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its state was never made: an error, and no rows that lack what that batch had."""
    leaving = Leaving(start, events, tmp_path, ("unique",))
    leaving.run_and_kill(("unique",))
    while not leaving.has_planned("unique"):
        leaving.run_and_kill(("unique",), 1)
    told = leaving.export(capsys)["unique"]
    assert told["planned"]
    skipped = leaving.out / "unique" / "_spark_metadata" / str(told["next_epoch"])
    if not skipped.exists():
        skipped.write_text("v1\n")
    app = leaving.with_stock()
    assert app.wait() != 0
    said = app.log.read_text()
    print(app.tail())
    assert "CANNOT_LOAD_STATE_STORE" in said
    assert not (skipped.parent / str(told["next_epoch"] + 1)).exists()


@pytest.mark.campaign
def test_from_one_bucket_to_another_place_after_an_end(
    start: Start,
    s3: Server,
    oracle: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With an interval; nothing is planned past the last checkpoint. The folder is copied from the bucket to where the job has it."""
    names, events = ("unique", "outer", "transform", "timers"), tmp_path / "events"
    write_events(events, 0, FILES // 2)
    leaving = Leaving(start, events, tmp_path, names)
    location = tmp_path / "locations"
    arguments = ("operators.py", "run", ",".join(names), str(events), str(location), str(leaving.out))
    conf = {**s3.conf, "spark.ckpt.interval": "2s"}
    start(*arguments, storage=f"s3://{s3.bucket}/ckpt", conf=conf, env=s3.env).expect_success()
    shutil.rmtree(location)

    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    told = {}
    for name in names:
        target = f"s3://{s3.bucket}/stock/{name}"
        reached = ("--endpoint", s3.proxy.endpoint, "--region", REGION, "--path-style", "--location", str(leaving.stock / name))
        status, told[name] = call(capsys, "export", f"s3://{s3.bucket}/ckpt{location}/{name}", target, *reached)
        assert (status, told[name].get("planned")) == (0, False), told[name]
        with open_storage(target, S3Options(s3.proxy.endpoint, REGION, True)) as bucket:
            for found in bucket.list(""):
                (leaving.stock / name / found.key).parent.mkdir(parents=True, exist_ok=True)
                (leaving.stock / name / found.key).write_bytes(bucket.get(found.key))
    write_events(events, FILES // 2, FILES - FILES // 2, closing=True)
    leaving.go_on()
    shown(leaving, told, oracle)


KEPT = ("flat", "wide", "limit", "transform-avro", "ttl")
TIMED = {"ttl.0.count": ("value.1",), "ttl.0.best": ("list_element.1",), "ttl.0.parity": ("user_map_value.1",)}
"""When values expire: by the clock, and so not at the same time in two runs."""


@pytest.mark.campaign
def test_the_state_becomes_that_of_stock_spark_from_the_beginning(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time-outs, every type of value, a limit, Avro, times to live: what two runs have kept, row by row."""
    events, whole, locations, storage = (tmp_path / name for name in ("events", "whole", "locations", "storage"))
    write_events(whole, 0, 6)
    write_events(events, 0, 3)
    stock, always = tmp_path / "stock", tmp_path / "always"
    names = ",".join(KEPT)
    start("states.py", names, str(events), str(locations), storage=f"file://{storage}").expect_success()
    reads, stores = SparkReads(start, tmp_path), []
    for query in KEPT:
        url = f"file://{storage}{locations}/{query}"
        status, told = call(capsys, "export", url, str(stock / query))
        assert status == 0, told
        with open_storage(url) as stream:
            reader = StreamReader(stream)
            for one in kept(StateOfCheckpoint(stream, reader.read(reader.latest()))):
                if one.name != "timers":
                    stores.append(f"{query}.{one.operator.id}.{one.name}")
                    reads.want(stores[-1], stock / query, one)
                    reads.want(f"always.{stores[-1]}", always / query, one)
    shutil.rmtree(locations)
    shutil.rmtree(storage)

    write_events(events, 3, 3)
    start("states.py", names, str(events), str(stock), storage=None, plugin=False).expect_success()
    start("states.py", names, str(whole), str(always), storage=None, plugin=False, conf=READER).expect_success()
    assert all(len(committed(stock / query)) >= 3 for query in KEPT)
    read = reads.tables()
    assert [name for name in stores if read[name].num_rows == 0] == []
    assert [n for n in stores if rows(read[n], TIMED.get(n, ())) != rows(read[f"always.{n}"], TIMED.get(n, ()))] == []
