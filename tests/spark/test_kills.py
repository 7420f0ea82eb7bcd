"""Real kills, at points that the proxy in front of the S3 server sees; nothing in the product knows of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.trials import PAIR, TrialOnS3

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

AWAY_S = 15
"""Longer than a process waits that has never reached the storage, in an application that has not either."""


POINTS = {
    "before the plan is stored": WireFault(Wire.HOLD, r"^PUT \S*/windows/log/", skip=2, delay_s=60),
    "in the epoch": WireFault(Wire.HOLD, r"^PUT \S*/windows/\S*/seg/", skip=1, times=None, delay_s=60),
    "between the last ack and _metadata": WireFault(Wire.HOLD, r"^PUT \S*/windows/\S*/_metadata", skip=1, delay_s=60),
    "between _metadata and commits/N": WireFault(Wire.HOLD_ANSWER, r"^PUT \S*/windows/\S*/_metadata", skip=1, delay_s=60),
}


def faults(s3: Server) -> None:
    for skip in range(2, 44, 6):
        s3.proxy.inject(WireFault(Wire.STATUS, r"^PUT", skip=skip, status=503))
        s3.proxy.inject(WireFault(Wire.STATUS, r"^(PUT|GET)", skip=skip + 3, status=500, code="InternalError"))
        s3.proxy.inject(WireFault(Wire.RESET_BEFORE, r"^PUT", skip=skip + 5))
        s3.proxy.inject(WireFault(Wire.DELAY, r"^PUT", skip=skip + 7, delay_s=0.5))
    for skip in range(6):
        s3.proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT \S*/_metadata", skip=skip, keep=26))
        s3.proxy.inject(WireFault(Wire.LOSE_ANSWER, r"^PUT \S*/log/", skip=2 * skip + 2))


def test_the_driver_is_killed_at_every_point_and_the_last_one_has_a_server_with_every_fault(
    start: Start, s3: Server, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = TrialOnS3(start, s3, events, tmp_path)
    for number, (point, fault) in enumerate(POINTS.items()):
        before = len(s3.proxy.struck)
        s3.proxy.inject(fault)
        app = trial.start()
        app.until(lambda before=before: len(s3.proxy.struck) > before, point)  # type: ignore[misc]
        app.kill()
        s3.proxy.heal()
        if number % 2 == 0:
            shutil.rmtree(trial.locations)
    # The last one comes to its end, from a server that fails, resets, delays and loses answers.
    before = len(s3.proxy.struck)
    faults(s3)
    trial.start().expect_success()
    trial.compare(oracle)
    assert trial.seen("/run-00000005/") > 0
    assert len(s3.proxy.struck) - before >= 20, "too few faults were hit to show anything"


def test_agent_and_coordinator_are_killed_also_while_the_storage_is_away_and_the_query_goes_on(
    start: Start, s3: Server, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = TrialOnS3(start, s3, events, tmp_path)
    app = trial.start()
    for part in ("spark_ckpt.agent", "spark_ckpt.coordinator"):
        reached = trial.stored() + 3
        app.until(lambda reached=reached: trial.stored() >= reached, "three more checkpoints")  # type: ignore[misc]
        app.kill_one(part)
    # once more each, while a put of theirs is on its way
    for part, pattern in (("spark_ckpt.agent", r"^PUT \S*/seg/"), ("spark_ckpt.coordinator", r"^PUT \S*/_metadata")):
        before = len(s3.proxy.struck)
        s3.proxy.inject(WireFault(Wire.HOLD, pattern, delay_s=60))
        app.until(lambda before=before: len(s3.proxy.struck) > before, f"a put of {part}")  # type: ignore[misc]
        app.kill_one(part)
        s3.proxy.heal()
    # and at last both while the storage is away
    reached = trial.stored() + 1
    app.until(lambda: trial.stored() >= reached, "another checkpoint")
    with s3.proxy.away():
        for part in ("spark_ckpt.agent", "spark_ckpt.coordinator"):
            app.kill_one(part)
        time.sleep(AWAY_S)
    app.expect_success()
    trial.compare(oracle)
    assert trial.seen("/run-00000002/") == 0, "the running query was to survive, not to be restarted"


def test_executors_are_killed_and_the_query_goes_on(
    start: Start, s3: Server, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = TrialOnS3(start, s3, events, tmp_path, master="local-cluster[2,1,1024]")
    app = trial.start()
    app.until(lambda: trial.stored() >= 3, "three checkpoints")
    app.kill_one("CoarseGrainedExecutorBackend")
    reached = trial.stored() + 3
    app.until(lambda: trial.stored() >= reached, "three more checkpoints")
    # All executors and their agents die while no snapshot of the epoch can get to the server: the epoch has to run again, in place.
    before = len(s3.proxy.struck)
    s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/seg/", times=None, delay_s=60))

    def waits() -> bool:
        held = s3.proxy.struck[before:]
        return any(trial.waits(name) and any(f"/{name}/" in line for line in held) for name in PAIR)

    app.until(waits, "an epoch that only waits for its snapshots")
    assert app.kill_all("CoarseGrainedExecutorBackend", "spark_ckpt.agent") >= 2
    s3.proxy.heal()
    app.expect_success()
    trial.compare(oracle)
    assert trial.seen("/run-00000002/") == 0, "the running query was to survive, not to be restarted"
    assert "is run again" in app.log.read_text(), "no epoch had to be run again: the test has lost its point"
