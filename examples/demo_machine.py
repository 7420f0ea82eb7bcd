"""The demo's machine that gets lost, and the processes that run on it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

MARK = "SPARK_CKPT_DEMO"
LAST_LINES = 15
TROUBLE = re.compile(r" ERROR |^Caused by: |^\S+(Exception|Error|CheckpointFailure): ")
SIGNALLED_WITHIN = 10.0


class DemoError(Exception):
    """The demo cannot go on; `log` holds the end of the driver's log."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class Input(NamedTuple):
    """An epoch's input by Spark's own files: the watermark, the source's offset, and the input files up to there since the epoch before."""

    watermark_ms: int
    offset: str
    files: frozenset[str]


def written_since(sink: Path, moment_ns: int) -> list[int]:
    """The epochs that the sink has got, or got again, after a moment of the system's clock."""
    done = (folder / "_SUCCESS" for folder in sink.glob("batch_id=*"))
    return sorted(int(path.parent.name.partition("=")[2]) for path in done if path.exists() and path.stat().st_mtime_ns > moment_ns)


class Machine:
    """A folder that stands for a machine's disk: `checkpointLocation` and Spark's local directories."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.local_dir = folder / "local"
        self.local_dir.mkdir(parents=True)

    def planned(self) -> int:
        """The newest epoch that Spark has written offsets for; -1: none."""
        return self._newest("offsets")

    def committed(self) -> int:
        """The newest epoch that Spark has committed; -1: none."""
        return self._newest("commits")

    def input(self, epoch: int) -> Input:
        """What Spark has noted as an epoch's input."""
        folder = self.checkpoint / "sources" / "0"
        entries = (json.loads(line) for path in folder.glob("[0-9]*") for line in path.read_text().splitlines()[1:])
        files = frozenset(e["path"] for e in entries if e["batchId"] == epoch)
        _version, head, offset = (self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()
        return Input(json.loads(head)["batchWatermarkMs"], offset, files)

    def lose(self) -> None:
        """The machine is gone; another one takes its place, with nothing on it. Whatever still writes there does not bring it back."""
        for _ in range(50):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.1)
        self.local_dir.mkdir(parents=True)
        if self.checkpoint.exists():
            raise DemoError(f"{self.checkpoint} could not be deleted", "")

    def _newest(self, log: str) -> int:
        try:
            return max((int(name) for name in os.listdir(self.checkpoint / log) if name.isdigit()), default=-1)
        except FileNotFoundError:
            return -1


class Job:
    """`spark-submit` in a process group of its own: the driver's JVM, its Python, and what they start."""

    _all: list[Job] = []
    _token = secrets.token_hex(8)

    def __init__(self, arguments: list[str], log: Path, cwd: Path) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")}
        env |= {MARK: self._token, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._log = log
        submit = Path(sys.executable).parent / "spark-submit"
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(submit), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        self.group = self._process.pid
        self._all.append(self)

    def running(self) -> bool:
        return self._process.poll() is None

    def status(self) -> int:
        """Exit status once it has ended; a signal's number is negative."""
        return self._process.wait()

    def answer(self) -> str:
        """Wait for the end; all that was printed."""
        out, _ = self._process.communicate()
        return out.decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send to the whole group; one that has ended is left alone."""
        if self.running():
            os.killpg(self.group, number)

    def kill(self) -> None:
        """SIGKILL to the whole group; returns when the driver is dead."""
        self.signal(signal.SIGKILL)
        self.status()

    def last_words(self) -> str:
        """What the driver's log says went wrong; where it names no error, its end."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if TROUBLE.search(line)]
        return "\n".join(errors[:LAST_LINES] or lines[-LAST_LINES:])

    @classmethod
    def end_all(cls) -> None:
        """End every process that a job has started, also those that have left its group (PySpark's workers do); Linux tells which."""
        for job in cls._all:
            job.kill()
        deadline = time.monotonic() + SIGNALLED_WITHIN
        while (left := _marked(f"{MARK}={cls._token}".encode())) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)


def _marked(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found
