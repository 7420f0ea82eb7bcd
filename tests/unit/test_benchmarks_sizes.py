"""What the benchmark says of many partitions, agents and streams, from made-up figures; and how streams that run are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from benchmarks import agents, processes, stored, streams
from benchmarks.agent_bound import FILES, OBJECTS_AT_ONCE, PARTS_AT_ONCE, bound
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import LATENCY_MS, FarS3
from benchmarks.figures import Case, Figures
from benchmarks.judging import Met, judged
from benchmarks.size_targets import SIZE_TARGETS
from benchmarks.systems import System
from benchmarks.tables import tables
from benchmarks.targets import TARGETS
from spark_ckpt.agent import uploads
from spark_ckpt.storage.s3_requests import S3Limits

MIB = 1 << 20
RUNNING = "S3 requests an epoch, 50 streams that run, looks at their logs apart: 4 + executors"


def verdicts(figures: Figures) -> dict[str, tuple[str, Met]]:
    return {v.what: (v.measured, v.met) for v in judged(SIZE_TARGETS, figures) if v.measured != "not measured"}


def test_acknowledgements_of_100000_partitions_within_a_second() -> None:
    figures = Figures()
    for handles, ms in ((1, 900), (8, 1200)):
        case = Case("finalise", "coordinator", 100_000, handles)
        figures.add(case, "acks_ms", [ms] * 30)
        figures.add(case, "memory_bytes", [1] * 3)
    assert verdicts(figures) == {
        "taking in the acknowledgements, 100,000 partitions, 1 handle each": ("900 ms", Met.YES),
        "taking in the acknowledgements, 100,000 partitions, 8 handles each": ("1,200 ms", Met.NO),
    }


@pytest.mark.parametrize(("used", "met"), [((5, 5), Met.YES), ((60, 5), Met.NOISY), ((5, 60), Met.NOISY)])
def test_all_that_is_compared_must_have_been_alone(used: tuple[float, float], met: Met) -> None:
    figures = Figures()
    for partitions, ms, percent in ((10_000, 100, used[0]), (100_000, 900, used[1])):
        case = Case("finalise", "coordinator", partitions, 8)
        figures.add(case, "finalise_ms", [ms] * 30)
        figures.add(case, "memory_bytes", [1] * 3)
        figures.add(case, "elsewhere_percent", [percent] * 3)
    assert verdicts(figures)["finalise, 100,000 partitions over 10,000: linear"][1] is met


def test_many_agents_are_judged_by_what_is_counted() -> None:
    figures, case = Figures(), Case(agents.EXPERIMENT, agents.SYSTEM, 5000, 8)
    figures.add(case, "requests", [12, 12, 13])
    figures.add(case, "memory_bytes", [301_000_000])
    figures.add(case, "finalise_ms", [100] * 5)
    assert verdicts(figures) == {
        "S3 requests an epoch, 5,000 partitions through 8 agents: 4 + agents": ("12.00", Met.YES),
        "memory of the coordinator, 5,000 partitions through 8 agents": ("301.0 MB", Met.NO),
        "finalise, 5,000 partitions through 8 agents": ("100 ms", Met.OPEN),
    }


def test_streams_of_a_session_share_their_processes() -> None:
    figures, what = Figures(), "coordinators and agents of 50 streams in one session"
    figures.add(streams.case_of(System.S3, "coordinator", 50), "processes", [1])
    assert what not in verdicts(figures), "the agents were not counted"
    figures.add(streams.case_of(System.S3, "agent", 50), "processes", [1])
    assert verdicts(figures)[what] == ("2.00", Met.YES)
    figures.forget(lambda case: case.system.endswith("agent"))
    figures.add(streams.case_of(System.S3, "agent", 50), "processes", [50])
    assert verdicts(figures)[what] == ("51.00", Met.NO)


def test_an_agents_memory_has_a_bound() -> None:
    """The numbers are those that the code has."""
    assert (uploads._UPLOADS_AT_ONCE, S3Limits().part_threads) == (OBJECTS_AT_ONCE, PARTS_AT_ONCE)
    assert bound(2, 1000) - bound(1, 0) == 16 * MIB + 3_000_000
    assert bound(1, 0) == 120_000_000 + (64 + 16) * MIB, "as docs/operations.md and README say"
    what = "memory of an agent over its bound, 5,000 partitions through 8 agents"
    for most, told in ((101_500_000, ("0.49 x (101.5 MB of 206.9 MB)", Met.YES)), (300_000_000, ("1.45 x (300.0 MB of 206.9 MB)", Met.NO))):
        figures, case = Figures(), Case(agents.EXPERIMENT, agents.SYSTEM, 5000, 8)
        figures.add(case, "agent_memory_bytes", [90_000_000, most])
        assert what not in verdicts(figures), "how many files there were is not known"
        figures.add(case, FILES, [1000] * 8)
        assert verdicts(figures)[what] == told


def test_an_epoch_of_one_row_may_take_two_and_a_half_round_trips() -> None:
    [target] = [target for target in TARGETS if "2.5 round trips" in target.what]
    assert target.limit == 2.5 * LATENCY_MS


class Running:
    """In the place of a session whose streams run an epoch each while somebody waits."""

    id = 1

    def __init__(self, *_: object) -> None:
        self.places: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hello(self) -> None: ...

    def elsewhere_percent(self) -> float:
        return 7.0

    def keep(self, work: object, place: str, timeout_s: float) -> None:
        self.places.append(place)

    def seen(self, place: str) -> dict[str, Any]:
        now = time.time() * 1000
        old = {"trigger_timestamp": now - 1e6, "status": "COMPLETED", "finalise_duration": 900, "end_to_end_duration": 900}
        new = {**old, "trigger_timestamp": now + 1000, "finalise_duration": 30, "end_to_end_duration": 200}
        return {"checkpoints": [old, new, {**new, "status": "IN_PROGRESS"}]}


class OneBucket(FarS3):
    def bucket(self) -> str:
        return "bench"


def waiting(log: Path, places: Callable[[], list[str]]) -> Callable[[float], None]:
    def wait(_: float) -> None:
        with log.open("a") as file:
            for place in places():
                stream = f"ckpt/{place.rsplit('/', 1)[1]}"
                asked = [("PutObject", key) for key in ("log/1", "seg/1-a", "chk-1/_metadata")] + [("GetObject", "log/2")]
                for operation, key in asked:
                    for bucket in ("bench", "other"):
                        status = 404 if operation == "GetObject" else 200
                        file.write(f"o {bucket} [now] 127.0.0.1 test id s3_{operation} {stream}/{key} / {status} - 0 10 0 0 \n")
                file.write(f"o bench [now] 127.0.0.1 test id s3_PutObject {stream}/chk-1/_metadata / 412 - 0 10 0 0 \n")
                file.write(f"o bench [now] 127.0.0.1 test id s3_GetObject {stream}/seg/1-a / 200 - 0 10 0 0 \n")

    return wait


def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, running: type[Running], count: int) -> Figures:
    figures, sessions, log = Figures(), list[Running](), tmp_path / "log"
    log.touch()

    def session(*_: object) -> Running:
        sessions.append(running())
        return sessions[0]

    monkeypatch.setattr(streams, "Session", session)
    monkeypatch.setattr(stored, "files", lambda *_: 3)
    monkeypatch.setattr(streams, "own_processes", lambda _: {"coordinator": 1, "agent": 2})
    monkeypatch.setattr(processes, "resident", lambda pid, **_: 1_000_000 * pid)
    monkeypatch.setattr(streams, "time", SimpleNamespace(time=time.time, sleep=waiting(log, lambda: sessions[0].places)))
    streams.busy(count, OneBucket("http://127.0.0.1:9", "", log), tmp_path / "work", figures, print)
    return figures


def test_streams_that_run_are_counted_while_they_are_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = watched(monkeypatch, tmp_path, Running, 50)
    case = Case("busy streams", System.S3.value, streams.PARTITIONS, 50)
    assert {metric: values for c, metric, values in figures if c == case} == {
        "epochs": [50],
        "requests": [6],
        "look_requests": [1],
        "elsewhere_percent": [7],
        "put_requests": [4],
        "get_requests": [2],
        "finalise_ms": [30] * 50,
        "end_to_end_ms": [200] * 50,
        "coordinator_memory_bytes": [1_000_000],
        "agent_memory_bytes": [2_000_000],
        "files": [50 * 3],
    }
    assert verdicts(figures)[RUNNING] == ("5.00", Met.YES)
    assert "Streams that run in one session" in {table.title for table in tables(figures)}
    figures.forget(lambda c: c == replace(case))
    figures.add(case, "requests", [6.5])
    assert RUNNING not in verdicts(figures), "how many of them are looks is not known"
    figures.add(case, "look_requests", [1])
    assert verdicts(figures)[RUNNING] == ("5.50", Met.NO)


def test_streams_that_stand_still_end_the_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Idle(Running):
        def seen(self, place: str) -> dict[str, Any]:
            return {"checkpoints": []}

    with pytest.raises(BenchmarkError, match=r"2 streams have run 2 epochs within .* and completed 0 checkpoints"):
        watched(monkeypatch, tmp_path, Idle, 2)
