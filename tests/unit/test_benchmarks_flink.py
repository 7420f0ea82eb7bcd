"""A restart of Flink in the benchmark, with a made-up log in the place of Flink."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import cli
from benchmarks.application import Application
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.flink import commands
from benchmarks.flink import restart as flink

BEGUN = 1_790_000_000_000.0
"""When the application is begun, in milliseconds since 1970."""


def stamp(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_what_is_missing_for_flink_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "java").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commands.missing() == "Flink needs a Java with its compiler: install a JDK"
    ran = CliRunner().invoke(cli, ["restart-pieces", "--gigabytes", "0"])
    assert str(ran.exception) == "Flink needs a Java with its compiler: install a JDK; or leave Flink out with --no-flink"


def test_an_application_that_somebody_else_has_killed_has_failed(tmp_path: Path) -> None:
    """Out of memory, for example."""
    with Application(["sleep", "60"], {}, tmp_path) as ours:
        ours.kill()
    dies = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(BenchmarkError, match="the query has failed"), Application(dies, {}, tmp_path) as theirs:
        theirs._process.wait(60)


FLINKS_LOG = """WARNING: a library says something
BEGAN {began}
{submitted} [flink-pekko.actor.default-dispatcher-4] INFO ExecutionGraph - Job values (4a) switched from state CREATED to RUNNING.
{first} [flink-pekko.actor.default-dispatcher-6] INFO ExecutionGraph - KeyedProcess (1/2) (b1) switched from INITIALIZING to RUNNING.
{second} [flink-pekko.actor.default-dispatcher-4] INFO ExecutionGraph - KeyedProcess (2/2) (b2) switched from INITIALIZING to RUNNING.
{early} [Checkpoint Timer] INFO CheckpointCoordinator - Triggering checkpoint 7 (type=a) @ 1 for job 4a.
{triggered} [Checkpoint Timer] INFO CheckpointCoordinator - Triggering checkpoint 8 (type=a) @ 2 for job 4a.
{completed} [jobmanager-io-thread-3] INFO CheckpointCoordinator - Completed checkpoint 8 for job 4a (1024 bytes, checkpointDuration=50 ms)
{later} [flink-pekko.actor.default-dispatcher-4] INFO ExecutionGraph - KeyedProcess (2/2) (b3) switched from INITIALIZING to RUNNING.
"""


def test_a_restart_of_flink_is_told_by_its_log() -> None:
    at = {"submitted": 2100, "first": 2600, "second": 4100, "early": 4150, "triggered": 4600, "completed": 4800, "later": 9000}
    said = FLINKS_LOG.format(began=int(BEGUN + 900), **{name: stamp(BEGUN + ms) for name, ms in at.items()})
    found = {name: round(ms) for name, ms in flink.pieces_of(said, BEGUN).items()}
    assert found == {"jvm": 900, "session": 1200, "load": 2000, "plan": 500, "epoch": 200}
    for without, told in (
        ("BEGAN", "when the job began"),
        ("INITIALIZING", "tasks had their state"),
        ("Triggering", "a checkpoint began"),
        ("Completed", "had a checkpoint"),
    ):
        with pytest.raises(BenchmarkError, match=told):
            flink.pieces_of(said.replace(without, ""), BEGUN)


@pytest.mark.parametrize(("first", "told"), [("FIRST 10000\n", ""), ("FIRST 9999\n", "began from nothing"), ("", "began from nothing")])
def test_flink_restarts_from_what_it_had(first: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []

    class Job:
        log, spawned_ms = tmp_path / "application.log", BEGUN

        def __init__(self, *_: object) -> None:
            at = {name: stamp(BEGUN + 1000) for name in ("submitted", "first", "second", "early", "triggered", "completed", "later")}
            self.log.write_text(FLINKS_LOG.format(began=int(BEGUN), **at) + first)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def elsewhere_percent(self) -> float:
            return 7.0

        def check(self) -> None: ...

        def kill(self) -> None: ...

    class Stored(FarS3):
        def sizes(self, bucket: str) -> dict[str, int]:
            keys = ("flink/4a/chk-9/_metadata", "flink/4a/chk-10/_metadata", "flink/4a/chk-11/part", "other/chk-12/_metadata")
            return dict.fromkeys(keys, 1)

    def command(*how: Any) -> tuple[list[str], dict[str, str]]:
        asked.append(how[2])
        return [], {}

    monkeypatch.setattr(flink, "Application", Job)
    monkeypatch.setattr(commands, "command", command)
    filled = flink.Filled(Stored("http://127.0.0.1:9", "", tmp_path / "log"), "bench", 10)
    with pytest.raises(BenchmarkError, match=told) if told else nullcontext():
        assert flink.restart(filled, tmp_path / "work") == ({"jvm": 0, "session": 1000, "load": 0, "plan": 0, "epoch": 0}, 7.0)
    assert asked[0]["execution.state-recovery.path"] == "s3://bench/flink/4a/chk-10"
