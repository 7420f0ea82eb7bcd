"""Turns, one after the other: each an application of its own, with topics of its own."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.application import Application
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.figures import Case, Figures
from benchmarks.realtime import applications, systems
from benchmarks.realtime.systems import PROGRESS, ROOT, Engine, Turn
from benchmarks.realtime.topics import Passed, Topics
from benchmarks.spent import spending
from testbed.kafka import KafkaBroker
from testbed.servers import UnavailableError, ending_with_starter

EXPERIMENT = "real time"
START_S, WARM_S, SETTLE_S, DRAIN_S = 120.0, 60.0, 60.0, 60.0
"""`WARM_S`: of the query that runs before. `SETTLE_S`: of the one that is measured, so that its state has most of its keys and a chain."""
LEAST, SHORTEST_S = 4, 30.0
"""A turn is measured for at least so many batches, and for at least so long."""
STAMP_MS = 0.005
"""More than what is lost where a stamp becomes a whole number of microseconds, and less than is between two records."""
BEHIND_MS, SENT_AT_LEAST = 2000.0, 0.98
PERCENTILES = (50, 90, 99, 99.9)
OTHERS = "elsewhere_percent"
BATCHES = "batches_count"
"""How many batches' lengths a turn was measured for."""
Tell = Callable[[str], None]


def case_of(turn: Turn) -> Case:
    return Case(f"{EXPERIMENT}, batches of {turn.batch_s:g} s", turn.engine.value, turn.partitions, turn.rate)


def file_of(folder: Path, batch_s: float, partitions: int) -> Path:
    """What is compared with each other is measured in one run: batches of each length, with each number of partitions."""
    return folder / f"real-time-{batch_s:g}s-{partitions}.json"


def rounds_left(turns: Sequence[Turn], rounds: int, figures: Figures) -> list[Turn]:
    """So many rounds, less what is measured. Each round begins with another turn: whoever comes first has the machine otherwise."""
    left: list[Turn] = []
    for number in range(rounds):
        first = number * len(turns) // rounds
        left += [turn for turn in (*turns[first:], *turns[:first]) if len(figures.values(case_of(turn), "sent_count")) <= number]
    return left


def run(turns: Sequence[Turn], rounds: int, figures: Figures, tell: Tell, save: Callable[[], None]) -> None:
    """What `figures` do not hold yet. Raises BenchmarkError where a server cannot be had."""
    left = rounds_left(turns, rounds, figures)
    behind = {_but_rate(turn) for turn in turns if figures.values(case_of(turn), "sent_count") and not kept_up(figures, case_of(turn))}
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-") as work, far_s3(Path(work) / "far") as s3:
        try:
            broker = KafkaBroker(Path(work) / "kafka")
        except UnavailableError as e:
            raise BenchmarkError(str(e)) from e
        with broker:
            for number, turn in enumerate(left):
                if _but_rate(turn) in behind:
                    continue
                name = f"turn-{number}"
                figures.notes = [note for note in figures.notes if not note.startswith(f"{_said(turn)}:")]
                try:
                    warm = Topics(broker.address, f"warm-{name}")
                    measured = measure(turn, warm, Topics(broker.address, name), s3, Path(work) / name)
                except BenchmarkError as e:
                    figures.note(f"{_said(turn)}: {str(e).splitlines()[0]}")  # what follows are lines of a log, with paths
                    tell(f"{_said(turn)}: {e}")
                    save()
                    continue
                for metric, values in measured.items():
                    figures.add(case_of(turn), metric, values)
                if not kept_up(figures, case_of(turn)):
                    behind.add(_but_rate(turn))
                save()
                tell(f"{_said(turn)}: {shown(measured)}")


def kept_up(figures: Figures, case: Case) -> bool:
    """In each round as many came out as were to be sent, soon after the last was due."""
    rounds = zip(*(figures.values(case, metric) for metric in ("out_count", "sent_count", "behind_ms")), strict=True)
    return all(out >= SENT_AT_LEAST * sent and behind < BEHIND_MS for out, sent, behind in rounds)


def _said(turn: Turn) -> str:
    return f"{turn.engine.value}, {turn.partitions} partitions, batches of {turn.batch_s:g} s, {turn.rate} a second"


def _but_rate(turn: Turn) -> Turn:
    """What a turn has in common with those of the same at other rates."""
    return replace(turn, rate=0)


