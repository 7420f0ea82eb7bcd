"""Savepoints of a real query, and every way back from one: into a new place, to an older checkpoint, and where it must be refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from spark_ckpt.cli.main import run as cli
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import read
from tests.drivers.spark.s3_server import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FILES = 8
Settings = Mapping[str, str] | None
UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


class Places(NamedTuple):
    tmp: Path

    @property
    def events(self) -> Path:
        return self.tmp / "events"

    @property
    def storage(self) -> Path:
        return self.tmp / "storage"

    @property
    def stream(self) -> Path:
        return Path(f"{self.storage}{self.tmp}/location")

    def run(self, start: Start, step: str, location: str, out: str, more: Settings = None, /, **conf: str) -> dict[str, Any]:
        """One application to its end; what it has told."""
        facts = self.tmp / f"facts-{step}-{location}-{out}.json"
        app = self.started(start, step, location, out, facts, more, **conf)
        app.expect_success(150)
        told: dict[str, Any] = json.loads(facts.read_text())
        return told

    def started(self, start: Start, step: str, location: str, out: str, facts: Path, more: Settings = None, /, **conf: str) -> Application:
        settings = {"spark.ckpt.retained": "100", **(more or {})}
        settings |= {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in conf.items()}
        arguments = (step, str(self.events), str(self.tmp / location), str(self.tmp / out), str(facts))
        return start("savepoints.py", *arguments, storage=f"file://{self.storage}", conf=settings)


def windows(events: Path) -> Counter[str]:
    """What a batch query gives: rows by window and key."""
    n, total = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for path in events.iterdir():
        for event in map(json.loads, path.read_text().splitlines()):
            ts = datetime.fromisoformat(event["ts"])
            start = (ts - timedelta(seconds=ts.timestamp() % 300)).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
            if event["key"] != "far":
                n[start, event["key"]] += 1
                total[start, event["key"]] += event["value"]
    rows = ({"start": start, "key": key, "n": n[start, key], "total": total[start, key]} for start, key in n)
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def written_up_to(out: Path, epoch: int) -> Counter[str]:
    """What the file sink committed with batches up to this one; its log is not compacted before batch 9."""
    names = [json.loads(line)["path"] for n in range(epoch + 1) for line in (out / "_spark_metadata" / str(n)).read_text().splitlines()[1:]]
    lines = [line for name in names for line in Path(name.removeprefix("file:").replace("///", "/")).read_text().splitlines()]
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def shown(path: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli(["show", path, "--json"]) == 0
    doc: dict[str, Any] = json.loads(capsys.readouterr().out)
    return doc


@pytest.mark.parametrize("interval", [pytest.param("0", marks=pytest.mark.campaign), "2s"])
def test_savepoints_and_the_ways_back(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], interval: str) -> None:
    places = Places(tmp_path)
    write_events(places.events, 0, FILES)
    facts = places.run(start, "first", "location", "out", interval=interval)
    busy = facts["busy"]
    assert busy == f"file://{places.stream}/savepoints/busy"
    assert facts["cli from-cli"]["savepoint"] == f"file://{places.stream}/savepoints/from-cli"
    assert facts["cli busy"]["status"] == 1
    assert "another savepoint" in facts["cli busy"]["error"]["message"]
    at = shown(busy, capsys)["epoch"]
    assert 2 <= at <= facts["epoch_after_busy"] + 1
    assert at < facts["epoch"]
    # All input was through; Spark may add an epoch without data, for the watermark's sake.
    assert facts["epoch"] - 1 <= shown(facts["idle"], capsys)["epoch"] <= facts["epoch"]
    assert cli(["verify", busy, "--deep"]) == 0
    capsys.readouterr()

    # Back to an older checkpoint of the stream itself: the sink has every row once, whatever it has seen. Then to the end of time.
    older = sorted((places.stream / "run-00000001").glob("chk-*"), key=lambda p: int(p.name.removeprefix("chk-")))[0]
    assert int(older.name.removeprefix("chk-")) < facts["epoch"]
    write_events(places.events, FILES, 4)
    back = places.run(start, "drained", "location", "out", interval=interval, restore_path=f"file://{older}")
    assert read(tmp_path / "out") == windows(places.events)
    assert back["active"] is False
    assert "is not running" in back["stopped_query"]

    # Moved, and restored without the stream: a fork that begins where the savepoint was made, in a sink of its own.
    shutil.copytree(busy.removeprefix("file://"), tmp_path / "moved" / "here")
    before = windows(places.events)
    shutil.move(places.stream, tmp_path / "away")
    write_events(places.events, FILES + 4, 1, closing=True)
    fork = {"interval": interval, "restore_path": f"file://{tmp_path}/moved/here", "onStop": "DELETE"}
    forked = places.run(start, "all", "fork", "forked", **fork)
    assert forked["epoch"] > 10, "the sink's log was compacted on the way"
    ours = written_up_to(tmp_path / "out", at) + Counter({row: n for row, n in read(tmp_path / "forked").items() if '"far"' not in row})
    assert ours == windows(places.events)
    assert before <= ours

    # The person who stopped it wanted its checkpoints deleted; the savepoint is not the fork's.
    fork_stream = Path(f"{places.storage}{tmp_path}/fork")
    assert not list(fork_stream.glob("run-*/chk-*/_metadata"))
    assert not list(fork_stream.glob("run-*/seg/*"))
    assert (tmp_path / "moved" / "here" / "_metadata").exists()

    # A sink that has later batches would skip what follows.
    app = places.started(
        start, "all", "third", "out", tmp_path / "none.json", interval=interval, restore_path=f"file://{tmp_path}/moved/here"
    )
    assert app.wait(120) != 0
    assert "would skip what follows epoch" in app.log.read_text()


@pytest.mark.campaign
def test_checkpoints_come_when_somebody_asks(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `interval=never`: none comes by itself, several people get one, a stop makes none, and what followed the last one runs again."""
    places = Places(tmp_path)
    write_events(places.events, 0, FILES)
    facts = places.run(start, "on_demand", "location", "out", UI, interval="never")
    assert "only on demand (interval=never), in the background, EXACTLY_ONCE" in facts["tab"]
    assert facts["before"] == []
    assert facts["cli"]["status"] == 0
    asked = {*facts["busy"], facts["cli"]["checkpoint"]}
    there = {f"file://{path.parent}" for path in places.stream.glob("run-*/chk-*/_metadata")}
    assert there == asked
    for url in asked:
        assert cli(["verify", url, "--deep"]) == 0
        capsys.readouterr()
        assert facts["epoch_before"] <= shown(url, capsys)["epoch"] <= facts["epoch"]
    newest = max(shown(url, capsys)["epoch"] for url in asked)
    assert newest < facts["epoch"]

    idle = places.run(start, "idle", "location", "out", interval="never")
    assert idle["cli"]["checkpoint"] == idle["again"]
    assert shown(idle["again"], capsys)["run"] == 2
    assert facts["epoch"] <= shown(idle["again"], capsys)["epoch"]
    assert cli(["list", f"file://{places.stream}", "--json"]) == 0
    assert read(tmp_path / "out") == windows(places.events)


