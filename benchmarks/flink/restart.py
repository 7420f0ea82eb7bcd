"""A restart of Flink after a kill, from its newest checkpoint in S3, in pieces that its log tells: until a first checkpoint is complete."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.application import Application
from benchmarks.epochs import Tell
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from benchmarks.flink import commands

PARALLELISM = 2
"""Of the state: what one would choose for two processors."""
KEYS_A_MEGABYTE = 1000
FILLING_MS, RESTARTED_MS = 5000, 1000
"""Intervals of checkpoints: while the state is made, and of a restart, which ends with one."""
_FILL_S, _RESTART_S, _LOOK_S = 1800.0, 1200.0, 0.1
_BEGAN, _FIRST, _FILLED = (re.compile(rf"^{word} (\d+)$", re.MULTILINE) for word in ("BEGAN", "FIRST", "FILLED"))
_SUBMITTED = re.compile(r"^(\S+) .*Job values \(\w+\) switched from state CREATED to RUNNING", re.MULTILINE)
_RUNNING = re.compile(r"^(\S+) .*switched from INITIALIZING to RUNNING", re.MULTILINE)
_TRIGGERED = re.compile(r"^(\S+) .*CheckpointCoordinator - Triggering checkpoint (\d+) ", re.MULTILINE)
_COMPLETED = re.compile(r"^(\S+) .*CheckpointCoordinator - Completed checkpoint (\d+) for job", re.MULTILINE)
_CHECKPOINT = re.compile(rf"^{commands.CHECKPOINTS}/\w+/chk-(\d+)/_metadata$")


@dataclass(frozen=True)
class Filled:
    """A job that was killed; what it had is in the bucket."""

    s3: FarS3
    bucket: str
    megabytes: int

    @property
    def keys(self) -> int:
        return max(1, self.megabytes * KEYS_A_MEGABYTE)


def fill(megabytes: int, s3: FarS3, folder: Path, tell: Tell) -> Filled:
    """Raises BenchmarkError."""
    tell(f"restart: {commands.NAME} fills {megabytes} MB")
    filled = Filled(s3, s3.bucket(), megabytes)
    with _begun(filled, folder, FILLING_MS, {}) as job:
        _wait(job, lambda said: bool(_FILLED.search(said)), _FILL_S)
        since = len(job.log.read_bytes())

        def is_stored(_: str) -> bool:
            """The first may have begun before all was there."""
            return len(_COMPLETED.findall(job.log.read_bytes()[since:].decode(errors="replace"))) >= 2

        _wait(job, is_stored, _FILL_S)
        job.kill()
    shutil.rmtree(folder)
    return filled


def restart(filled: Filled, folder: Path) -> tuple[Mapping[str, float], float]:
    """Pieces in milliseconds, and how much of the processors others had. On an empty disk; it is killed too. Raises BenchmarkError."""
    found = {int(match[1]): key for key in filled.s3.sizes(filled.bucket) if (match := _CHECKPOINT.match(key))}
    if not found:
        raise BenchmarkError(f"{commands.NAME} has left no checkpoint")
    newest = found[max(found)].removesuffix("/_metadata")
    recovery = {
        "execution.state-recovery.path": f"s3://{filled.bucket}/{newest}",
        # As where Flink itself restarts a job; else its first checkpoint would store all of the state anew.
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    with _begun(filled, folder, RESTARTED_MS, recovery) as job:
        _wait(job, lambda said: bool(_COMPLETED.search(said)), _RESTART_S)
        elsewhere = job.elsewhere_percent()
        job.kill()
        said = job.log.read_text(errors="replace")
        first = _FIRST.search(said)
        if first is None or int(first[1]) < filled.keys:
            raise BenchmarkError(f"{commands.NAME} began from nothing, and not with what was there")
        pieces = pieces_of(said, job.spawned_ms)
    shutil.rmtree(folder)
    return pieces, elsewhere


def pieces_of(said: str, spawned_ms: float) -> Mapping[str, float]:
    """Until the job's program begins, until the job runs, until all its tasks have their state, until a checkpoint begins, and until
    that is complete. Raises BenchmarkError.

    The interval of checkpoints begins when the job runs, so the wait for the first one is up to `RESTARTED_MS` long, by chance.
    """
    began, submitted, completed = _BEGAN.search(said), _SUBMITTED.search(said), _COMPLETED.search(said)
    if began is None or submitted is None or completed is None:
        raise BenchmarkError(f"{commands.NAME}: the log does not tell when the job began, ran and had a checkpoint")
    running = [_milliseconds(when) for when in _RUNNING.findall(said[: completed.start()])]
    triggered = [_milliseconds(when) for when, number in _TRIGGERED.findall(said[: completed.start()]) if number == completed[2]]
    if not running or not triggered:
        raise BenchmarkError(f"{commands.NAME}: the log does not tell when tasks had their state, and when a checkpoint began")
    ends = (spawned_ms, float(began[1]), _milliseconds(submitted[1]), max(running), triggered[-1], _milliseconds(completed[1]))
    names = ("jvm", "session", "load", "plan", "epoch")
    return {name: after - before for name, before, after in zip(names, ends, ends[1:], strict=False)}


def _begun(filled: Filled, folder: Path, interval_ms: int, more: Mapping[str, str]) -> Application:
    folder.mkdir(parents=True)
    made = {**commands.settings(filled.s3, filled.bucket, folder, interval_ms), **more}
    return Application(*commands.command("RestartJob", [str(filled.keys), str(PARALLELISM)], made, folder), folder)


def _wait(job: Application, has_come: Callable[[str], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not has_come(said := job.log.read_text(errors="replace")):
        job.check()
        if "switched from state RUNNING to FAILING" in said or "to RESTARTING" in said:
            raise BenchmarkError(f"{commands.NAME}: the job has failed\n{said[-2000:]}")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{commands.NAME}: nothing came of it within {within_s:.0f} s\n{said[-2000:]}")
        time.sleep(_LOOK_S)


def _milliseconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp() * 1000
