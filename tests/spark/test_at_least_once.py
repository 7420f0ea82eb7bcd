"""Epochs under new numbers on real Spark: at-least-once, whose plans nobody waits for, and plans that a person discards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from spark_ckpt import paths
from spark_ckpt.cli.main import run as cli
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.entries import decode as decode_entry
from spark_ckpt.stored.metadata.codec import decode_metadata
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.fixtures import MANY_NAMES
from tests.drivers.spark.harness import Application, Start, submit
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.trials import CLUSTER, Trial

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

CONF = {"spark.ckpt.mode": "AT_LEAST_ONCE", "spark.ckpt.interval": "2s"}


def duplicates(stream: Path, batch: Path) -> int:
    """How many rows came more than once. None may be missing, and none may be there that a batch query does not give."""
    ours, theirs = read(stream), read(batch)
    assert theirs, f"{batch} is empty: the comparison would show nothing"
    assert ours.keys() == theirs.keys(), f"{sorted(ours.keys() ^ theirs.keys())} are missing or wrong in {stream}"
    return (ours - theirs).total()


def stream_of(storage: Path, location: Path) -> Path:
    return Path(paths.stream_url(f"file://{storage}", f"file:{location}").removeprefix("file://"))


def holes(sink: Path) -> list[int]:
    """Batches that the file sink's log lacks between its last compaction and its newest entry: Spark refuses to read the folder."""
    log = sink / "_spark_metadata"
    entries = {int(p.name.split(".")[0]): p.name for p in log.iterdir() if p.name.split(".")[0].isdigit()}
    compacted = max((n for n, name in entries.items() if name.endswith(".compact")), default=0)
    return [n for n in range(compacted, max(entries)) if n not in entries]


@pytest.mark.campaign
def test_every_operator_goes_on_under_new_numbers(start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path) -> None:
    trial = Trial(start, events, tmp_path, tuple(oracle))
    app = trial.start(**CONF)
    app.until(lambda: all(trial.durable(name) >= 0 and trial.committed(name) >= 4 for name in trial.names), "checkpoints and epochs", 200)
    app.kill()
    before = {name: trial.committed(name) for name in trial.names}
    shutil.rmtree(trial.locations)
    trial.start(**CONF).expect_success()
    for name in trial.names:
        print(f"{name}: {duplicates(trial.out / name, oracle[name])} rows came twice")
        assert trial.durable(name) == trial.committed(name) > before[name] + 1, f"{name} was to go on under new numbers"
    for name in ("sliding", "unique", "stateless"):
        assert holes(trial.out / name) == [], name


class Attempts:
    """Queries of which every execution of every batch is kept (jobs/attempts.py)."""

    def __init__(self, start: Start, many: Path, tmp_path: Path, storage: str, names: tuple[str, ...] = MANY_NAMES, **how: object) -> None:
        self.out, self.locations, self.names = tmp_path / "out", tmp_path / "locations", names
        self._begin, self._storage, self._how = start, storage, how
        self.files = 1
        """So many make a batch: what is planned anew by another number of them is other data."""
        self._args = ("attempts.py", ",".join(names), str(many), str(self.locations), str(self.out))

    def start(self, **conf: str) -> Application:
        return self._begin(*self._args, str(self.files), storage=self._storage, conf={**CONF, **conf}, **self._how)

    def tried(self, name: str) -> list[int]:
        """Batch ids, one for each execution."""
        return sorted(int(p.name.split("-")[0]) for p in (self.out / name / "tried").glob("[0-9]*"))

    def further(self, batches: int) -> Callable[[], bool]:
        """Every query executes so many batches more than it has until now."""
        wanted = {name: len(self.tried(name)) + batches for name in self.names}
        return lambda: all(len(self.tried(name)) >= wanted[name] for name in self.names)

    def compare(self, batch: Path) -> int:
        """Both sinks hold every row of the batch query and no wrong one, and no number stood for different data. Rows that came twice."""
        for name in self.names:
            by_number: dict[int, set[str]] = {}
            for path in (self.out / name / "tried").glob("[0-9]*"):
                by_number.setdefault(int(path.name.split("-")[0]), set()).add(path.read_text())
            assert [n for n, contents in by_number.items() if len(contents) > 1] == [], f"{name}: a number was used for different data"
        repeated = 0
        for name in (n for n in self.names if n != "update"):
            twice = {sink: duplicates(self.out / name / sink, batch / name) for sink in ("plain", "skips")}
            print(f"{name}: {len(self.tried(name))} executions, rows that came twice: {twice}")
            repeated += twice["plain"]
        if "update" in self.names:
            held: dict[object, dict[str, object]] = {}
            for path in sorted((self.out / "update" / "skips").glob("part-*")):
                held.update({row["key"]: row for row in map(json.loads, path.read_text().splitlines())})
            (self.out / "update" / "held.json").write_text(json.dumps(held))
            assert differences(self.out / "update", batch / "update") == [], "the newest row of each key is not the sum of all"
        return repeated