def shown(measured: dict[str, list[float]]) -> str:
    percentiles = ", ".join(f"p{p:g} {measured[f'p{p:g}_ms'][0]:.0f}" for p in PERCENTILES)
    out, sent, still = (measured[metric][0] for metric in ("out_count", "sent_count", "standstill_ms"))
    return f"{percentiles} ms, standstill {still:.0f} ms, {out:.0f} of {sent:.0f}"


def measure(turn: Turn, warm: Topics, topics: Topics, s3: FarS3, folder: Path) -> dict[str, list[float]]:
    """Raises BenchmarkError."""
    seconds = max(SHORTEST_S, LEAST * turn.batch_s)
    with systems.application(turn, warm, topics, s3, folder) as application:
        if turn.engine is not Engine.FLINK:
            _wait_for_the_first(warm, application)
            _feed(warm, turn.rate, WARM_S)
            application.tell()
        _wait_for_the_first(topics, application)
        before = topics.count()
        settle_s = max(SETTLE_S, turn.batch_s)
        told = _feed(topics, turn.rate, settle_s + seconds, settle_s)
        deadline = time.monotonic() + DRAIN_S + turn.batch_s
        while topics.count() < before + told["sent"] and time.monotonic() < deadline:
            application.check()
            time.sleep(0.2)
    end_ms = told["ended_ms"]
    began_ms = end_ms - seconds * 1000
    measured = [one for one in topics.passed() if one.sent_ms > began_ms + STAMP_MS]
    if not measured:
        raise BenchmarkError("nothing came out of what was sent while it was measured")
    latencies = sorted(one.latency_ms for one in measured)
    found = {f"p{p:g}_ms": [percentile(latencies, p)] for p in PERCENTILES}
    found["most_ms"] = [latencies[-1]]
    found["standstill_ms"] = [statistics.median(standstills(measured, began_ms, end_ms, turn.batch_s) or [0.0])]
    found[OTHERS] = [told[OTHERS]]
    found["late_ms"] = [told["late_ms"]]
    found[BATCHES] = [seconds / turn.batch_s]
    found["out_count"] = [float(len(measured))]
    found["sent_count"] = [float(int(turn.rate * seconds))]
    found["behind_ms"] = [max(0.0, max(one.out_ms for one in measured) - end_ms)]
    if turn.engine is Engine.FLINK:
        return found | applications.of_flink(application.log, began_ms, end_ms)
    return found | applications.of_spark(folder / PROGRESS, turn.batch_s, began_ms, end_ms)


def _wait_for_the_first(topics: Topics, application: Application) -> None:
    fed = _feed(topics, 100, 2.0)
    deadline = time.monotonic() + START_S
    while topics.count() < fed["sent"]:
        application.check()
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{topics.count()} of {fed['sent']} records came out within {START_S} s")
        time.sleep(0.2)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the least of these values in order that so many of a hundred do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def standstills(passed: Sequence[Passed], began_ms: float, end_ms: float, batch_s: float) -> list[float]:
    """Of each stretch as long as a batch, the longest time that began in it and in which nothing came out, wherever that ended.

    Counted where it begins: two batches with what is between them are longer than a stretch, so that every other border would cut one.
    """
    length = batch_s * 1000
    outs = sorted(one.out_ms for one in passed if began_ms <= one.out_ms <= end_ms)
    longest: dict[int, float] = {}
    for before, after in itertools.pairwise(outs):
        stretch = int((before - began_ms) // length)
        longest[stretch] = max(longest.get(stretch, 0.0), after - before)
    return [gap for stretch, gap in longest.items() if began_ms + (stretch + 1) * length <= end_ms]


def _feed(topics: Topics, rate: float, seconds: float, settle_s: float = 0) -> dict[str, Any]:
    """What the feeder tells, and OTHERS: of the time behind `settle_s`."""
    command = [sys.executable, "-m", "benchmarks.realtime.feeder", topics.servers, topics.source, str(rate), str(seconds)]
    feeder = subprocess.Popen(ending_with_starter(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with suppress(subprocess.TimeoutExpired):
            feeder.wait(settle_s)
        with spending(lambda: processes.tree_cpu_ms(os.getpid())) as used:
            said, wrong = feeder.communicate(timeout=seconds + DRAIN_S)
    except subprocess.TimeoutExpired as e:
        raise BenchmarkError(f"the feeder did not end within {seconds + DRAIN_S:.0f} s: is the broker alive?") from e
    finally:
        feeder.kill()
        feeder.wait()
    if feeder.returncode != 0:
        raise BenchmarkError(f"the feeder ended with {feeder.returncode}: {wrong[-500:]}")
    found: dict[str, Any] = json.loads(said)
    return found | {OTHERS: used.spent.elsewhere_percent}
