"""A job is killed, its checkpoint rescaled, and the same job goes on from that with another number of state partitions, under kills;
compared with a batch query. And the state is the same, entry by entry."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt import read_state
from spark_ckpt.paths import METADATA_NAME
from spark_ckpt.protocol.offsets_conf import partitions_of
from spark_ckpt.stock.layout import OURS, STOCK, with_provider
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.metadata.codec import encode_metadata
from spark_ckpt.stored.opening import opened_stream
from tests.drivers.command_line import call
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.state_reads import rows
from tests.drivers.spark.trials import completed
from tests.drivers.state_entries import entries

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

JOINS = ("inner", "outer", "right", "full")
NAMES = ("update", "windows", "sliding", "sessions", *JOINS, "unique", "within", "pandas", "transform", "timers", "chained")
PARTITIONS = "spark.sql.shuffle.partitions"


class Rescaling:
    """Queries of one application; after a rescale they are another one's, which has `checkpointLocation`s of its own."""

    def __init__(self, start: Start, events: Path, tmp_path: Path, names: Sequence[str]) -> None:
        self.names, self.out = names, tmp_path / "out"
        self._start, self._events, self._at = start, events, tmp_path
        self._round = 0
        self._paths: dict[str, str] = {}
        self._epochs: dict[str, int] = {}

    def location(self, name: str) -> Path:
        return self._at / f"locations-{self._round}" / name

    def stream(self, name: str) -> str:
        return f"file://{self._at}/storage{self.location(name)}"

    def begin(self, **conf: str) -> Application:
        restored = {"spark.ckpt.restore.path": ",".join(self._paths.values())} if self._paths else {}
        args = ("run", ",".join(self.names), str(self._events), str(self._at / f"locations-{self._round}"), str(self.out))
        return self._start("operators.py", *args, storage=f"file://{self._at}/storage", conf={**restored, **conf})

    def run_and_kill(self, checkpoints: int = 2, planned: bool = False, **conf: str) -> None:
        """`planned`: while every query runs an epoch past its newest checkpoint."""
        wanted = {name: self._newest(name) + checkpoints for name in self.names}
        app = self.begin(**conf)
        app.until(lambda: all(self._newest(n) >= wanted[n] for n in self.names), "checkpoints of every query", 300)
        if planned:
            app.until(lambda: all(self._planned(n) > self._newest(n) for n in self.names), "an epoch of every query that is planned", 60)
        app.kill()

    def _planned(self, name: str) -> int:
        newest = max((self._at / "storage").joinpath(*self.location(name).parts[1:], "log").iterdir())
        found = re.search(r'"epoch":(\d+).*"type":"plan"', newest.read_text(errors="replace"), re.DOTALL)
        return -1 if found is None else int(found.group(1))

    def _newest(self, name: str) -> int:
        found = completed(self._at / "storage", self.location(name))
        return max((int(p.parent.name.removeprefix("chk-")) for p in found), default=self._epochs.get(name, -1))

    def rescale(self, capsys: pytest.CaptureFixture[str], partitions: int, sources: Mapping[str, str] | None = None) -> None:
        """What `spark-ckpt rescale` makes has the same entries."""
        made, epochs = {}, {}
        for name in self.names:
            source = (sources or {}).get(name) or self.stream(name)
            target = f"file://{self._at}/rescaled/{name}"
            status, told = call(capsys, "rescale", source, "--partitions", str(partitions), "--target", target)
            assert status == 0, told
            assert entries(told["savepoint"]) == entries(source), name
            with opened_stream(told["savepoint"], S3Options()) as (_, reader):
                checkpoint = reader.read(reader.latest())
            assert partitions_of(checkpoint) == partitions
            by_operator: dict[int, set[int]] = {}
            for snapshot in checkpoint.snapshots:
                by_operator.setdefault(snapshot.store.operator, set()).add(snapshot.store.partition)
            assert all(found == set(range(partitions)) for found in by_operator.values())
            made[name], epochs[name] = told["savepoint"], told["epoch"]
        self._paths, self._epochs = made, epochs

    def next_round(self) -> None:
        self._round += 1

    def take(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)

    @property
    def paths(self) -> Mapping[str, str]:
        return self._paths

    def compare(self, oracle: Mapping[str, Path]) -> None:
        for name in self.names:
            assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
            assert differences(self.out / name, oracle[name]) == [], name
            numbers = {int(p.name) for p in (self.location(name) / "offsets").glob("[0-9]*")}
            assert max(numbers) > self._epochs[name] + 1, f"{name} did not go on"
            assert min(numbers) >= self._epochs[name] - 1, f"{name} began anew"


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_from_20_to_200_and_back_to_7(
    name: str, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Rescaling(start, events, tmp_path, [name])
    query.run_and_kill(2, **{PARTITIONS: "20"})  # type: ignore[arg-type]
    query.rescale(capsys, 200)
    query.rescale(capsys, 7, query.paths)
    query.next_round()
    query.run_and_kill(1)
    query.begin().expect_success(400)
    query.compare(oracle)


def as_once_written(url: str, target: str) -> str:
    """A savepoint as `rescale` made it once: the planned epoch has the provider of stock Spark. Written below `target`; returns its URL."""
    with opened_stream(url, S3Options()) as (_, reader):
        checkpoint = reader.read(reader.latest())
    assert checkpoint.imported is not None
    assert checkpoint.imported.planned is not None
    planned = with_provider(checkpoint.imported.planned, OURS, STOCK)
    assert planned != checkpoint.imported.planned
    folder = Path(target)
    shutil.copytree(url.removeprefix("file://"), folder)
    (folder / METADATA_NAME).write_bytes(encode_metadata(replace(checkpoint, imported=replace(checkpoint.imported, planned=planned))))
    return f"file://{folder}"


@pytest.mark.campaign
@pytest.mark.parametrize("before", [False, True], ids=["", "as once written"])
def test_an_epoch_that_was_planned_runs_again_and_the_query_is_killed_once_more(
    before: bool, start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Rescaling(start, events, tmp_path, ["update"])
    query.run_and_kill(2, planned=True)
    query.rescale(capsys, 5)
    if before:
        query.take({"update": as_once_written(query.paths["update"], f"{tmp_path}/once/update")})
    query.next_round()
    query.run_and_kill(1)
    query.begin().expect_success(400)
    query.compare(oracle)


FORMS = (("wide", "flat", "ttl"), ("limit", "keyless"), ("transform-avro", "ttl-avro"))


@pytest.mark.campaign
@pytest.mark.parametrize("names", FORMS, ids=lambda names: names[0])
def test_state_of_every_form_is_the_same_and_goes_on(
    names: Sequence[str], start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What has one partition keeps it. With Avro a value may be written with another number of its schema; what it says is the same."""
    events, storage = tmp_path / "events", f"file://{tmp_path}/storage"
    write_events(events, 0, 3)
    start("states.py", ",".join(names), str(events), str(tmp_path / "first"), storage=storage).expect_success(300)
    made = {}
    for name in names:
        source = f"{storage}{tmp_path}/first/{name}"
        status, told = call(capsys, "rescale", source, "--partitions", "5")
        assert status == 0, told
        made[name] = told["savepoint"]
        before, after = entries(source), entries(made[name])
        assert {family: len(there) for family, there in after.items()} == {family: len(there) for family, there in before.items()}, name
        if not name.endswith("-avro"):
            assert after == before, name
            continue
        for store in ("count", "best", "parity"):
            was, now = (read_state(url, store=store).to_table() for url in (source, made[name]))
            assert rows(now, ("partition_id",)) == rows(was, ("partition_id",)), (name, store)

    write_events(events, 3, 3)
    paths = {"spark.ckpt.restore.path": ",".join(made.values())}
    start("states.py", ",".join(names), str(events), str(tmp_path / "second"), storage=storage, conf=paths).expect_success(300)
    values = [json.loads(line)["value"] for path in sorted(events.iterdir()) for line in path.read_text().splitlines()]
    for name in names:
        variable = "count" if name.partition("-")[0] in ("ttl", "transform") else None
        table = read_state(f"{storage}{tmp_path}/second/{name}", store=variable).to_table()
        assert set(table.column("partition_id").to_pylist()) <= set(range(1 if name in ("limit", "keyless") else 5))
        found = [row["value"] for row in table.to_pylist()]
        if name == "keyless":
            assert [list(value.values()) for value in found] == [[len(values), sum(values)]]
        elif variable is not None:
            assert sum((value["value"] if name.startswith("ttl") else value)["n"] for value in found) == len(values)


def processes(part: str) -> list[int]:
    """Whose command line has `part` in it."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and part in (entry / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


@pytest.mark.campaign
def test_who_is_killed_leaves_no_spark_and_the_same_command_does_it_then(start: Start, events: Path, tmp_path: Path) -> None:
    query = Rescaling(start, events, tmp_path, ["update"])
    query.run_and_kill()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = ["rescale", query.stream("update"), "--partitions", "9", "--target", f"file://{tmp_path}/made", "--name", "nine"]
    command = [sys.executable, "-m", "spark_ckpt.cli.main", *arguments]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}) as rescale:
        until(lambda: len(processes(f"{scratch}/.spark-ckpt-rescale-")) >= 2, "Spark and its Python")
        rescale.kill()
    until(lambda: not processes(f"{scratch}/.spark-ckpt-rescale-"), "the end of all that was started")
    assert not (tmp_path / "made" / "nine" / "_metadata").exists()
    left = list(scratch.iterdir())
    assert left
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(scratch)}, timeout=300, check=False)
    assert done.returncode == 0
    assert list(scratch.iterdir()) == []
    assert entries(f"file://{tmp_path}/made/nine") == entries(query.stream("update"))
