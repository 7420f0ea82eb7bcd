"""What finishing a checkpoint costs the coordinator, at numbers of partitions that no machine here can run: a real coordinator process,
real messages, a storage that throws everything away. It measures protocol, `_metadata` and memory, and nothing of Spark."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow import BufferReader, parquet

from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV
from benchmarks.figures import Case, Figures
from benchmarks.floor import URL as FLOOR_URL
from benchmarks.processes import cpu_ms, resident
from benchmarks.sampler import VARIABLE, shares
from benchmarks.session import ROOT
from benchmarks.spent import own_cpu_ms, spending
from spark_ckpt import __version__
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId
from spark_ckpt.paths import segment_key
from spark_ckpt.stored.metadata.codec import encode_metadata

EXPERIMENT = "finalise"
YOUNG, GROWN = 1, 8
"""Handles of a snapshot: a store's first epochs; two SSTs, a zip and five changelogs, as Spark takes a full snapshot every ten versions."""
_SSTS = 2
ACKS_A_LINE = 200
EPOCHS = 10
"""Those that count: the first one does not, as it has nothing to compare with and nothing to drop."""
PROFILED = 3
"""Epochs of a second coordinator, which is sampled, so that the times of the first one are without that."""
SAMPLED, PART = "sampled_", "part_"
"""How metrics of a profile begin: percent of the time to finalise by module, and bytes of `_metadata` by column."""
_ROOT = "file:/finalise"
_END_S = 60


def run(partitions: Sequence[int], figures: Figures, epochs: int = EPOCHS, profile: bool = True, rounds: int = 1) -> None:
    """Each round is a coordinator of its own. `size` of the cases is the number of handles a snapshot has. Raises BenchmarkError."""
    for count in partitions:
        for number in range(rounds):
            for handles in (YOUNG, GROWN):
                with Coordinator() as coordinator:
                    _run(coordinator, count, handles, epochs, figures, settle_s=2)
                if profile and not number:
                    _profile(count, handles, figures)


def _profile(partitions: int, handles: int, figures: Figures) -> None:
    case = Case(EXPERIMENT, "coordinator", partitions, handles)
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as folder:
        samples = Path(folder) / "samples"
        with Coordinator(samples=samples) as coordinator:
            windows = _run(coordinator, partitions, handles, PROFILED, Figures())
        for module, percent in shares(samples, windows).items():
            figures.add(case, f"{SAMPLED}{module}_percent", [percent])
    chains = [_first_chain(p, handles) for p in range(partitions)]
    snapshots = tuple(chain[-1] for chain in chains)
    job = Job(("stateStoreSave",), ("rate",), "noop")
    data = encode_metadata(Checkpoint(CheckpointId(1, 0), 1, 1, "q", 0, job, {}, snapshots, {}))
    footer = parquet.ParquetFile(BufferReader(data)).metadata
    for group in range(footer.num_row_groups):
        columns = [footer.row_group(group).column(n) for n in range(footer.num_columns)]
        for column in columns:
            figures.add(case, f"{PART}{column.path_in_schema}_bytes", [column.total_compressed_size])


def _run(
    coordinator: Coordinator, partitions: int, handles: int, epochs: int, figures: Figures, settle_s: float = 0
) -> list[tuple[float, float]]:
    """When it finalised, from and to, in seconds of `time.monotonic`."""
    windows = []
    case = Case(EXPERIMENT, "coordinator", partitions, handles)
    coordinator.ask("hello", jar=__version__, conf={"spark.ckpt.storage": FLOOR_URL}, spark={}, spark_version="4.3.0", host="host")
    coordinator.ask("open", root=_ROOT, query_id=None)
    job = {"operators": ["stateStoreSave"], "sources": ["rate"], "sink": "noop"}
    started = coordinator.ask("start", root=_ROOT, query_id="q", run_id="r", job=job, files=[])
    run_number, first = int(started["run"]), int(started["epoch"])
    time.sleep(settle_s)  # the coordinator loads what it will need
    base = coordinator.memory()
    chains = [_first_chain(p, handles) for p in range(partitions)]
    with spending(lambda: own_cpu_ms() + coordinator.cpu_ms()) as watched:
        for epoch in range(first, first + 1 + epochs):
            coordinator.ask("trigger", root=_ROOT, epoch=epoch, offsets=encoded("v1\n{}\n0"), files={})
            chains = [_next(chain, run_number, epoch) for chain in chains]
            acks = [_ack(chain, run_number, epoch) for chain in chains]
            told = [_line("acks", root=_ROOT, acks=acks[start : start + ACKS_A_LINE]) for start in range(0, partitions, ACKS_A_LINE)]
            ids = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[chain[-1].uid] for chain in chains]}}
            commit = encoded("v2\n" + json.dumps(ids))
            began, before = time.monotonic(), coordinator.cpu_ms()
            for line in told:
                coordinator.write(line)
            coordinator.ask("open", root=_ROOT, query_id=None)  # the stream comes to it behind the acks
            taken, used = time.monotonic(), coordinator.cpu_ms()
            sealed = coordinator.ask("seal", root=_ROOT, epoch=epoch, commit=commit, files={})
            done = time.monotonic()
            if sealed["checkpoint"]["acked"] != partitions:
                raise BenchmarkError(f"the coordinator counted {sealed['checkpoint']['acked']} acknowledgements of {partitions}")
            if epoch > first:
                windows.append((taken, done))
                figures.add(case, "acks_ms", [(taken - began) * 1000])
                figures.add(case, "acks_cpu_ms", [used - before])
                figures.add(case, "finalise_ms", [(done - taken) * 1000])
                figures.add(case, "finalise_cpu_ms", [coordinator.cpu_ms() - used])
                figures.add(case, "metadata_bytes", [sealed["checkpoint"]["metadata_bytes"]])
    figures.add(case, "elsewhere_percent", [watched.spent.elsewhere_percent])
    figures.add(case, "memory_bytes", [coordinator.memory(peak=True)])
    figures.add(case, "memory_before_bytes", [base])
    return windows


