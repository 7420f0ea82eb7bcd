"""Starts in the benchmark, with something else in the place of Spark and S3: what a round does, and what is counted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from benchmarks import chains, restore, short_epochs, start_targets, stored
from benchmarks.epochs import Rounds
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.judging import Met, judged
from benchmarks.systems import EXECUTORS, Setup, System
from benchmarks.tables import tables
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId
from testbed.toxiproxy import Toxiproxy

METRICS = """# TYPE toxiproxy_proxy_received_bytes_total counter
toxiproxy_proxy_received_bytes_total{direction="downstream",listener="127.0.0.1:1",proxy="s3",upstream="127.0.0.1:2"} 1.502764e+06
toxiproxy_proxy_received_bytes_total{direction="upstream",listener="127.0.0.1:1",proxy="s3",upstream="127.0.0.1:2"} 1.003827e+06
toxiproxy_proxy_received_bytes_total{direction="downstream",listener="127.0.0.1:3",proxy="s3x",upstream="127.0.0.1:2"} 7
toxiproxy_proxy_sent_bytes_total{direction="downstream",listener="127.0.0.1:1",proxy="s3",upstream="127.0.0.1:2"} 9
"""


@pytest.fixture
def proxy_api() -> Iterator[str]:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_clients_got_from_the_server_is_what_the_proxy_has_counted(proxy_api: str, tmp_path: Path) -> None:
    assert Toxiproxy(proxy_api).brought("s3") == 1_502_764
    assert Toxiproxy(proxy_api).brought("another") == 0
    assert FarS3("", "", tmp_path / "log", Toxiproxy(proxy_api)).brought() == 1_502_764


class PlayedS3(FarS3):
    """A log to write into; of what clients read it tells ten bytes for each line."""

    def bucket(self) -> str:
        return "bench"

    def brought(self) -> int:
        return 10 * len(self.log.read_text().splitlines())


class Played:
    """In the place of a session: each epoch asks for its number of objects of the stream, beside one of another."""

    applications: list[tuple[Setup, Path]] = []
    turns: list[tuple[str, int]] = []

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.applications.append((setup, folder))
        assert not (folder / "local").exists()
        (folder / "local").mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hello(self) -> float:
        return 1.0

    def elsewhere_percent(self) -> float:
        return 7.0

    def turn(self, work: object, checkpoint: str, *, warm: int, epochs: int, timeout_s: float, log: Path | None = None, **_: Any) -> Any:
        self.turns.append((checkpoint, epochs))
        name, marks = checkpoint.rsplit("/", 1)[1], []
        for epoch in range(epochs + 1):  # it is stopped in the middle of the next one
            with (log or Path("/dev/null")).open("a") as file:
                stream = f"ckpt/{name}"
                asked = [("GetObject", f"{stream}/seg/{epoch}", 0), ("PutObject", f"{stream}/run-1/chk-{epoch}/_metadata", 1000 + epoch)]
                asked += [("PutObject", f"{stream}/seg/{epoch}-a", 500), ("GetObject", "ckpt/other/seg/1", 0)]
                for operation, key, size in asked:
                    file.write(f"o bench [now] 127.0.0.1 test id s3_{operation} {key} /bench/{key} 200 - 0 {size} 0 0 \n")
            marks.append({"at_ms": 100.0 * epoch, "log_bytes": log.stat().st_size if log else 0})
        progress = [{"durationMs": {"addBatch": 5}}]
        return {"start_ms": 700 if name == chains.CHAIN else 500, "marks": marks, "progress": progress}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlayedS3:
    for module in (chains, short_epochs):
        monkeypatch.setattr(module, "Session", Played)
    Played.applications, Played.turns = [], []
    (tmp_path / "log").touch()
    return PlayedS3("http://127.0.0.1:9", "", tmp_path / "log")


def checkpoint(length: int) -> Checkpoint:
    """Two partitions with so many changelogs, which lie beside each other in one segment for each epoch."""
    snapshots = tuple(
        Snapshot(
            StoreId(0, p, "default"),
            length,
            "u",
            tuple(Handle(HandleKind.CHANGELOG, f"{n}_u.changelog", f"run-00000001/seg/{n}-a", 100 * p, 50, 0) for n in range(length)),
            1,
        )
        for p in range(2)
    )
    return Checkpoint(CheckpointId(1, length), 1, 1, "q", 0, Job(("stateStoreSave",), ("rate",), "noop"), {}, snapshots, {})


def run_chains(s3: PlayedS3, folder: Path, rounds: int, figures: Figures) -> Case:
    take(chains.rounds([System.S3], 2, 6, s3, folder, print), rounds, "chains", figures)
    return Case("chains", System.S3.value, 2, 6)


def take(measured: Rounds, rounds: int, part: str, figures: Figures) -> None:
    for found in itertools.islice(measured, rounds):
        figures.complete(part, part, found)


def test_each_round_starts_from_chains_that_were_filled_for_it(
    s3: PlayedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored, "newest", lambda *_: ("ckpt/first_epoch", checkpoint(6)))
    figures = Figures()
    case = run_chains(s3, tmp_path / "work", 3, figures)
    filled = [place for place, epochs in Played.turns if epochs == 6]
    assert len(set(filled)) == 3, "a start may have ended the chains of the one before"
    assert [place for place, _ in Played.turns] == [
        place for chain in filled for place in (chain, chain.replace(chains.CHAIN, chains.EMPTY), chain)
    ]
    assert {setup.conf["spark.sql.streaming.stateStore.maintenanceInterval"] for setup, _ in Played.applications} == {"10h"}
    assert figures.rounds(case) == 3
    assert figures.values(case, "beyond_ms") == [200] * 3
    assert figures.values(case, "state_bytes") == [6 * 150] * 3
    assert figures.values(case, "first_epoch_requests") == [3] * 3, "until the first epoch's end, and none of another stream"
    assert figures.values(case, "first_epoch_get_requests") == [1] * 3
    assert figures.values(case, "first_epoch_read_bytes") == [2 * 4 * 10] * 3, "until the application's end"
    assert not list((tmp_path / "work").iterdir())
    [table] = [table for table in tables(figures) if table.title == "A start from long chains"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["changelogs"], row["rounds"], row["requests"], row["difference ms"]) == ("6", "3", "3", "200")


def test_of_a_round_that_ends_early_nothing_counts(s3: PlayedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stored, "newest", lambda *_: ("ckpt/first_epoch", checkpoint(6)))
    figures, turn = Figures(), Played.turn

    def ends_in_the_fifth(self: Played, *given: Any, **how: Any) -> Any:
        if len(Played.turns) == 4:
            raise KeyboardInterrupt
        return turn(self, *given, **how)

    monkeypatch.setattr(Played, "turn", ends_in_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        run_chains(s3, tmp_path, 3, figures)
    case = Case("chains", System.S3.value, 2, 6)
    assert (figures.rounds(case), figures.parts) == (1, {"chains": 1})
    assert {len(values) for c, _, values in figures if c == case} == {1}


def test_chains_that_have_ended_end_the_benchmark(s3: PlayedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stored, "newest", lambda *_: ("ckpt/first_epoch", checkpoint(5)))
    with pytest.raises(BenchmarkError, match="chains of 6 changelogs were to be made, and the shortest has 5"):
        run_chains(s3, tmp_path, 1, Figures())


def test_a_new_machine_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    old, ckpt = tmp_path / "old", tmp_path / "ckpt"
    for bucket, left in (("bench", False), ("", True)):
        (old / "blocks").mkdir(parents=True)
        (ckpt / "q").mkdir(parents=True)
        setup = Setup(System.S3, {"spark.local.dir": str(old), "a": "1"}, ckpt.as_uri(), bucket)
        new = setup.on_new_machine(tmp_path / f"new{bucket}", {"a": "2"})
        assert new.conf == {"spark.local.dir": str(tmp_path / f"new{bucket}" / "local"), "a": "2"}
        assert (old.exists(), ckpt.exists()) == (False, left), "state that lies on the disk alone stays"


def test_short_epochs_are_restarted_early_and_late_and_run_once_with_few_full_snapshots(s3: PlayedS3, tmp_path: Path) -> None:
    figures = Figures()
    take(short_epochs.rounds(20, s3, tmp_path / "work", print), 2, "short epochs", figures)
    assert [epochs for _, epochs in Played.turns] == [2, 18, 1, 20, 2, 18, 1]
    ours, seldom = (Case("short epochs", system, short_epochs.PARTITIONS, 20) for system in (short_epochs.OURS, short_epochs.SELDOM_FULL))
    assert figures.rounds(ours) == 2
    assert [figures.values(ours, f"{when}_ms") for when in ("empty", "early", "late")] == [[500] * 2] * 3
    assert figures.values(ours, "early_metadata_bytes") == [1000.5] * 2
    assert figures.values(ours, "late_metadata_bytes") == [1008.5] * 2
    assert figures.values(ours, "late_epoch_ms") == [100] * 2
    assert figures.values(seldom, "put_bytes") == [1509.5]
    assert figures.values(ours, "put_bytes") == [(2 * 1500.5 + 18 * 1508.5) / 20] * 2, "all epochs of the two applications"
    kept = [setup.conf.get("spark.sql.streaming.stateStore.minDeltasForSnapshot") for setup, _ in Played.applications]
    assert kept == [None] * 3 + ["1000000"] + [None] * 3
    assert figures.parts == {"short epochs": 2}
    [table] = [table for table in tables(figures) if table.title == "Short epochs"]
    assert [row[0] for row in table.rows] == [short_epochs.OURS, short_epochs.SELDOM_FULL]
    Played.turns.clear()
    take(short_epochs.rounds(20, s3, tmp_path / "more", print, with_seldom=False), 1, "short epochs", figures)
    assert [epochs for _, epochs in Played.turns] == [2, 18, 1], "it is run once"


def test_plain_reads_of_each_round_are_of_what_that_round_restores(monkeypatch: pytest.MonkeyPatch, s3: PlayedS3, tmp_path: Path) -> None:
    """The epoch after a start stores something, and deletes what it does not need any more."""
    stored_by_then, plain = iter((100, 120, 150)), list[list[tuple[str, int, int]]]()
    monkeypatch.setattr(restore, "fill", lambda *_: Setup(System.S3, {}, "", "bench"))
    monkeypatch.setattr(restore, "_ranges", lambda *_: [("seg", 0, next(stored_by_then))])
    monkeypatch.setattr(restore, "_plain", lambda *given: plain.append(given[1]))
    monkeypatch.setattr(restore, "_restore", lambda *_: None)
    figures = Figures()
    take(restore.rounds(10, [System.S3], s3, tmp_path, figures, print), 3, "restore", figures)
    assert plain == [[("seg", 0, length)] for length in (100, 120, 150)]
    assert figures.values(Case("restore", System.S3.value, restore.PARTITIONS, 10), "state_bytes") == [100, 120, 150]


def verdicts(figures: Figures) -> dict[str, tuple[str, Met]]:
    return {v.what: (v.measured, v.met) for v in judged(start_targets.START_TARGETS, figures) if v.measured != "not measured"}


def test_starts_from_long_chains_are_judged() -> None:
    figures = Figures()
    ours = Case("chains", System.S3.value, 100, 100)
    for case, read in ((ours, 30_000_000), (replace(ours, system=System.S3_CLUSTER.value), EXECUTORS * 24_000_000)):
        figures.add(case, "first_epoch_ms", [9000, 9100, 9200])
        figures.add(case, "beyond_ms", [2000, 2100, 2200])
        figures.add(case, "first_epoch_requests", [120, 251, 251])
        figures.add(case, "first_epoch_read_bytes", [read] * 3)
        figures.add(case, "empty_read_bytes", [2_000_000])
        figures.add(case, "state_bytes", [20_000_000])
    assert verdicts(figures) == {
        "requests of a start from 100 partitions with 100 changelogs each": ("251.00", Met.NO),
        "the same start beyond one on nothing": ("2,100 ms", Met.YES),
        "bytes that it reads over those of its state: each once": ("1.40 x", Met.NO),
        "the same of 2 executors together: of each all of it once at most": ("2.30 x", Met.NO),
    }
    figures.forget(lambda case: case.system != System.S3.value)
    figures.add(ours, "empty_read_bytes", [10_000_000] * 2)
    assert verdicts(figures)["bytes that it reads over those of its state: each once"] == ("1.00 x", Met.YES)


def test_a_restore_reads_each_byte_once() -> None:
    case, figures = Case("restore", System.S3.value, 20, 1000), Figures()
    what = "bytes that a restore of 1,000 MB reads over those of its state: each once"
    for read, met in ((1_060_000_000, Met.YES), (1_150_000_000, Met.NO)):
        figures.forget(lambda _: True)
        figures.add(case, "first_epoch_read_bytes", [read])
        figures.add(case, "empty_read_bytes", [30_000_000])
        figures.add(case, "state_bytes", [1_000_000_000])
        assert verdicts(figures)[what][1] is met


def test_a_life_of_short_epochs_is_judged_by_late_over_early() -> None:
    figures = Figures()
    case = Case("short epochs", short_epochs.OURS, short_epochs.PARTITIONS, short_epochs.EPOCHS)
    figures.add(case, "early_ms", [8000, 8100, 8200])
    figures.add(case, "late_ms", [8200, 8300, 8400])
    figures.add(case, "empty_ms", [7000] * 3)
    figures.add(case, "early_metadata_bytes", [10_000] * 3)
    figures.add(case, "late_metadata_bytes", [13_000] * 3)
    figures.add(case, "put_bytes", [12_900, 13_000, 13_100])
    figures.add(replace(case, system=short_epochs.SELDOM_FULL), "put_bytes", [10_000])
    assert verdicts(figures) == {
        "restart after 5,000 short epochs over an early one": ("1.02 x", Met.YES),
        "`_metadata` then over the early one": ("1.30 x", Met.NO),
        "bytes to S3 over those of the same epochs with a full snapshot every 500": ("1.30 x", Met.YES),
    }
