"""What a file source that has seen very many files costs: a real coordinator process over a folder, told what Spark would tell it. Spark's
file source keeps every file it has ever seen and writes all of them anew every ten epochs; what an epoch adds to the log, to `_metadata`
and to the pipe must not grow with them."""

from __future__ import annotations

import statistics
import tempfile
import time
import zlib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.figures import Case, Figures
from benchmarks.finalise import Coordinator, encoded
from spark_ckpt import __version__
from spark_ckpt.paths import LOG_PREFIX, METADATA_NAME
from spark_ckpt.protocol.large_files import DIGITS, LARGE
from spark_ckpt.storage import open_storage

EXPERIMENT = "many files"
EACH = 10
"""New files in an epoch."""
COMPACT = 10
"""Spark's own interval."""
EPOCHS = 2 * COMPACT + 2
_ROOT = "file:/many-files"
_FILE = b"file:///data/events/day=2026-01-01/part-%08d-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f.json"
_LINE = b'{"path":"' + _FILE + b'","timestamp":1700000000000,"batchId":%d}\n'
_COMMIT = 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'


def run(seen: Sequence[int], figures: Figures) -> None:
    """`size` of the cases is the number of files that the source has seen. Raises BenchmarkError."""
    for count in seen:
        with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work:
            _run(count, Path(work), figures)


def _run(seen: int, work: Path, figures: Figures) -> None:
    case = Case(EXPERIMENT, "coordinator", 0, seen)
    lines = b"".join(_LINE % (n, 0) for n in range(seen))
    usual: list[float] = []
    with Coordinator(throwing_away=False) as coordinator:
        _begin(coordinator, work)
        for epoch in range(EPOCHS):
            new = b"".join(_LINE % (seen + epoch * EACH + n, epoch) for n in range(EACH))
            lines += new
            compact = epoch % COMPACT == COMPACT - 1
            name = f"sources/0/{epoch}.compact" if compact else f"sources/0/{epoch}"
            content = b"v1\n" + (lines if compact else new)
            files = {name: _handed_over(work, content)}
            sent, began = coordinator.sent, time.monotonic()
            coordinator.ask("trigger", root=_ROOT, epoch=epoch, offsets=encoded("v1\n{}\n0"), files=files)
            planned, line = time.monotonic(), coordinator.sent - sent
            sealed = coordinator.ask("seal", root=_ROOT, epoch=epoch, commit=encoded(_COMMIT), files={})
            if compact:
                figures.add(case, "compact_ms", [(planned - began) * 1000])
                figures.add(case, "compact_bytes", [len(content)])
            else:
                usual.append((time.monotonic() - began) * 1000)
            if epoch >= COMPACT:
                figures.add(case, "trigger_bytes", [line])
                figures.add(case, "metadata_bytes", [sealed["checkpoint"]["metadata_bytes"]])
        figures.add(case, "memory_bytes", [coordinator.memory(peak=True)])
    figures.add(case, "epoch_ms", [statistics.median(usual)])
    with open_storage(f"file://{work}/storage/many-files") as storage:
        stored = list(storage.list(""))
        figures.add(case, "entry_bytes", [s.size for s in stored if s.key.startswith(LOG_PREFIX)][COMPACT:])
        total = sum(s.size for s in stored if s.key.startswith(LOG_PREFIX) or s.key.endswith(METADATA_NAME))
        figures.add(case, "log_and_metadata_bytes", [total])
    with Coordinator(throwing_away=False) as coordinator:
        began = time.monotonic()
        heard = coordinator.heard
        _begin(coordinator, work)
        figures.add(case, "start_ms", [(time.monotonic() - began) * 1000])
        figures.add(case, "start_bytes", [coordinator.heard - heard])


def _begin(coordinator: Coordinator, work: Path) -> None:
    conf = {"spark.ckpt.storage": f"file://{work}/storage"}
    coordinator.ask("hello", jar=__version__, conf=conf, spark={}, spark_version="4.3.0", host="host")
    coordinator.ask("open", root=_ROOT, query_id=None)
    job = {"operators": [], "sources": ["FileSource"], "sink": "noop"}
    folder = work / "handed-over"
    folder.mkdir(exist_ok=True)
    coordinator.ask("start", root=_ROOT, query_id="q", run_id="r", job=job, files=[], folder=str(folder))


def _handed_over(work: Path, content: bytes) -> Any:
    """As the JVM does it."""
    if len(content) <= LARGE:
        return encoded(content.decode())
    file = work / "handed-over" / "compact"
    file.write_bytes(content)
    digest = sha256(content).hexdigest()[:DIGITS]
    return {"file": str(file), "length": len(content), "checksum": zlib.crc32(content), "digest": digest}
