"""Short epochs over few keys: do an epoch's bytes, `_metadata` and a restart stay what they were, or do they grow with the chains?

A changelog names all that lie before it in its chain, so a chain of n costs n times n; Spark's own maintenance comes once a minute only.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.access_log import Kind, Request, between, by_kind, bytes_put, of_stream
from benchmarks.chains import SELDOM
from benchmarks.epochs import Rounds, Tell
from benchmarks.far_s3 import FarS3
from benchmarks.figures import Case, Figures
from benchmarks.session import Session
from benchmarks.systems import Setup, System, set_up
from benchmarks.workloads import Workload

EXPERIMENT = "short epochs"
OURS, SELDOM_FULL = System.S3.value, "the same, a full snapshot every 500 epochs"
"""The other one is set to have none; at 500 changelogs the plugin asks for one all the same (`LoadedChain.scala`). Where an epoch takes
0.12 s, Spark's own maintenance, once a minute, would come as often."""
PARTITIONS, EPOCHS, ROWS = 4, 5_000, 200
EARLY = 10
"""After this part of all epochs a restart is early, after all of them late."""
LAST = 200
"""So many epochs before a restart are looked at: as many as a chain has at most before a full snapshot is due (`LoadedChain.scala`)."""
_EPOCH_S, _START_S = 5.0, 60.0


def rounds(epochs: int, s3: FarS3, folder: Path, tell: Tell, with_seldom: bool = True) -> Rounds:
    """Each has a stream of its own. `size` of the cases is epochs. `with_seldom`: in the first one full snapshots are tried seldom as well,
    once, for bytes are counted, and no restart ends the chains that it is about. Raises BenchmarkError."""
    for number in itertools.count(1):
        found = Figures()
        _stream(epochs, number, s3, folder / str(number), found, tell)
        if number == 1 and with_seldom:
            _seldom(epochs, s3, folder / "seldom", found, tell)
        yield found


def _stream(epochs: int, number: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    """Three applications one after the other, each on an empty disk: from the beginning, from the early restart, and from the late one."""
    case, early = Case(EXPERIMENT, OURS, PARTITIONS, epochs), max(1, epochs // EARLY)
    setup, put, elsewhere = set_up(System.S3, s3, folder), 0, 0.0
    for what, count in (("empty", early), ("early", epochs - early), ("late", 1)):
        tell(f"short epochs: round {number}, {what}: {count} epochs")
        requests, answer = _application(setup, count, s3, folder / what)
        figures.add(case, f"{what}_ms", [answer["start_ms"]])
        elsewhere = max(elsewhere, answer["elsewhere_percent"])
        figures.add(case, f"{what}_get_requests", [by_kind(requests[0])[Kind.GET]])
        if what == "late":
            break
        before = "early" if what == "empty" else "late"  # what comes before the next restart
        figures.add(case, f"{before}_epoch_ms", [_epoch_ms(answer)])
        figures.add(case, f"{before}_metadata_bytes", [_metadata_bytes(requests)])
        put += _put_bytes(requests)
    figures.add(case, "put_bytes", [put / epochs])
    figures.add(case, "elsewhere_percent", [elsewhere])
    shutil.rmtree(folder)


def _seldom(epochs: int, s3: FarS3, folder: Path, figures: Figures, tell: Tell) -> None:
    tell(f"short epochs: {SELDOM_FULL}: {epochs} epochs")
    case = Case(EXPERIMENT, SELDOM_FULL, PARTITIONS, epochs)
    requests, answer = _application(set_up(System.S3, s3, folder, SELDOM), epochs, s3, folder / "application")
    figures.add(case, "late_epoch_ms", [_epoch_ms(answer)])
    figures.add(case, "late_metadata_bytes", [_metadata_bytes(requests)])
    figures.add(case, "put_bytes", [_put_bytes(requests) / epochs])
    shutil.rmtree(folder)


def _application(setup: Setup, epochs: int, s3: FarS3, folder: Path) -> tuple[list[list[Request]], dict[str, Any]]:
    """The requests of each epoch; those of the start are with the first one."""
    new = setup.on_new_machine(folder, {"spark.sql.streaming.numRecentProgressUpdates": "10"})
    with Session(new, folder) as session:
        session.hello()
        before = s3.log.stat().st_size
        work, timeout_s = Workload("narrow", PARTITIONS, ROWS), _START_S + epochs * _EPOCH_S
        answer = session.turn(work, f"{setup.locations}/q", warm=0, epochs=epochs, timeout_s=timeout_s, log=s3.log, told=1)
        answer["elsewhere_percent"] = session.elsewhere_percent()
    ends = [before, *(mark["log_bytes"] for mark in answer["marks"][:epochs])]
    return [of_stream(between(s3.log, *span), setup.bucket, "q") for span in pairwise(ends)], answer


def _epoch_ms(answer: dict[str, Any]) -> float:
    """Of the last epochs, the median from the end of one to the end of the next."""
    ends: list[float] = [mark["at_ms"] for mark in answer["marks"]][-LAST - 1 :]
    return statistics.median(after - before for before, after in pairwise(ends))


def _metadata_bytes(requests: Sequence[Sequence[Request]]) -> float:
    """Of the last epochs, the mean: it goes up and down with the chains."""
    return statistics.fmean(r.size for one in requests[-LAST:] for r in one if r.key.endswith("/_metadata") and r.operation == "PutObject")


def _put_bytes(requests: Sequence[Sequence[Request]]) -> int:
    return sum(bytes_put(one).total() for one in requests)