class Coordinator:
    """The process and the two ends of its pipe, `sent` and `heard` of which are bytes. `throwing_away`: its storage keeps nothing.

    `samples`: the file that says where it spent its time, of one that throws away.
    """

    def __init__(self, throwing_away: bool = True, samples: Path | None = None) -> None:
        module = ["benchmarks.floor", "-m", "spark_ckpt.coordinator"] if throwing_away else ["spark_ckpt.coordinator"]
        command = [sys.executable, "-m", *module]
        environment = {**os.environ, **ENV, **({VARIABLE: str(samples)} if samples else {})}
        self.sent = self.heard = 0
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
        self._requests = 0

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, kind: str, **fields: Any) -> None:
        self.write(_line(kind, **fields))

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdout is not None
        self._requests += 1
        self.write(_line(kind, id=self._requests, **fields))
        for line in self._process.stdout:
            self.heard += len(line)
            answer: dict[str, Any] = json.loads(line)
            if answer.get("re") == self._requests:
                if not answer["ok"]:
                    raise BenchmarkError(f"the coordinator refused {kind}: {answer['error']['message']}")
                return answer
        raise BenchmarkError(f"the coordinator ended with {self._process.wait(10)} instead of an answer to {kind}")

    def memory(self, peak: bool = False) -> int:
        """Resident bytes, now or at most so far."""
        return resident(self._process.pid, peak)

    def cpu_ms(self) -> float:
        return cpu_ms(self._process.pid)

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self.sent += len(line)
        self._process.stdin.write(line)
        self._process.stdin.flush()


def _line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode() + b"\n"


_Chain = tuple[Snapshot, ...]


def _first_chain(partition: int, length: int) -> _Chain:
    uid = str(uuid.uuid4())
    full = segment_key(1, 0, "0" * 32)
    handles: list[Handle] = []
    if length > 1:
        handles += (
            Handle(HandleKind.SST, f"SSTs/{n:06d}-{uuid.uuid4()}.sst", full, partition * 65536 + n * 4096, 4000, n + 1)
            for n in range(_SSTS)
        )
        handles.append(Handle(HandleKind.SNAPSHOT, f"1_{uid}.zip", full, partition * 65536 + 16384, 9000, partition))
    snapshot = Snapshot(StoreId(0, partition, "default"), 1, uid, tuple(handles), 500)
    for epoch in range(length - len(handles)):
        snapshot = _longer(snapshot, 1, epoch)
    return (snapshot,)


def _next(chain: _Chain, run_number: int, epoch: int) -> _Chain:
    """One changelog more, and the oldest one dropped: the length stays."""
    snapshot = _longer(chain[-1], run_number, epoch)
    head = [h for h in snapshot.handles if h.kind is not HandleKind.CHANGELOG]
    return (chain[-1], replace(snapshot, handles=(*head, *snapshot.handles[len(head) + 1 :])))


def _longer(snapshot: Snapshot, run_number: int, epoch: int) -> Snapshot:
    version, uid, partition = snapshot.version + 1, str(uuid.uuid4()), snapshot.store.partition
    object_name = segment_key(run_number, epoch, f"{partition // 5000:032x}")
    length = 12_000 + partition * 7919 % 1000
    handle = Handle(HandleKind.CHANGELOG, f"{version}_{uid}.changelog", object_name, partition * 13_000, length, uuid.uuid4().int % 2**32)
    return replace(snapshot, version=version, uid=uid, handles=(*snapshot.handles, handle))


def _ack(chain: _Chain, run_number: int, epoch: int) -> dict[str, Any]:
    return Ack(run_number, epoch, chain[-1], "1", 12_000, 1.0, 20.0, 5.0).to_json()


def encoded(content: str) -> str:
    """A small file in a message."""
    return base64.b64encode(content.encode()).decode()
