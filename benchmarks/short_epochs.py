"""Short epochs over few keys: do an epoch's bytes, `_metadata` and a restart stay what they were, or do they grow with the chains?

A changelog names all that lie before it in its chain, so a chain of n costs n times n; Spark's own maintenance comes once a minute only.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.access_log import Kind, Request, between, by_kind, of_stream
from benchmarks.chains import NO_SNAPSHOTS
from benchmarks.epochs import Tell
from benchmarks.far_s3 import FarS3
from benchmarks.session import Session
from benchmarks.systems import Setup, System, set_up
from benchmarks.workloads import Workload

ROWS = 200
FIRST = 5
"""So many epochs of a stream have short chains and no full snapshot yet: what an epoch's bytes are compared with."""
_EPOCH_S = 5.0


@dataclass(frozen=True)
class Life:
    """One application of the stream. Bytes are those of puts, of an epoch; `state` leaves `_metadata` and the log out."""

    first_epoch_ms: float
    gets: int
    epoch_ms: float
    state_bytes: float
    most_state_bytes: int
    first_state_bytes: float
    metadata_bytes: float
    most_metadata_bytes: int


def run(partitions: int, epochs: int, lives: int, s3: FarS3, folder: Path, tell: Tell, snapshots: bool = True) -> list[Life]:
    """Applications one after the other on one stream, each on an empty disk. Raises BenchmarkError."""
    setup = set_up(System.S3, s3, folder, {} if snapshots else NO_SNAPSHOTS)
    return [_life(setup, Workload("narrow", partitions, ROWS), epochs, number, s3, folder / str(number), tell) for number in range(lives)]


def _life(setup: Setup, work: Workload, epochs: int, number: int, s3: FarS3, folder: Path, tell: Tell) -> Life:
    folder.mkdir()
    conf = {**setup.conf, "spark.local.dir": str(folder / "local"), "spark.sql.streaming.numRecentProgressUpdates": "10"}
    with Session(Setup(setup.system, conf, setup.locations, setup.bucket, setup.environment), folder) as session:
        session.hello()
        before = s3.log.stat().st_size
        timeout_s = 60 + epochs * _EPOCH_S
        answer = session.turn(work, f"{setup.locations}/q", warm=0, epochs=epochs, timeout_s=timeout_s, log=s3.log)
    shutil.rmtree(folder / "local", ignore_errors=True)
    shutil.rmtree(setup.locations.removeprefix("file://"), ignore_errors=True)
    ends = [before, *(mark["log_bytes"] for mark in answer["marks"])]
    found = [of_stream(between(s3.log, *span), setup.bucket, "q") for span in pairwise(ends)]
    state = [_put(requests, "/seg/", "/sst/") for requests in found]
    metadata = [size for requests in found if (size := _put(requests, "/_metadata"))]
    times = [mark["at_ms"] for mark in answer["marks"]]
    life = Life(
        answer["start_ms"],
        by_kind(found[0])[Kind.GET],
        statistics.median(after - at for at, after in pairwise(times)),
        statistics.fmean(state),
        max(state),
        statistics.fmean(state[1 : FIRST + 1]),
        statistics.fmean(metadata),
        max(metadata),
    )
    tell(f"short epochs: application {number}, {len(found)} epochs: {life}")
    return life


def _put(requests: list[Request], *within: str) -> int:
    return sum(r.size for r in requests if r.kind is Kind.PUT and r.status < 300 and any(part in r.key for part in within))
