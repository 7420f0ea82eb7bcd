"""SIGKILLs at random moments over one stream of many files, compared with a batch query. `SEED=7 KILLS=20` repeat and lengthen it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server
from harness import Application
from inputs import write_events
from oracle import differences, read

from spark_ckpt.paths import stream_url

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(3600)]

NAMES = ("windows", "outer")
KILLS = int(os.environ.get("KILLS") or 12)
CHECKPOINTS, LONGEST_S, STUCK_S = 8, 3.0, 300
PARTS = {"executor": "CoarseGrainedExecutorBackend", "agent": "spark_ckpt.agent", "coordinator": "spark_ckpt.coordinator"}
Start = Callable[..., Application]


class Trial:
    """One stream for each query, the applications that have run it, and the input so far."""

    def __init__(self, start: Start, s3: Server, tmp_path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.s3, self.tmp = s3, tmp_path
        self.source, self.locations, self.local, self.out = (tmp_path / name for name in ("in", "locations", "local", "out"))
        self.storage = f"s3://{s3.bucket}/ckpt"
        self.began = time.monotonic()
        self.files = 0
        self._start = start
        self.more(40)
        self.app = self.start()

    def tell(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {self.completed():3d} checkpoints  {what}", flush=True)

    def completed(self) -> int:
        return sum(line.startswith("PUT") and "/_metadata" in line for line in self.s3.proxy.requests)

    def more(self, files: int, closing: bool = False) -> None:
        write_events(self.source, self.files, files, closing=closing)
        self.files += files

    def start(self) -> Application:
        conf = {**self.s3.conf, "spark.local.dir": str(self.local)}
        args = ("operators.py", "run", ",".join(NAMES), str(self.source), str(self.locations), str(self.out))
        return self._start(*args, storage=self.storage, master="local-cluster[2,1,1024]", conf=conf, env=self.s3.env)

    def ended(self) -> bool:
        """An application that ended by itself must have come to the end of its input; there is more for the next one."""
        if self.app.running:
            return False
        self.app.expect_success()
        return True

    def sleep(self, checkpoints: int, seconds: float) -> None:
        """Until the application has completed so many, and so long after that: when it ends before, another one begins."""
        reached, deadline = self.completed() + checkpoints, time.monotonic() + STUCK_S
        until: float | None = None
        while until is None or time.monotonic() < until:
            if until is None and self.completed() >= reached:
                until = time.monotonic() + seconds
            assert time.monotonic() < deadline, f"no {checkpoints} checkpoints within {STUCK_S} s\n{self.app.tail()}"
            if self.ended():
                self.more(20)
                self.app = self.start()
                self.tell(f"the end of the input was reached; {self.files} files now")
            time.sleep(0.02)

    def lose_the_machine(self) -> None:
        self.app.kill()
        for folder in (self.locations, self.local):
            shutil.rmtree(folder, ignore_errors=True)
        self.app = self.start()

    def kill(self, part: str) -> int:
        """SIGKILL for one process of the kind, as soon as there is one. How many there were to choose from."""
        while not (victims := [pid for pid, command in self.app.descendants() if PARTS[part] in command]):
            self.sleep(0, 0.1)
        os.kill(self.rng.choice(sorted(victims)), 9)
        return len(victims)

    def cli(self, verb: str, name: str, *arguments: str) -> tuple[int, dict[str, object]]:
        url = stream_url(self.storage, f"file:{self.locations / name}")
        command = [sys.executable, "-m", "spark_ckpt.cli.main", verb, url, "--json", *arguments]
        command += ["--endpoint", self.s3.proxy.endpoint, "--region", "us-east-1", "--path-style"]
        done = subprocess.run(command, env={**os.environ, **self.s3.env}, capture_output=True, text=True, timeout=300, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    def collect(self) -> None:
        """`gc` beside the running query, with no belt: what it takes must not be missed."""
        for name in NAMES:
            status, document = self.cli("gc", name, "--delete", "--min-age", "0")
            error = document.get("error")
            assert status == 0 or (isinstance(error, dict) and error["kind"] in ("MISSING", "CONFLICT")), document
            self.tell(f"gc of {name}: {document.get('garbage') or error}")


def test_kills_at_random_moments(start: Start, s3: Server, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    trial = Trial(start, s3, tmp_path, seed)
    # Half of them take the disk along; the other half is drawn from all parts.
    kills = ["machine"] * (KILLS // 2) + [trial.rng.choice(["driver", *PARTS]) for _ in range(KILLS - KILLS // 2)]
    trial.rng.shuffle(kills)
    for number, what in enumerate(kills, 1):
        trial.sleep(trial.rng.randrange(CHECKPOINTS), trial.rng.uniform(0, LONGEST_S))
        if trial.rng.random() < 0.5:
            trial.collect()
        trial.tell(f"kill {number} of {KILLS}: the {what}")
        if what == "machine":
            trial.lose_the_machine()
        elif what == "driver":
            trial.app.kill()
            trial.app = trial.start()
        else:
            trial.kill(what)
    trial.app.expect_success(900)
    trial.more(2, closing=True)
    trial.app = trial.start()
    trial.app.expect_success(900)
    trial.tell("the end; comparing")

    batch = tmp_path / "batch"
    start("operators.py", "batch", ",".join(NAMES), str(trial.source), str(batch), storage=None, plugin=False).expect_success()
    for name in NAMES:
        assert read(batch / name), f"the oracle of {name} is empty: the comparison would show nothing"
        assert differences(trial.out / name, batch / name) == [], f"{name}, SEED={seed}"
        status, document = trial.cli("verify", name)
        assert (status, document["intact"]) == (0, True), document
        assert trial.cli("gc", name, "--delete", "--min-age", "0")[0] == 0
        assert trial.cli("verify", name)[0] == 0
        assert trial.cli("list", name)[0] == 0
