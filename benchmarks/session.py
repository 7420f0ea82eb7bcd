"""The near side of `benchmarks.job`: a Spark application that is kept from turn to turn, so that its JVM is as warm as its rivals'."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import processes
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV
from benchmarks.systems import Setup, check_settings
from benchmarks.workloads import Workload
from testbed.servers import ending_with_starter

ROOT = Path(__file__).resolve().parents[1]
START_S, END_S = 120.0, 90.0
QUIET_S, QUIET_PERCENT, SETTLE_S = 1.0, 5.0, 15.0
"""An application is quiet when it has used so little of a processor for so long; that is waited for so long at most."""


class Session:
    """Use as a context manager. `around` is put before the command, a tracer for example."""

    def __init__(self, setup: Setup, folder: Path, around: Sequence[str] = ()) -> None:
        self.setup = setup
        self.log = folder / "application.log"
        self.spawned_ms = time.time() * 1000
        self._elsewhere = processes.Elsewhere()
        self.context_ms = self.ready_ms = 0.0
        """When its process was begun, when its Spark context was, and when its session was there; milliseconds since 1970."""
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        environment = {**os.environ, **ENV, **here, **setup.environment}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_starter([*around, sys.executable, "-m", "benchmarks.job"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._requests = 0
        self._guard: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def hello(self) -> float:
        """Make the Spark session; milliseconds that took. Raises BenchmarkError, also where stock Spark does not have its settings."""
        answer = self._ask(START_S, "hello", conf=dict(self.setup.conf))
        check_settings(self.setup, answer["settings"])
        self.context_ms, self.ready_ms = float(answer["context_ms"]), float(answer["ready_ms"])
        return float(answer["session_ms"])

    def pause(self) -> None:
        """Wait until the application is quiet, then stop its processes: what it would do between its turns falls into nobody else's."""
        deadline = time.monotonic() + SETTLE_S
        used = processes.session_cpu_ms(self.id)["all"]
        while time.monotonic() < deadline:
            time.sleep(QUIET_S)
            before, used = used, processes.session_cpu_ms(self.id)["all"]
            if used - before <= QUIET_S * 10 * QUIET_PERCENT:
                break
        if self._guard is None:
            command = [sys.executable, "-m", "benchmarks.guard", str(self.id)]
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)
        processes.tell_session(self.id, signal.SIGSTOP)

    def resume(self) -> None:
        processes.tell_session(self.id, signal.SIGCONT)

    def turn(
        self,
        work: Workload,
        checkpoint: str,
        *,
        warm: int,
        epochs: int,
        timeout_s: float,
        warm_s: float = 0,
        seconds: float = 0,
        log: Path | None = None,
        told: int | None = None,
    ) -> dict[str, Any]:
        """Run a query for at least `warm` epochs and `warm_s` seconds, then for at least `epochs` and `seconds`; the answer's `warm` tells
        where the latter begin. `timeout_s` is for the epochs alone. `told`: of so many epochs at most Spark's progress is in the answer,
        which has a bound. Raises BenchmarkError."""
        return self._ask(
            timeout_s + warm_s + seconds + END_S,
            "turn",
            workload=work.to_json(),
            checkpoint=checkpoint,
            warm=warm,
            warm_s=warm_s,
            epochs=epochs,
            seconds=seconds,
            timeout_s=timeout_s,
            log=str(log) if log else None,
            told=told,
        )

    def keep(self, work: Workload, checkpoint: str, timeout_s: float) -> dict[str, Any]:
        """Start a query that goes on."""
        return self._ask(timeout_s + END_S, "keep", workload=work.to_json(), checkpoint=checkpoint, timeout_s=timeout_s)

    def seen(self, checkpoint: str) -> dict[str, Any]:
        """What the Checkpoints tab knows of a query's stream."""
        return self._ask(END_S, "seen", checkpoint=checkpoint)

    def elsewhere_percent(self) -> float:
        """How much of the machine's processors others had since the application was begun."""
        return self._elsewhere.percent(self.id)

    def kill(self) -> None:
        """The application and all it has started, at once."""
        processes.tell_session(self.id, signal.SIGKILL)

    @property
    def id(self) -> int:
        """The session of processes that the application is."""
        return self._process.pid

    def close(self) -> None:
        """Let the application and all it started end by themselves; what takes too long is killed."""
        assert self._process.stdin is not None
        self.resume()
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait(30)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        deadline = time.monotonic() + END_S
        try:
            while (
                self._process.poll() is None or any(command for _, command in processes.of_session(self.id))
            ) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def _ask(self, within_s: float, kind: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._requests += 1
        try:
            self._process.stdin.write(json.dumps({"type": kind, "id": self._requests, **fields}).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=within_s)
        except (OSError, queue.Empty):
            answer = None
        if answer is None:
            raise BenchmarkError(f"{self.setup.system.value}: the application does not answer\n{self._tail()}")
        if not answer["ok"]:
            raise BenchmarkError(f"{self.setup.system.value}: {answer['error']['message']}\n{self._tail()}")
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "re" in message:
                self._answers.put(message)
        self._answers.put(None)

    def _tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