@pytest.mark.campaign
def test_killed_drivers_lose_no_row_and_use_no_number_twice(start: Start, many: Path, oracle_of_many: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    trial = Attempts(start, many, tmp_path, f"file://{storage}")

    def checkpoints(run: int) -> bool:
        return all(list(stream_of(storage, trial.locations / name).glob(f"run-{run:08d}/chk-*/_metadata")) for name in MANY_NAMES)

    app = trial.start()
    app.until(lambda: checkpoints(1), "a checkpoint of every query", 200)
    app.until(trial.further(2), "epochs beyond it")
    app.kill()
    # A run that dies before its first checkpoint, so that the next one begins where it began, under other numbers.
    trial.files = 2
    app = trial.start(**{"spark.ckpt.interval": "10min"})
    app.until(trial.further(3), "epochs under new numbers")
    app.kill()
    assert not checkpoints(2)
    trial.files = 1
    app = trial.start()
    app.until(lambda: checkpoints(3), "a checkpoint under new numbers", 200)
    app.until(trial.further(2), "epochs beyond it")
    app.kill()
    shutil.rmtree(trial.locations)
    trial.start(**{"spark.ckpt.retained": "2"}).expect_success()

    assert trial.compare(oracle_of_many) > 0, "no row came twice: the test has lost its point"
    for name in MANY_NAMES:
        jumps = [b - a for a, b in pairwise(sorted(set(trial.tried(name)))) if b > a + 1]
        assert len(jumps) == 3, f"{name} was to go on under new numbers three times"
        remain = [decode_metadata(p.read_bytes()) for p in stream_of(storage, trial.locations / name).glob("run-*/chk-*/_metadata")]
        assert {c.id.run for c in remain} == {4}, f"{name}: checkpoints of earlier runs are still there"
        newest = max(remain, key=lambda c: c.id)
        assert newest.counters["new_bytes"] < newest.size, f"{name}: its last checkpoint is not incremental"


@pytest.mark.campaign
def test_no_epoch_waits_for_its_plan(start: Start, s3: Server, many: Path, oracle_of_many: Path, tmp_path: Path) -> None:
    trial = Attempts(start, many, tmp_path, f"s3://{s3.bucket}/ckpt", ("unique",), env=s3.env)

    def asked(pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in s3.proxy.requests)

    app = trial.start(**s3.conf)
    app.until(lambda: asked(r"^PUT \S*/_metadata") > 0, "a checkpoint")
    # A plan that is put after the first checkpoint has to be stored before epochs run ahead: the third one certainly is.
    app.until(trial.further(3), "epochs beyond it")
    # From here on no plan arrives any more.
    s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/log/", times=None, delay_s=300))
    app.until(trial.further(6), "epochs whose plans are not stored")
    held = len(s3.proxy.struck)
    app.kill()
    assert held == 1, "one plan was to be under way, and the others behind it"
    used = max(trial.tried("unique"))
    s3.proxy.heal()
    shutil.rmtree(trial.locations)
    trial.files = 2
    trial.start(**s3.conf).expect_success()
    assert trial.compare(oracle_of_many) > 0, "no row came twice: the test has lost its point"
    assert min(n for n in trial.tried("unique") if n > used) > used + 1, "the numbers whose plans were lost were not passed over"


@pytest.mark.campaign
def test_executors_are_killed_and_the_query_goes_back_in_place_under_new_numbers(
    start: Start, many: Path, oracle_of_many: Path, tmp_path: Path
) -> None:
    storage = tmp_path / "storage"
    trial = Attempts(start, many, tmp_path, f"file://{storage}", ("unique", "outer"), master=CLUSTER)

    def checkpoints(run: int) -> bool:
        return all(list(stream_of(storage, trial.locations / n).glob(f"run-{run:08d}/chk-*/_metadata")) for n in trial.names)

    app = trial.start()
    for _ in range(2):
        app.until(lambda: checkpoints(1), "a checkpoint of both queries", 200)
        app.until(trial.further(2), "epochs beyond it")
        assert app.kill_all("CoarseGrainedExecutorBackend", "spark_ckpt.agent") >= 2
        app.until(trial.further(3), "epochs after the executors' death")
    app.expect_success()
    trial.compare(oracle_of_many)
    assert "the query goes back to its last completed checkpoint" in app.log.read_text(), "no state was lost: the test has lost its point"
    assert any(b > a + 1 for name in trial.names for a, b in pairwise(sorted(set(trial.tried(name)))))


def test_plans_that_are_lost_with_the_coordinator_are_made_anew_in_place(
    start: Start, s3: Server, many: Path, oracle_of_many: Path, tmp_path: Path
) -> None:
    trial = Attempts(start, many, tmp_path, f"s3://{s3.bucket}/ckpt", ("unique",), env=s3.env)
    app = trial.start(**s3.conf)
    app.until(lambda: any(re.search(r"^PUT \S*/_metadata", line) for line in s3.proxy.requests), "a checkpoint")
    # A plan that is put after the first checkpoint has to be stored before epochs run ahead: the third one certainly is.
    app.until(trial.further(3), "epochs beyond it")
    s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/log/", times=None, delay_s=300))
    app.until(trial.further(4), "epochs whose plans are not stored")
    used = max(trial.tried("unique"))
    app.kill_one("spark_ckpt.coordinator")
    s3.proxy.heal()
    app.expect_success()
    trial.compare(oracle_of_many)
    assert "were lost with the coordinator" in app.log.read_text(), "no plan was lost: the test has lost its point"
    following = [n for n in trial.tried("unique") if n > used]
    assert any(b > a + 1 for a, b in pairwise([used, *following])), "it was to go on under new numbers"


def oracle_of(name: str, events: Path, out: Path) -> Path:
    args = ["batch", name, str(events), str(out)]
    with submit("operators.py", args, log=out.with_suffix(".log"), storage=None, plugin=False) as app:
        app.expect_success()
    return out / name


def claims(stream: Path) -> list[Claim]:
    entries = (decode_entry(int(p.name), p.read_bytes()) for p in sorted((stream / "log").iterdir()))
    return [entry for entry in entries if isinstance(entry, Claim)]


@pytest.mark.parametrize(
    ("name", "interval"),
    [
        pytest.param("unique", "0", marks=pytest.mark.campaign),
        pytest.param("outer", "500ms", marks=pytest.mark.campaign),
        pytest.param("timers", "500ms", marks=pytest.mark.campaign),
    ],
)
def test_discarded_plans_run_anew_and_later_starts_go_on_from_there(start: Start, tmp_path: Path, name: str, interval: str) -> None:
    events = tmp_path / "events"
    write_events(events, 0, FILES)
    trial = Trial(start, events, tmp_path, (name,))
    stream = stream_of(trial.storage, trial.locations / name)
    first = {"spark.ckpt.interval": interval, "spark.ckpt.retained": "100"}
    trial.start(**first).expect_success()
    used = trial.committed(name)
    older = sorted(stream.glob("run-00000001/chk-*"), key=lambda p: int(p.name.removeprefix("chk-")))[1]
    origin = int(older.name.removeprefix("chk-"))
    assert origin < used - 1, "too few epochs follow the checkpoint: the test has lost its point"

    write_events(events, FILES, 20, closing=True)
    conf = {**first, "spark.ckpt.restore.path": f"file://{older}", "spark.ckpt.restore.plans": "DISCARD", "spark.ckpt.retained": "2"}
    # With an interval the run has no checkpoint before it is killed: its first epoch runs again under its new number.
    app = trial.start(**{**conf, "spark.ckpt.interval": "0" if interval == "0" else "10min"})
    app.until(lambda: trial.committed(name) >= used + 3, "epochs under new numbers")
    app.kill()
    reached = trial.committed(name)
    app = trial.start(**conf)
    app.until(lambda: trial.committed(name) >= reached + 3, "epochs past those of the killed run")
    app.until(lambda: trial.runs(name) >= {"run-00000003"}, "a checkpoint of the third run")
    app.kill()
    shutil.rmtree(trial.locations)
    trial.start(**conf).expect_success()

    twice = duplicates(trial.out / name, oracle_of(name, events, tmp_path / "batch"))
    print(f"{name}, interval {interval}: {twice} rows came twice")
    assert twice > 0 or name == "timers", "the epochs past the checkpoint were not run anew: the test has lost its point"
    made = claims(stream)
    assert [c.run for c in made] == [1, 2, 3, 4]
    assert (made[1].origin, made[1].first) == (CheckpointId(1, origin), used + 1)
    assert made[2].first == (None if interval == "0" else used + 1), "its plans were to run again under the numbers they had"
    assert made[3].first is None
    # What a run that died before its first checkpoint had put aside is in nobody's memory; gc finds it.
    assert cli(["gc", f"file://{stream}", "--delete", "--min-age", "0"]) == 0
    assert cli(["verify", f"file://{stream}", "--deep"]) == 0
    remain = [decode_metadata(p.read_bytes()) for p in stream.glob("run-*/chk-*/_metadata")]
    assert {c.id.run for c in remain} == {4}, "checkpoints of earlier runs are still there"
    newest = max(remain, key=lambda c: c.id)
    assert newest.id.epoch == trial.committed(name) > used
    assert newest.counters["new_bytes"] < newest.size, "the last checkpoint is not incremental"
    if name == "unique":
        assert holes(trial.out / name) == []
