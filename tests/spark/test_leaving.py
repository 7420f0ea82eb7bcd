"""Machines that are told to go: what they keep is stored before they do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import Steady

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_sigterm_to_the_whole_group_does_not_cut_the_upload_in_hand(start: Start, s3: Server, tmp_path: Path) -> None:
    """As YARN, systemd and Kubernetes do it."""
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    app = steady.start()
    steady.until_epochs("fat", 3)
    s3.proxy.inject(WireFault(Wire.HOLD, r"^PUT \S*/seg/", delay_s=2))
    steady.until(lambda: bool(s3.proxy.struck), "an upload in hand")
    epoch = int(s3.proxy.struck[-1].split("/seg/")[1].split("-")[0])
    app.signal_group(signal.SIGTERM)
    app.until_gone("spark_ckpt.agent", "spark_ckpt.coordinator")
    assert any(line.startswith("PUT") and f"/ack/{epoch}-" in line for line in s3.proxy.requests), "the agent has left no acknowledgement"


@pytest.mark.campaign
def test_executors_that_are_decommissioned_or_terminated_hand_over_what_they_keep(start: Start, s3: Server, tmp_path: Path) -> None:
    """No checkpoint has it: without them the query would have to go back to its beginning."""
    steady = Steady(start, s3, tmp_path, ("fat",), rows=200, size=128)
    app = steady.start(master="local-cluster[2,1,1024]", interval="1h", **{"spark.decommission.enabled": "true"})
    for number in (signal.SIGPWR, signal.SIGTERM):
        steady.until_epochs("fat", 4)
        pid = next(pid for pid, command in app.descendants() if "CoarseGrainedExecutorBackend" in command and "java" in command)
        os.kill(pid, number)
        app.until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"the end of an executor by {number.name}")  # type: ignore[misc]
    steady.until_epochs("fat", 4)
    steady.stop()
    steady.tell("end")
    app.expect_success()
    assert "goes back to its last completed checkpoint" not in app.log.read_text()
    assert "/run-00000002/" not in "".join(s3.proxy.requests)
    assert steady.numbers("fat")
