"""The two-phase sink of the examples under SIGKILL, at each step of each call and at random moments: each row is published once.

`SEED=7 KILLS=50` in the environment repeat and lengthen the random one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from flights_data import write

from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.hook_trials import EXAMPLES, HookTrial
from tests.drivers.spark.inputs import write_events

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(5400)]

STEPS = [
    *((call, when) for call in ("stage", "completed") for when in ("before", "commit", "after")),
    ("snapshot", "before"),
    ("snapshot", "after"),
]
MODES = {
    "every-epoch": {"interval": "0"},
    "interval": {"interval": "100ms"},
    "at-least-once": {"interval": "100ms", "mode": "AT_LEAST_ONCE"},
}
BEGINNING = ["kill-before-restore-1", "kill-after-restore-1"]
KILLS = int(os.environ.get("KILLS") or 10)
COLUMNS = ["start", "carrier", "origin", "flights", "departed", "dep_delay", "worst_arr_delay"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_driver_is_killed_at_each_step_of_each_call(start: Start, tmp_path: Path, mode: str, call: int) -> None:
    """One stream, a life for each step, in the first, second or third such call of it. The driver's folder is gone every other time."""
    points = [*(BEGINNING if call == 1 else ()), *(f"kill-{when}-{name}-{call}" for name, when in STEPS)]
    events = tmp_path / "events"
    write_events(events, 0, 6 * len(points))
    trial = HookTrial(start, events, tmp_path, **MODES[mode])
    for number, point in enumerate(points):
        before = sum(trial.published().values()) if trial.database.exists() else 0
        trial.killed(point)
        with closing(sqlite3.connect(trial.database)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert sum(trial.published().values()) >= before, f"{point}: published rows are gone"
        assert not trial.published() - trial.expected(), f"{point}: rows are published twice"
        if number % 2 == 0:
            shutil.rmtree(trial.location)
        print(f"{point}: {sum(trial.published().values())} rows published", flush=True)
    trial.live().expect_success(600)
    assert trial.published() == trial.expected()


def test_a_year_of_flights_is_published_once(start: Start, tmp_path: Path) -> None:
    """Drivers, whole machines and executors are killed at random moments; the rows are those of a batch query."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nSEED={seed} KILLS={KILLS} repeat this one", flush=True)
    rng = random.Random(seed)
    source, location, local, database = (tmp_path / name for name in ("in", "location", "local", "rows.sqlite"))
    write(source, seed, timedelta(days=365) / (20 + 8 * KILLS))
    env = {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
    conf = {"spark.ckpt.interval": "2s", "spark.local.dir": str(local)}
    args = ("--input", str(source), "--checkpoint", str(location), "--database", str(database))

    def live() -> Application:
        storage, master = f"file://{tmp_path}/storage", "local-cluster[2,1,1024]"
        return start(str(EXAMPLES / "two_phase_sink.py"), *args, storage=storage, master=master, conf=conf, env=env)

    def published_epoch() -> int:
        if not database.exists():
            return -1
        with closing(sqlite3.connect(database, timeout=30)) as db:
            found = db.execute("SELECT name FROM sqlite_master WHERE name = 'progress'").fetchone()
            return int(db.execute("SELECT published FROM progress").fetchone()[0]) if found else -1

    app = live()
    for number in range(1, KILLS + 1):
        reached = published_epoch() + 1
        app.until(lambda reached=reached: published_epoch() >= reached, "one more publication", 300)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 3))
        what = rng.choice(["machine", "driver", "executor"])
        if what == "executor":
            app.kill_one("CoarseGrainedExecutorBackend")
        else:
            app.kill()
            for folder in (location, local) if what == "machine" else ():
                shutil.rmtree(folder, ignore_errors=True)
            app = live()
        print(f"kill {number} of {KILLS}: {what}, published up to epoch {published_epoch()}", flush=True)
    app.expect_success(1800)
    with closing(sqlite3.connect(database)) as db:
        found = Counter(tuple(json.loads(row)[name] for name in COLUMNS) for (row,) in db.execute("SELECT row FROM published"))
    asked = (str(source), str(tmp_path / "rows.jsonl"))
    batch = start(str(Path(__file__).parent / "flights_rows.py"), *asked, storage=None, plugin=False, env=env)
    batch.expect_success(600)
    rows = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    expected = Counter(tuple(row[name] for name in COLUMNS) for row in rows)
    print({"expected": expected.total(), "found": found.total()}, file=sys.stderr)
    assert expected.total() > 0
    assert found == expected
