"""A query in real time under kills, Kafka to Kafka: SIGKILL of the driver with its disk deleted, in the middle of a batch, and between its
end and its checkpoint; and of executors, with checkpoints on a real S3 server 20 ms away. Nothing is lost, the state is that of a batch
query over the topic, and what comes twice was read behind the last checkpoint.

`SEED=7 KILLS=10` in the environment repeat and lengthen it. Prints what was killed, and how much came twice; `make campaign` records it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.protocol.entries import Plan
from testbed.kafka import KafkaBroker
from testbed.lossy_proxy import LossyProxy, Wire, WireFault
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.real_time import RealTimeTrial, feed
from tests.drivers.spark.s3_server import FAR, Server
from tests.drivers.spark.topics import Topics

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("KILLS") or 6)
BATCH_S, A_SECOND, PATIENCE_S = 2, 100, 60
MODES: Mapping[str, Mapping[str, str]] = {"every-batch": {}, "interval": {"spark.ckpt.interval": "5s"}}
RECORDED = {"every-batch": "every epoch", "interval": "interval"}
"""What the campaign's results call them."""
Record = Callable[[str, object], None]
"""pytest's `record_property`."""
CLUSTER = "local-cluster[2,3,1024]"
EXECUTOR = "CoarseGrainedExecutorBackend"
OUTLIVED = 3
"""So many batches after the death of an executor the query has outlived it."""


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    with KafkaBroker(tmp_path / "broker") as broker:
        yield Topics(broker, seed)


def records(trial: RealTimeTrial) -> list[int]:
    """Epochs that have ended, as the log says."""
    return sorted(entry.epoch for entry in trial.log.values() if isinstance(entry, Plan) and entry.real_time and entry.offsets)


def renew(trial: RealTimeTrial) -> None:
    """One more record of each key, at least: what came twice has come before it."""
    records = trial.topics.records
    before = len(records)
    while {record.key for record in records[before:]} != {record.key for record in records[:before]}:
        trial.produce(10)
    trial.wait()


@contextmanager
def ended(trial: RealTimeTrial) -> Iterator[Callable[[], bool]]:
    """Whether another batch has ended since."""
    seen = records(trial)
    yield lambda: records(trial) != seen


@contextmanager
def held_checkpoint(proxy: LossyProxy) -> Iterator[Callable[[], bool]]:
    """Whether a batch has ended since whose checkpoint will not be complete, as long as this lasts."""
    proxy.heal()
    seen = len(proxy.struck)
    for fault in (WireFault(Wire.HOLD, r"^PUT \S*/_metadata", times=None, delay_s=PATIENCE_S), FAR):  # the first one that fits strikes
        proxy.inject(fault)
    try:
        yield lambda: any(line.startswith("PUT") and "/_metadata" in line for line in proxy.struck[seen:])
    finally:
        proxy.heal()
        proxy.inject(FAR)


def outlives(trial: RealTimeTrial, app: Application) -> bool:
    """An executor that dies between two batches is replaced where what it had is stored, and the query goes on. Else the query ends."""
    before, deadline = len(records(trial)), time.monotonic() + 2 * PATIENCE_S
    while app.running:
        if len(records(trial)) >= before + OUTLIVED:
            return True
        assert time.monotonic() < deadline, "the query neither ends nor goes on"
        time.sleep(0.1)
    assert app.wait(1) != 0
    return False


def killed_often(trial: RealTimeTrial, mode: str, how: Mapping[str, Any], record: Record, proxy: LossyProxy | None = None) -> None:
    """Each second kill comes when a batch has ended; with a proxy before its checkpoint is complete. Where `how` has executors, each third
    kill is that of one of them: the query ends by itself, or goes on and is killed then. Each is recorded."""
    topics, conf = trial.topics, MODES[mode]
    again: dict[str, Any] = {"every": f"{BATCH_S} seconds", **how}
    trial.produce(200)
    app = trial.start(conf, **again)
    trial.wait_for_checkpoint()
    for number in range(KILLS):
        trial.wait_for_checkpoint()  # a JVM's first batch may be over before its tasks have read anything
        feed(trial, topics.rng.uniform(BATCH_S, 3 * BATCH_S), A_SECOND)
        middle, executor, outlived = number % 2 == 0, bool(how) and number % 3 == 2, False
        held = proxy is not None and not middle
        with held_checkpoint(proxy) if proxy is not None and not middle else ended(trial) as has_come:
            deadline = time.monotonic() + PATIENCE_S
            while not has_come():
                assert time.monotonic() < deadline, "no batch ends"
                trial.produce(2)
                time.sleep(0.02)
            if middle:
                feed(trial, topics.rng.uniform(0.2, 0.8) * BATCH_S, A_SECOND)
            if executor:
                app.kill_one(EXECUTOR)
                outlived = outlives(trial, app)
            trial.lose_the_machine()
        (_, epoch), over = trial.checkpoints[-1], records(trial)
        last, behind = over[-1], sum(n > epoch for n in over)
        assert last > epoch or not held, "its checkpoint was complete"
        before, twice = trial.state(), trial.twice()
        app = trial.start(conf, **again)
        renew(trial)
        more = trial.twice() - twice
        killed, came = "executor" if executor else "machine", sum(more.values())
        killed += ", which the query has outlived" if outlived else ""
        when = "in a batch" if middle else "before its checkpoint" if held else "after a batch"
        print(f"kill {number + 1} of {KILLS}, {killed} {when}: checkpoint {epoch}, ended {last}; {came} came twice", flush=True)
        kill = {"storage": "file" if proxy is None else "s3", "mode": RECORDED[mode], "batch_s": BATCH_S, "a_second": A_SECOND}
        record("kill", json.dumps({**kill, "killed": killed.partition(",")[0], "when": when, "behind": behind, "twice": came}))
        assert all(n > before.get(key, (0,))[0] for key, n in more), "rows came twice that the checkpoint held"
        assert trial.missing() == []
    trial.wait_for_state()
    trial.stop()
    doubles = sum(trial.twice().values())
    assert doubles, "nothing came twice, so nothing was seen of what may"
    print(f"{mode}: {len(topics.records)} records, {len(trial.said())} came out, {doubles} of them more than once, 0 missing", flush=True)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_and_only_what_no_checkpoint_held_comes_twice(
    start: Start, topics: Topics, tmp_path: Path, mode: str, record_property: Record
) -> None:
    killed_often(RealTimeTrial(start, topics, tmp_path), mode, {}, record_property)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_over_s3_with_executors(
    start: Start, s3: Server, topics: Topics, tmp_path: Path, mode: str, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    killed_often(RealTimeTrial(start, topics, tmp_path, s3=s3), mode, {"master": CLUSTER}, record_property, s3.proxy)
