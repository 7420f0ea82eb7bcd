"""A restart in pieces, with something else in the place of Spark: where each piece begins and ends, and what is counted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from benchmarks import restart_pieces, restore, start_targets
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.flink import commands
from benchmarks.flink import restart as flink
from benchmarks.judging import Met, judged
from benchmarks.systems import Setup, System
from benchmarks.tables import tables

BEGUN = 1_790_000_000_000.0
"""When each application is begun, in milliseconds since 1970."""
LOGGED = (
    "26/11/29 09:10:01 INFO BarrierRocksDB: fetched version 2 of StateStoreId[ operator=0 ] from s3://b/q: 1 files, 90 bytes; "
    "0 files were on this machine, in {} ms"
)


def stamp(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Played:
    """In the place of a session: everything takes as long as it says here."""

    killed = 0
    logged: tuple[int, ...] = (30, 50)
    restored: float | None = BEGUN + 3400
    batch = 8
    metrics: Mapping[str, float] = {"rocksdbLoadLatencyMs": 100}

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup, self.log = setup, folder / "application.log"
        self.spawned_ms, self.context_ms, self.ready_ms = BEGUN, BEGUN + 1000, BEGUN + 2500

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hello(self) -> None: ...

    def keep(self, work: Any, place: str, timeout_s: float) -> dict[str, Any]:
        assert work.trigger_s >= 3600, "it waits, and is killed while it does"
        location = Path(place.removeprefix("file://"))
        for name, ms in (("metadata", 2900), ("offsets/7", 3500), ("commits/6", 3560), ("offsets/8", 4200)):
            file = location / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, ns=(0, int((BEGUN + ms) * 1_000_000)))
        self.log.write_text("".join(f"{LOGGED.format(ms)}\n" for ms in self.logged))
        took = {"triggerExecution": 1000, "addBatch": 700, "commitOffsets": 60, "walCommit": 90, "queryPlanning": 150}
        loaded = {"numRowsTotal": 9000, "customMetrics": self.metrics}
        progress = [{"batchId": self.batch, "timestamp": stamp(BEGUN + 3700), "durationMs": took, "stateOperators": [loaded]}]
        return {"thread_ms": BEGUN + 3100, "progress": progress}

    def seen(self, place: str) -> dict[str, Any]:
        return {"checkpoints": [], "restored_ms": None if self.setup.system.stock else self.restored}

    def elsewhere_percent(self) -> float:
        return 7.0

    def kill(self) -> None:
        Played.killed += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Played]:
    def fill(system: System, megabytes: int, s3: FarS3, folder: Path, *_: object) -> Setup:
        return Setup(system, {"spark.local.dir": str(folder / "local")}, (folder / "ckpt").as_uri(), "" if system.stock else "bench")

    monkeypatch.setattr(restore, "fill", fill)
    monkeypatch.setattr(restart_pieces, "Session", Played)
    Played.killed, Played.logged, Played.restored = 0, (30, 50), BEGUN + 3400
    return Played


BOTH = (System.S3, System.SAME_LOCAL)


def run(folder: Path, figures: Figures, rounds: int = 1, systems: tuple[System, ...] = BOTH, size: int = 10) -> None:
    s3 = FarS3("", "", folder / "log")
    for found in itertools.islice(restart_pieces.rounds(size, systems, s3, folder / "work", print, with_flink=False), rounds):
        figures.complete(f"restart pieces {size}", "restart pieces", found)


def pieces(figures: Figures, system: System) -> dict[str, list[float]]:
    of = [(metric.removesuffix("_ms"), values) for case, metric, values in figures if case.system == system.value]
    found: dict[str, list[float]] = {metric: [round(v) for v in values] for metric, values in of}
    assert found.pop("elsewhere_percent") == [7]
    return found


def test_pieces_follow_each_other_without_a_gap(session: type[Played], tmp_path: Path) -> None:
    figures = Figures()
    run(tmp_path, figures)
    assert pieces(figures, System.S3) == {
        "jvm": [1000],
        "session": [1500],
        "query": [600],
        "claim": [300],
        "files": [160],
        "plan": [3700 - 3560 + 240],
        "fetch": [40],
        "load": [50],
        "epoch": [700 + 60 - 40 - 50],
        "restart": [4700],
    }


def test_an_event_that_is_taken_down_late_makes_no_piece_shorter_than_nothing(session: type[Played], tmp_path: Path) -> None:
    session.restored = BEGUN + 3600
    figures = Figures()
    run(tmp_path, figures)
    found = pieces(figures, System.S3)
    assert (found["claim"], found["files"], found["restart"]) == ([460], [0], [4700])


def test_what_they_have_stored_goes_with_the_last_round(session: type[Played], tmp_path: Path) -> None:
    dropped = list[str]()
    s3 = SimpleNamespace(drop=dropped.append)
    with closing(restart_pieces.rounds(10, BOTH, s3, tmp_path / "work", print, with_flink=False)) as rounds:  # type: ignore[arg-type]
        next(rounds)
        assert not dropped
    assert dropped == ["bench"]
    assert not (tmp_path / "work").exists()


def test_of_stock_what_nobody_can_see_apart_is_one_piece(session: type[Played], tmp_path: Path) -> None:
    figures = Figures()
    run(tmp_path, figures)
    found = pieces(figures, System.SAME_LOCAL)
    assert found.keys() == {"jvm", "session", "query", "plan", "load", "epoch", "restart"}
    assert (found["plan"], found["load"], found["epoch"]) == ([3700 - 3100 + 240], [50], [700 + 60 - 50])
    assert found["restart"] == pieces(figures, System.S3)["restart"]
    [table] = [table for table in tables(figures) if table.title == "A restart in pieces"]
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert (rows[System.S3.value]["claim"], rows[System.S3.value]["all"]) == ("300", "4,700")
    assert (rows[System.SAME_LOCAL.value]["claim"], rows[System.SAME_LOCAL.value]["fetch"]) == ("", "")


def test_each_round_follows_a_kill_and_the_first_start_does_not_count(session: type[Played], tmp_path: Path) -> None:
    figures = Figures()
    run(tmp_path, figures, rounds=2, systems=(System.S3,))
    assert session.killed == 3
    assert figures.rounds(Case("restart pieces", System.S3.value, restore.PARTITIONS, 10)) == 2
    assert figures.parts == {"restart pieces 10": 2}
    run(tmp_path, figures, rounds=1, systems=(System.S3,))
    assert session.killed == 3 + 2, "what is gone on with is begun with a start that does not count, too"
    assert figures.parts == {"restart pieces 10": 3}


def test_what_is_not_said_ends_the_benchmark(session: type[Played], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session.logged = ()
    with pytest.raises(BenchmarkError, match="log does not say how long its tasks waited"):
        run(tmp_path / "1", Figures())
    session.logged, session.restored = (1,), None
    with pytest.raises(BenchmarkError, match="began from nothing"):
        run(tmp_path / "2", Figures())
    session.restored = BEGUN + 3400
    with pytest.raises(BenchmarkError, match="restored 9000 keys of 20000"):
        run(tmp_path / "3", Figures(), size=20)
    monkeypatch.setattr(session, "metrics", {})
    with pytest.raises(BenchmarkError, match="no rocksdbLoadLatencyMs"):
        run(tmp_path / "4", Figures())
    monkeypatch.undo()


@pytest.mark.parametrize("system", BOTH)
def test_a_start_from_nothing_ends_the_benchmark(
    session: type[Played], system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "batch", 0)
    with pytest.raises(BenchmarkError, match="began from nothing"):
        run(tmp_path, Figures(), systems=(system,), size=0)


def test_a_piece_that_is_shorter_than_nothing_ends_the_benchmark(session: type[Played], tmp_path: Path) -> None:
    session.restored = BEGUN + 3050
    with pytest.raises(BenchmarkError, match=r"spark-ckpt, s3://: pieces of a restart cannot be shorter than nothing: claim -50 ms$"):
        run(tmp_path, Figures())


def test_flink_restarts_behind_spark(session: type[Played], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    s3, figures = FarS3("", "", tmp_path / "log"), Figures()
    filled, restarted = flink.Filled(s3, "bench", 10), list[Path]()

    def restart(which: flink.Filled, folder: Path) -> tuple[dict[str, float], float]:
        assert which is filled
        restarted.append(folder)
        return {"jvm": 900, "epoch": 700}, 7.0

    monkeypatch.setattr(flink, "fill", lambda *_: filled)
    monkeypatch.setattr(flink, "restart", restart)
    for found in itertools.islice(restart_pieces.rounds(10, BOTH, s3, tmp_path / "work", print, with_flink=True), 2):
        figures.take(found)
    case = Case("restart pieces", commands.NAME, flink.PARALLELISM, 10)
    assert len(set(restarted)) == 3, "once without counting, and each time on an empty disk"
    assert (figures.values(case, "restart_ms"), figures.values(case, "elsewhere_percent")) == ([1600] * 2, [7] * 2)
    [table] = [table for table in tables(figures) if table.title == "A restart in pieces"]
    assert [row[0] for row in table.rows] == [*(system.value for system in BOTH), commands.NAME]


def test_what_is_ours_of_a_restart_is_a_tenth_of_it_at_most() -> None:
    figures = Figures()
    for size, claim, fetch in ((0, 1100, 900), (1000, 900, 5000)):
        case = Case("restart pieces", System.S3.value, restore.PARTITIONS, size)
        figures.add(case, "restart_ms", [10_000] * 3)
        figures.add(case, "claim_ms", [claim] * 3)
        figures.add(case, "fetch_ms", [fetch] * 3)
    found = {v.what: (v.measured, v.met) for v in judged(start_targets.START_TARGETS, figures) if v.measured != "not measured"}
    assert found == {
        "claim of a restart with no state": ("11.0 %", Met.NO),
        "fetch of a restart with no state": ("9.0 %", Met.YES),
        "claim of a restart with 1,000 MB of state": ("9.0 %", Met.YES),
        "fetch of a restart with 1,000 MB of state": ("50.0 %", Met.OPEN),
    }
