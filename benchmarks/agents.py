"""Many partitions through a real coordinator and several real agents over pipes, on S3: all but Spark. What stands between them, which
relays acknowledgements as the JVMs do, is this process."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import access_log
from benchmarks.agent_bound import FILES
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV, FarS3
from benchmarks.figures import Case, Figures
from benchmarks.finalise import Coordinator, encoded
from benchmarks.processes import cpu_ms, resident
from benchmarks.session import ROOT
from benchmarks.systems import System, set_up
from spark_ckpt import __version__
from spark_ckpt.paths import stream_url

EXPERIMENT, SYSTEM = "agents", "coordinator and agents"
PARTITIONS, AGENTS, EPOCHS = 5_000, 8, 5
BYTES = 600
"""Of a changelog, its lineage apart: what an epoch of 20,000 rows over 200 partitions writes for one of them is of that size."""
_ROOT = "file:/agents"
_WAIT_S, _END_S = 600.0, 60.0


@dataclass
class _Store:
    """One partition's, as Spark's engine writes it: a changelog for each version, with the versions before it at its head."""

    folder: Path
    partition: int
    uids: list[str] = field(default_factory=list)

    def commit(self) -> None:
        uid = str(uuid.uuid4())
        items = [{"version": n, "checkpointUniqueId": before} for n, before in enumerate(self.uids, 1)]
        lineage = json.dumps(items, separators=(",", ":")).encode()
        text = struct.pack(">H", 2) + b"v3" + struct.pack(">H", len(lineage)) + lineage + uid.encode() * (BYTES // 36)
        data = b"LZ4Block" + bytes([0x15]) + struct.pack("<iii", len(text), len(text), 0) + text
        self.uids.append(uid)
        (self.folder / f"{len(self.uids)}_{uid}.changelog").write_bytes(data)

    def message(self, run: int, epoch: int, base: Any, stream: str) -> dict[str, Any]:
        return {
            "type": "commit",
            "root": _ROOT,
            "stream": stream,
            "run": run,
            "epoch": epoch,
            "base": base,
            "op": 0,
            "part": self.partition,
            "store": "default",
            "version": len(self.uids),
            "uid": self.uids[-1],
            "base_uid": self.uids[-2] if len(self.uids) > 1 else None,
            "dir": str(self.folder),
            "sync_ms": 1.0,
            "start_delay_ms": 1.0,
            "commit_delay_ms": 1.0,
            "num_keys": 100,
        }


class _Agent:
    """`heard` gets each line of acknowledgements as it came."""

    def __init__(self, number: int, conf: Mapping[str, str], folder: Path, heard: Callable[[dict[str, Any]], None]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "spark_ckpt.agent"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **ENV})
        self._heard = heard
        self._greeted = threading.Event()
        threading.Thread(target=self._read, name=f"agent {number}", daemon=True).start()
        self.send({"type": "hello", "id": 1, "jar": __version__, "conf": dict(conf), "executor": str(number), "spool": str(folder)})
        if not self._greeted.wait(_END_S):
            raise BenchmarkError(f"agent {number} does not answer")

    def send(self, *messages: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(m, separators=(",", ":")).encode() + b"\n" for m in messages))
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("re") == 1:
                self._greeted.set()
            elif message.get("type") == "acks":
                self._heard(message)


class _Acknowledged:
    """How many snapshots have been, and whether one was declined."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._changed = threading.Condition()
        self._uids: set[str] = set()
        self._declined = ""
        self.messages = 0

    def take(self, message: dict[str, Any]) -> None:
        with self._changed:
            self._coordinator.tell("acks", root=_ROOT, acks=message["acks"])
            self.messages += 1
            self._uids.update(row["uid"] for row in message["acks"])
            self._declined = self._declined or next((row["decline"] for row in message["acks"] if "decline" in row), "")
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: bool(self._declined) or len(self._uids) >= count, _WAIT_S)
            if self._declined or not in_time:
                raise BenchmarkError(self._declined or f"only {len(self._uids)} of {count} snapshots were acknowledged")
            self._uids.clear()

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Nothing else writes to the coordinator meanwhile."""
        with self._changed:
            return self._coordinator.ask(kind, **fields)


def run(
    partitions: Sequence[int], agents: int, epochs: int, s3: FarS3, folder: Path, figures: Figures, system: System = System.S3
) -> None:
    """`size` of the cases is the number of agents. Of the epochs the first one does not count. Raises BenchmarkError."""
    for count in partitions:
        _run(system, count, agents, epochs, s3, folder / str(count), figures)


def _run(system: System, partitions: int, number: int, epochs: int, s3: FarS3, folder: Path, figures: Figures) -> None:
    case = Case(EXPERIMENT, SYSTEM, partitions, number)
    conf = {key: value for key, value in set_up(system, s3, folder / "setup").conf.items() if key.startswith("spark.ckpt.")}
    stream = stream_url(conf["spark.ckpt.storage"], _ROOT)
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(throwing_away=False))
        told = _Acknowledged(coordinator)
        agents = [_Agent(n, conf, folder / f"agent-{n}", told.take) for n in range(number)]
        for agent in agents:
            stack.callback(agent.close)
        told.ask("hello", jar=__version__, conf=conf, spark={}, spark_version="4.3.0", host="host")
        told.ask("open", root=_ROOT, query_id=None)
        job = {"operators": ["stateStoreSave"], "sources": ["rate"], "sink": "noop"}
        started = told.ask("start", root=_ROOT, query_id="q", run_id="r", job=job, files=[])
        stores = [_Store(_made(agents[p % number].folder / f"store-{p}"), p) for p in range(partitions)]
        run_number, first, base = int(started["run"]), int(started["epoch"]), None
        for epoch in range(first, first + 1 + epochs):
            lines, heard = _length(s3.log), told.messages
            told.ask("trigger", root=_ROOT, epoch=epoch, offsets=encoded("v1\n{}\n0"), files={})
            for store in stores:
                store.commit()
            used = {"coordinator": coordinator.cpu_ms(), "agents": sum(cpu_ms(agent.process.pid) for agent in agents)}
            began = time.monotonic()
            for n, agent in enumerate(agents):
                agent.send(*(s.message(run_number, epoch, base, stream) for s in stores[n::number]), {"type": "flush", "root": _ROOT})
            told.wait(partitions)
            taken = time.monotonic()
            commit = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[store.uids[-1]] for store in stores]}}
            sealed = told.ask("seal", root=_ROOT, epoch=epoch, commit=encoded("v2\n" + json.dumps(commit)), files={})
            done = time.monotonic()
            base = {"run": run_number, "epoch": epoch}
            if sealed["checkpoint"]["acked"] != partitions:
                raise BenchmarkError(f"the coordinator counted {sealed['checkpoint']['acked']} acknowledgements of {partitions}")
            if epoch == first:
                continue
            figures.add(case, "acks_ms", [(taken - began) * 1000])
            figures.add(case, "finalise_ms", [(done - taken) * 1000])
            figures.add(case, "messages", [told.messages - heard])
            if system.on_s3:
                requests = access_log.between(s3.log, lines, _length(s3.log))
                figures.add(case, "requests", [len(requests)])
                figures.add(case, "put_bytes", [sum(access_log.bytes_put(requests).values())])
            figures.add(case, "coordinator_cpu_ms", [coordinator.cpu_ms() - used["coordinator"]])
            figures.add(case, "agents_cpu_ms", [sum(cpu_ms(agent.process.pid) for agent in agents) - used["agents"]])
            figures.add(case, "metadata_bytes", [sealed["checkpoint"]["metadata_bytes"]])
        figures.add(case, "memory_bytes", [coordinator.memory(peak=True)])
        figures.add(case, "agent_memory_bytes", [resident(agent.process.pid, peak=True) for agent in agents])
        figures.add(case, FILES, [sum(len(store.uids) for store in stores[n::number]) for n in range(number)])


def _length(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