@pytest.mark.campaign
def test_a_savepoint_in_another_bucket_lives_without_its_stream(start: Start, s3: Server, tmp_path: Path) -> None:
    places = Places(tmp_path)
    write_events(places.events, 0, FILES)
    other = f"{s3.bucket}-other"
    session = boto3.Session(s3.env["AWS_ACCESS_KEY_ID"], s3.env["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=s3.proxy.endpoint)) as client:
        client.create_bucket(Bucket=other)

        def keys(bucket: str, prefix: str = "") -> list[str]:
            return [one["Key"] for one in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]

        def run(step: str, location: str, out: str, *more: str, storage: str, **conf: str) -> dict[str, Any]:
            facts = tmp_path / f"{step}-{location}.json"
            settings = {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in conf.items()}
            args = (step, str(places.events), str(tmp_path / location), str(tmp_path / out), str(facts), *more)
            start("savepoints.py", *args, storage=storage, conf={**s3.conf, **settings}, env=s3.env).expect_success(150)
            told: dict[str, Any] = json.loads(facts.read_text())
            return told

        target = f"s3://{s3.bucket}/aside"
        facts = run("aside", "location", "out", target, storage=f"s3://{s3.bucket}/ckpt", interval="2s", savepointDir=target)
        assert facts["aside"] == f"{target}/aside"
        at = decode_metadata(client.get_object(Bucket=s3.bucket, Key="aside/aside/_metadata")["Body"].read()).id.epoch
        moved = keys(s3.bucket, "aside/aside/")
        for key in moved:
            name = f"deep/down/here{key.removeprefix('aside/aside')}"
            client.copy_object(Bucket=other, Key=name, CopySource=f"{s3.bucket}/{key}")
        for key in keys(s3.bucket):
            client.delete_object(Bucket=s3.bucket, Key=key)
        assert keys(s3.bucket) == []

        write_events(places.events, FILES, 2, closing=True)
        here = f"s3://{other}/deep/down/here"
        run("all", "fork", "forked", storage=f"s3://{other}/ckpt", restore_path=here, restore_mode="CLAIM", retained="1")
        assert keys(s3.bucket) == [], "the fork was to need nothing of the stream"
        assert keys(other, "deep/") == [], "a claimed savepoint goes when the copy of it is subsumed"
    forked = Counter({row: n for row, n in read(tmp_path / "forked").items() if '"far"' not in row})
    assert forked
    assert written_up_to(tmp_path / "out", at) + forked == windows(places.events)
