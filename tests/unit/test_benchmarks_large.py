"""Large state in the benchmark, with something else in the place of Spark and S3: what is looked at, taken down, and judged."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from benchmarks import large_state, processes, stored
from benchmarks.agent_bound import FILES
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.judging import Met, judged
from benchmarks.size_targets import SIZE_TARGETS
from benchmarks.systems import Setup, System
from benchmarks.tables import tables
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId

COMMANDS = {1: "java org.apache.spark.deploy", 2: "python -m spark_ckpt.coordinator", 3: "python -m spark_ckpt.agent", 4: "python -m job"}


def checkpoint(*objects: str) -> Checkpoint:
    """One partition with as many SST files, and where each of them is."""
    handles = [Handle(HandleKind.SST, f"SSTs/{where[4:]}.sst", where, 0, 100, n) for n, where in enumerate(objects)]
    snapshot = Snapshot(StoreId(0, 0, "default"), 1, "u", tuple(handles), 1)
    return Checkpoint(CheckpointId(1, 1), 1, 1, "q", 0, Job(("stateStoreSave",), ("rate",), "noop"), {}, (snapshot,), {})


class Played:
    """In the place of a session: each epoch is 100 ms longer than the one before, and puts one object."""

    id = 7
    rows = 20_000
    lasts = False
    """Its updates go on until it is killed."""
    until: threading.Event | None = None
    """When its updates end."""
    turns: list[tuple[int, int]] = []

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup, self._folder = setup, folder
        self._killed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hello(self) -> None: ...

    def kill(self) -> None:
        self._killed.set()

    def elsewhere_percent(self) -> float:
        return 7.0

    def turn(self, work: Any, place: str, *, warm: int, epochs: int, log: Path | None = None, **_: Any) -> dict[str, Any]:
        self.turns.append((work.rows, epochs))
        if self.lasts and log is not None:
            assert self._killed.wait(60)
            raise BenchmarkError("the application does not answer")
        if self.until is not None and log is not None:
            assert self.until.wait(60)
        marks, at = [], 0.0
        for epoch in range(warm + epochs):
            at += 100.0 * epoch
            if log is not None:
                with log.open("a") as file:
                    key = f"ckpt/q/run-00000001/seg/{epoch}-a"
                    file.write(f"o bench [now] 127.0.0.1 test id s3_PutObject {key} /bench/{key} 200 - 0 500 0 0 \n")
            marks.append({"at_ms": at, "log_bytes": log.stat().st_size if log else 0})
        return {"marks": marks, "warm": warm, "progress": [{"stateOperators": [{"numRowsTotal": self.rows}]}]}


class OneBucket(FarS3):
    def bucket(self) -> str:
        return "bench"

    dropped: list[str] = []

    def sizes(self, bucket: str) -> dict[str, int]:
        return {}

    def drop(self, bucket: str) -> None:
        self.dropped.append(bucket)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OneBucket:
    monkeypatch.setattr(large_state, "Session", Played)
    monkeypatch.setattr(processes, "of_session", lambda _: COMMANDS.items())
    monkeypatch.setattr(processes, "resident", lambda pid, peak=False: 1_000_000 * pid * (2 if peak else 1))
    monkeypatch.setattr(stored, "newest", lambda *_: ("ckpt/q", checkpoint("sst/a", "sst/b")))
    Played.turns = []
    (tmp_path / "log").touch()
    return OneBucket("http://127.0.0.1:9", "", tmp_path / "log")


def test_every_key_is_made_and_then_updated(s3: OneBucket, tmp_path: Path) -> None:
    figures, case = Figures(), Case("large state", System.S3.value, 2, 20)
    large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", figures, print)
    assert Played.turns == [(20_000 // large_state.FILL_EPOCHS, large_state.FILL_EPOCHS), (large_state.ROWS, large_state.PARTS)]
    warm = 3
    assert figures.values(case, "epoch_ms") == [100.0 * n for n in range(warm, warm + large_state.PARTS)], "warm epochs do not count"
    assert figures.values(case, "early_epoch_ms") == [300]
    assert figures.values(case, "late_epoch_ms") == [800]
    assert figures.values(case, "put_bytes") == [500]
    assert figures.values(case, "most_agent_memory_bytes") == [6_000_000], "also between two looks"
    assert figures.values(case, "late_agent_memory_bytes") == [3_000_000]
    assert (figures.values(case, FILES), figures.values(case, "again_bytes")) == ([2], [0])
    assert not (tmp_path / "work").exists()
    assert s3.dropped == ["bench"], "the next system needs the disk"
    [table] = [table for table in tables(figures) if table.title == "An hour of large state"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["epoch early ms"], row["late ms"], row["agent most"], row["JVM most"]) == ("300", "800", "6", "2")


def test_a_state_that_is_not_as_large_ends_the_benchmark(s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Played, "rows", 19_999)
    with pytest.raises(BenchmarkError, match=r"spark-ckpt, s3:// had 19,999 keys, and not 20,000$"):
        large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", Figures(), print)


def test_what_cannot_be_looked_at_ends_the_benchmark(s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gone(_: int, **__: bool) -> int:
        raise FileNotFoundError("/proc/3/status")

    monkeypatch.setattr(processes, "resident", gone)
    monkeypatch.setattr(Played, "lasts", True)
    with pytest.raises(BenchmarkError, match=r"could not be looked at: /proc/3/status; the application does not answer$"):
        large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", Figures(), print)


@pytest.mark.parametrize("never", [False, True])
def test_a_storage_that_does_not_answer_one_look_loses_no_hour(
    never: bool, s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, seldom, seen = [] if never else [checkpoint("sst/a")], iter(range(2)), threading.Event()

    def newest(*_: object) -> tuple[str, Checkpoint]:
        if next(seldom, None) is None:
            seen.set()
        if answers:
            return "ckpt/q", answers.pop()
        raise BenchmarkError("each checkpoint of q was gone before it could be read")

    monkeypatch.setattr(stored, "newest", newest)
    monkeypatch.setattr(large_state, "_FILES_EVERY", 1)
    monkeypatch.setattr(large_state, "_EVERY_S", 0.01)
    monkeypatch.setattr(Played, "until", seen)
    figures, case = Figures(), Case("large state", System.S3.value, 2, 20)
    large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", figures, print)
    assert len(figures.values(case, "epoch_ms")) == large_state.PARTS
    assert list(figures.values(case, "again_bytes")) == ([] if never else [0])
    told = "large state: no checkpoint of spark-ckpt, s3:// could be looked at: each checkpoint of q was gone before it could be read"
    assert figures.notes == ([told] if never else [])


def test_without_the_disk_nothing_is_begun(s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000_000))
    with pytest.raises(BenchmarkError, match=r"^20 MB of state may need 0\.1 GB of disk, and 0\.1 GB are free$"):
        large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", Figures(), print)
    assert not Played.turns


def test_what_cannot_be_deleted_loses_nothing(s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_: OneBucket, bucket: str) -> None:
        raise BenchmarkError(f"1 of 2 objects in {bucket} were not deleted: no")

    monkeypatch.setattr(OneBucket, "drop", refused)
    figures, told = Figures(), list[str]()
    large_state.run(System.S3, 20, 2, 1, s3, tmp_path / "work", figures, told.append)
    assert figures.values(Case("large state", System.S3.value, 2, 20), "put_bytes") == [500]
    assert told[-1].endswith("has stored lies there still: 1 of 2 objects in bench were not deleted: no")


def test_a_file_that_is_stored_again_is_counted(s3: OneBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = iter([checkpoint("sst/a"), checkpoint("sst/a", "sst/b"), checkpoint("sst/c", "sst/b"), checkpoint("sst/c", "sst/b")])
    monkeypatch.setattr(stored, "newest", lambda *_: ("ckpt/q", next(found)))
    watched = large_state.Watched(Played(Setup(System.S3, {}, "", "bench"), tmp_path), tmp_path, s3)  # type: ignore[arg-type]
    again = []
    for _ in range(4):
        watched.look()
        again.append(watched.again_bytes)
    assert (again, watched.files) == ([0, 0, 100, 100], [1, 2, 2, 2])


def test_a_file_with_two_names_is_on_the_disk_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 100_000)
    once = large_state.bytes_on_disk(tmp_path)
    os.link(tmp_path / "a" / "file", tmp_path / "b")
    assert large_state.bytes_on_disk(tmp_path) == once >= 100_000


@pytest.fixture
def figures() -> Figures:
    found = Figures()
    ours, stock = (Case("large state", s.value, 100, 10_000) for s in (System.S3, System.SAME_LOCAL))
    for case, ms in ((ours, 900), (stock, 1800)):
        found.add(case, "epoch_ms", [ms] * 10)
    found.add(ours, "early_epoch_ms", [800])
    found.add(ours, "late_epoch_ms", [1000])
    found.add(ours, "again_bytes", [0])
    found.add(ours, FILES, [10_000])
    found.add(ours, "most_agent_memory_bytes", [300_000_000])
    return found


def test_large_state_is_judged_by_what_is_counted(figures: Figures) -> None:
    of = "10,000 MB in 100 partitions"
    found = {v.what: (v.measured, v.met) for v in judged(SIZE_TARGETS, figures) if v.measured != "not measured"}
    assert found == {
        f"an epoch late in an hour over an early one, {of}": ("1.25 x", Met.OPEN),
        f"an epoch over stock's on its local disk, {of}": ("0.50 x", Met.OPEN),
        f"bytes that were stored already, {of}": ("0.0 MB", Met.YES),
        f"memory of an agent over its bound, {of}": ("1.28 x (300.0 MB of 233.9 MB)", Met.NO),
    }
