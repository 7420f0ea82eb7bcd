"""A year of flights in the interval mode, with SIGKILLs of drivers and executors at random moments; the sink must equal a batch query.

`SEED=7 KILLS=50` in the environment repeat and lengthen it. Prints for every kill how long it took until the first epoch that is new.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flights_data import write

from spark_ckpt.paths import LOG_PREFIX, stream_url
from spark_ckpt.protocol.entries import Claim, Plan, decode
from tests.drivers.spark.harness import Application

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(5400)]

KILLS = int(os.environ.get("KILLS") or 20)
EPOCHS, EPOCHS_A_KILL = 40, 14
EPOCHS_BETWEEN, LONGEST_S, STUCK_S = 8, 3.0, 300
EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = Path(__file__).parent / "flights_stream.py"
INTERVAL = os.environ.get("INTERVAL") or "2s"


class Stage:
    """When things happened after a kill, in seconds since 1970. 0: it did not."""

    def __init__(self, killed: float) -> None:
        self.killed = killed
        self.started = 0.0
        """The test started a new driver."""
        self.claimed = 0.0
        """Without a claim nothing was lost with the executor: the query went on, its tasks ran elsewhere."""
        self.first = 0.0
        """The first epoch began."""
        self.new = 0.0
        """An epoch was planned that had not been planned before."""

    def split(self) -> dict[str, float]:
        """Seconds: until the stream was claimed, until an epoch ran, until one ran that is new. Nobody detects a driver's death."""
        if not self.claimed:
            return {"next epoch": round(self.new - self.killed, 2)}
        claimed = {"start Spark": self.claimed - self.started} if self.started else {"detect": self.claimed - self.killed}
        split = {**claimed, "restore": self.first - self.claimed, "replay": self.new - self.first}
        return {name: round(seconds, 2) for name, seconds in split.items()}


class Trial:
    """One stream of many lives."""

    def __init__(self, start: Callable[..., Application], tmp: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tmp = tmp
        self.source, self.location, self.local, self.out = (tmp / name for name in ("in", "location", "local", "out"))
        self.seen = tmp / "seen.jsonl"
        self.storage = tmp / "storage"
        self.log = Path(stream_url(f"file://{self.storage}", f"file:{self.location}").removeprefix("file://")) / LOG_PREFIX
        self.files = write(self.source, seed, timedelta(days=365) / (EPOCHS + EPOCHS_A_KILL * KILLS))[0]
        self._start = start
        self._read: dict[int, Claim | Plan] = {}
        self.app = self.start()

    def start(self) -> Application:
        conf = {
            "spark.ckpt.interval": INTERVAL,
            "spark.local.dir": str(self.local),
            "spark.executorEnv.PYTHONPATH": str(EXAMPLES),
        }
        args = ("run", str(self.source), str(self.location), str(self.out), str(self.seen))
        env = {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
        master = "local-cluster[2,1,1024]"
        return self._start(str(SCRIPT), *args, storage=f"file://{self.storage}", master=master, conf=conf, env=env)

    def entries(self) -> Iterator[tuple[float, Claim | Plan]]:
        """(time stored, entry) of every claim and plan."""
        for path in sorted(self.log.glob("0*")):
            number = int(path.name)
            if number not in self._read:
                entry = decode(number, path.read_bytes())
                if isinstance(entry, (Claim, Plan)):
                    self._read[number] = entry
            if number in self._read:
                yield path.stat().st_mtime, self._read[number]

    def epochs(self) -> int:
        """How many epochs have been planned."""
        return len({entry.epoch for _, entry in self.entries() if isinstance(entry, Plan)})

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.seen.read_text().splitlines()] if self.seen.exists() else []

    def begun(self, since: float) -> list[float]:
        """When epochs began, of those that ended."""
        return [line["began"] for line in self.told() if line.get("began", 0.0) >= since]

    def sleep(self, epochs: int, seconds: float) -> None:
        reached = self.epochs() + epochs
        self.app.until(lambda: self.epochs() >= reached, f"{epochs} more epochs", STUCK_S)
        time.sleep(seconds)

    def after(self, stage: Stage, planned: int) -> None:
        """Wait for the first epoch that is new, and fill the stage from what the storage and a listener saw."""
        self.app.until(lambda: self.epochs() > planned, "a new epoch after the kill", STUCK_S)
        stage.claimed = next((at for at, entry in self.entries() if isinstance(entry, Claim) and at > stage.killed), 0.0)
        seen: set[int] = set()
        for at, entry in self.entries():
            if isinstance(entry, Plan):
                if at > stage.killed and entry.epoch not in seen and not entry.rerun:
                    stage.new = at
                    break
                seen.add(entry.epoch)
        since = (stage.claimed or stage.killed) - 1
        self.app.until(lambda: bool(self.begun(since)), "progress after the kill", STUCK_S)
        stage.first = self.begun(since)[0]


@pytest.fixture
def trial(start: Callable[..., Application], tmp_path: Path) -> Trial:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    return Trial(start, tmp_path, seed)


def test_a_year_of_flights_survives(trial: Trial, start: Callable[..., Application]) -> None:
    kills = ["machine"] * (KILLS // 2) + [trial.rng.choice(["driver", "executor"]) for _ in range(KILLS - KILLS // 2)]
    trial.rng.shuffle(kills)
    splits: dict[str, list[dict[str, float]]] = {}
    for number, what in enumerate(kills, 1):
        trial.sleep(trial.rng.randrange(1, EPOCHS_BETWEEN), trial.rng.uniform(0, LONGEST_S))
        planned = trial.epochs()
        stage = Stage(time.time())
        if what == "executor":
            trial.app.kill_one("CoarseGrainedExecutorBackend")
        else:
            trial.app.kill()
            if what == "machine":
                for folder in (trial.location, trial.local):
                    shutil.rmtree(folder, ignore_errors=True)
            stage.started = time.time()
            trial.app = trial.start()
        trial.after(stage, planned)
        split = stage.split()
        kind = what if stage.claimed else f"{what}, nothing lost"
        splits.setdefault(kind, []).append(split)
        print(f"kill {number} of {KILLS}: {kind}, epoch {planned} of some {trial.files}: {split}", flush=True)
    trial.app.expect_success(1800)
    for what, found in sorted(splits.items()):
        medians = {name: statistics.median(split[name] for split in found) for name in found[0]}
        print(f"{what}: median seconds of {len(found)} kills: {medians}, together {sum(medians.values()):.1f}", flush=True)

    env = {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
    app = start(str(SCRIPT), "compare", str(trial.source), str(trial.out), storage=None, plugin=False, env=env)
    app.expect_success(600)
    found = json.loads(next(line for line in app.log.read_text().splitlines() if line.startswith('{"expected"')))
    print(found, flush=True)
    assert found["expected"] > 0
    assert (found["missing"], found["excess"]) == (0, 0)
