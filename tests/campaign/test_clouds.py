"""Kills of real applications that keep their checkpoints in Google Cloud Storage or Azure, as emulators have them, and lose their disk."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.paths import stream_url
from spark_ckpt.storage import open_storage
from testbed.clouds import Emulator
from testbed.lossy_proxy import LossyProxy, Wire, WireFault
from tests.drivers.emulators import BUCKET
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import PAIR

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(1500)]

KILLS = int(os.environ.get("KILLS") or 6)
STUCK_S = 300
OF_MANY = ("update", "outer")
"""An aggregation and a join."""
OF_PLANS = r"^PUT \S*(/|%2F)windows(/|%2F)log(/|%2F)"
OF_SEGMENTS = r"^PUT \S*(/|%2F)windows(/|%2F)\S*(/|%2F)seg(/|%2F)"
OF_METADATA = r"^PUT \S*(/|%2F)windows(/|%2F)\S*(/|%2F)(_|%5F)metadata"
POINTS = {
    "before the plan is stored": WireFault(Wire.HOLD, OF_PLANS, skip=2, delay_s=60),
    "in the epoch": WireFault(Wire.HOLD, OF_SEGMENTS, skip=1, times=None, delay_s=60),
    "between the last ack and _metadata": WireFault(Wire.HOLD, OF_METADATA, skip=1, delay_s=60),
    "between _metadata and commits/N": WireFault(Wire.HOLD_ANSWER, OF_METADATA, skip=1, delay_s=60),
}


class CloudTrial:
    """Two queries with their checkpoints in a cloud, as often as it takes, then the comparison."""

    def __init__(
        self, start: Start, emulator: Emulator, proxy: LossyProxy, source: Path, tmp_path: Path, names: tuple[str, ...] = PAIR
    ) -> None:
        self.proxy, self.names = proxy, names
        self.env = emulator.environment(proxy.endpoint)
        self.storage = f"{emulator.scheme}://{BUCKET}/{tmp_path.name.strip('_').replace('_', '-')}"
        self.locations, self.out = tmp_path / "locations", tmp_path / "out"
        self._begin = start
        self._args = ("operators.py", "run", ",".join(names), str(source), str(self.locations), str(self.out))

    def start(self) -> Application:
        self.app = self._begin(*self._args, storage=self.storage, env=self.env)
        return self.app

    def lose_the_machine(self) -> None:
        self.app.kill()
        for folder in (self.locations, self.app.log.with_suffix(".scratch")):
            shutil.rmtree(folder, ignore_errors=True)

    def stored(self) -> int:
        """Puts of the checkpoints' `_metadata` so far."""
        return sum(line.startswith("PUT") and "metadata" in line for line in self.proxy.requests)

    def compare(self, oracle: Mapping[str, Path]) -> None:
        for name in self.names:
            assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
            assert differences(self.out / name, oracle[name]) == [], name

    def verify(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """How many runs the streams have had, all of whose checkpoints are as they should be."""
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)
        assert run(["doctor", "--storage", self.storage, "--python", sys.executable]) == 0
        runs = 0
        for name in self.names:
            stream = stream_url(self.storage, f"file:{self.locations / name}")
            assert run(["verify", stream, "--deep", "--quiet"]) == 0
            with open_storage(stream) as storage:
                runs += len(list(storage.list_folders("run-")))
        return runs


def faults(proxy: LossyProxy) -> None:
    """About every third request from now on."""
    for skip in range(2, 44, 6):
        proxy.inject(WireFault(Wire.STATUS, r"^PUT", skip=skip, status=503))
        proxy.inject(WireFault(Wire.STATUS, r"^(PUT|GET)", skip=skip + 3, status=500, code="InternalError"))
        proxy.inject(WireFault(Wire.RESET_BEFORE, r"^PUT", skip=skip + 5))
        proxy.inject(WireFault(Wire.DELAY, r"^PUT", skip=skip + 7, delay_s=0.5))
    for skip in range(6):
        proxy.inject(WireFault(Wire.LOSE_ANSWER, OF_METADATA, skip=skip, keep=26))
        proxy.inject(WireFault(Wire.LOSE_ANSWER, OF_PLANS, skip=2 * skip + 2))


def test_the_machine_is_lost_at_every_point_and_the_last_one_has_a_server_with_every_fault(
    start: Start,
    emulator: tuple[Emulator, str],
    events: Path,
    oracle: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LossyProxy(emulator[1]) as proxy:
        trial = CloudTrial(start, emulator[0], proxy, events, tmp_path)
        for point, fault in POINTS.items():
            before = len(proxy.struck)
            proxy.inject(fault)
            trial.start().until(lambda before=before: len(proxy.struck) > before, point)  # type: ignore[misc]
            trial.lose_the_machine()
            proxy.heal()
        before = len(proxy.struck)
        faults(proxy)
        trial.start().expect_success()
        assert len(proxy.struck) - before >= 20, "too few faults were hit to show anything"
        proxy.heal()
        trial.compare(oracle)
        assert trial.verify(monkeypatch) >= len(POINTS), "an application has gone on from no checkpoint of another"


def test_the_machine_is_lost_at_random_moments(
    start: Start, emulator: tuple[Emulator, str], many: Path, oracle_of_many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    rng = random.Random(seed)
    with LossyProxy(emulator[1]) as proxy:
        trial = CloudTrial(start, emulator[0], proxy, many, tmp_path, OF_MANY)
        for _ in range(KILLS):
            reached, over = trial.stored() + rng.randrange(2, 8), rng.uniform(0, 2)
            app = trial.start()
            app.until(lambda reached=reached: trial.stored() >= reached, "more checkpoints", STUCK_S)  # type: ignore[misc]
            time.sleep(over)
            trial.lose_the_machine()
        trial.start().expect_success()
        trial.compare({name: oracle_of_many / name for name in OF_MANY})
        trial.verify(monkeypatch)
