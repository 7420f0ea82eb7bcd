"""A million epochs: what lies in the storage, and what a start asks and reads, does not grow with them."""

from __future__ import annotations

import pytest

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.retention.log_trim import DAY_MS, EVERY
from spark_ckpt.protocol.settings import Settings
from tests.drivers.protocol_driving import Driver, World
from tests.drivers.protocol_starts import started

EPOCH_MS = 1000
A_RUN = 50_000
"""Epochs between two restarts."""


class Asked:
    """What one start asks of the storage, and the bytes of log entries that it is answered."""

    def __init__(self, driver: Driver) -> None:
        self.questions = 0
        self.bytes = 0
        self._world = driver.world
        driver.hold = self._see

    def _see(self, i: Instruction) -> bool:
        if hasattr(i, "ticket"):
            self.questions += 1
        if isinstance(i, do.ReadEntry):
            self.bytes += len(self._world.log.get(i.number, b""))
        return False


def run_epochs(epochs: int, a_run: int, kept_ms: int) -> None:
    world = World()
    settings = Settings(retained=3, log_kept_ms=kept_ms)
    most_entries = most_objects = 0
    asked: list[Asked] = []
    epoch = run = 0
    while epoch < epochs:
        run += 1
        driver = Driver(world, settings)
        asked.append(Asked(driver))
        assert started(driver.start(f"n{run}")).epoch == epoch
        driver.hold = lambda _: False
        for _ in range(min(a_run, epochs - epoch)):
            world.clock_ms += EPOCH_MS
            driver.epoch(run, epoch)
            driver.said.clear()
            epoch += 1
            if epoch % EVERY == 0:
                most_entries = max(most_entries, len(world.log))
                most_objects = max(most_objects, len(world.objects) + len(world.checkpoints))
        driver.push(ev.StopRequested(failed=False))
    questions, read = max(a.questions for a in asked), max(a.bytes for a in asked)
    stored = f"at most {most_entries} log entries, {most_objects} other objects"
    print(f"{epochs} epochs in {run} runs: {stored}; a start: {questions} questions, {read} bytes")
    assert most_entries <= kept_ms // EPOCH_MS + 2 * EVERY + 4
    assert most_objects <= 20
    assert questions <= 20
    assert read <= 10_000


def test_ten_thousand_with_a_short_day() -> None:
    run_epochs(10_000, 2_500, 2_000 * EPOCH_MS)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_million() -> None:
    run_epochs(1_000_000, A_RUN, DAY_MS)
