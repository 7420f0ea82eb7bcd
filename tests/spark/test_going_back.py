"""A query that goes back to its last completed checkpoint in place, on executors that keep the stores of the epochs that run again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.trials import completed

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

KILLED_AT, THROWN_EVERY, WAIT_S = 32, 3, 240


class GoingBack:
    """The query, on executors in processes of their own. `folder`: what it is told by."""

    def __init__(self, start: Start, tmp_path: Path, storage: str, conf: Mapping[str, str], env: Mapping[str, str] | None = None) -> None:
        self.out, self.folder, self.location = tmp_path / "out", tmp_path / "told", tmp_path / "location"
        self.folder.mkdir()
        arguments = (str(self.location), str(self.out), str(self.folder))
        self.app = start("goingback.py", *arguments, storage=storage, conf=conf, env=env, master="local-cluster[2,1,1024]")

    def committed(self) -> int:
        return max((int(p.name) for p in (self.location / "commits").glob("[0-9]*")), default=-1)

    def went_back(self) -> int:
        """How often."""
        return self.app.log.read_text().count("goes back to its last completed checkpoint")

    def end(self) -> None:
        (self.folder / "end").touch()
        self.app.expect_success()
        numbers = Counter(n for path in self.out.glob("[0-9]*.json") for n in json.loads(path.read_text()))
        assert numbers == Counter(range(len(numbers)))


def test_the_files_of_epochs_that_run_again_are_not_old_because_of_those_that_ran_before(start: Start, s3: Server, tmp_path: Path) -> None:
    """Spark's maintenance keeps the newest versions: of those that ran before the highest number is above all that run again."""
    conf = {
        **s3.conf,
        "spark.ckpt.interval": "60s",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.sql.shuffle.partitions": "2",
    }
    query = GoingBack(start, tmp_path, f"s3://{s3.bucket}/ckpt", conf, s3.env)
    app, committed, folder = query.app, query.committed, query.folder
    app.until(lambda: committed() >= KILLED_AT, f"epoch {KILLED_AT}", WAIT_S)
    app.kill_one("CoarseGrainedExecutorBackend")
    app.until(lambda: query.went_back() > 0, "going back", WAIT_S)
    app.until(lambda: committed() < KILLED_AT // 2, "it went back", WAIT_S)
    while (epoch := committed()) < KILLED_AT:  # wherever maintenance may draw its line
        app.until(lambda epoch=epoch: committed() >= epoch + THROWN_EVERY, f"epoch {epoch + THROWN_EVERY} again", WAIT_S)  # type: ignore[misc]
        (folder / "throw").touch()
        app.until(lambda: not (folder / "throw").exists(), "a task that fails", WAIT_S)
    app.until(lambda: committed() > KILLED_AT + 5, "more epochs than before", WAIT_S)
    query.end()
    assert "this task fails once" in app.log.read_text(), "no task has failed: the test has lost its point"
    assert query.went_back() == 1, "files of the epochs that ran again were lost"

    # A hook goes back with the query: what follows its state is the epoch after it.
    calls = [json.loads(line) for line in (folder / "hook").read_text().splitlines()]
    (begins, again) = (n for n, (call, _) in enumerate(calls) if call == "restore")
    assert calls[begins : begins + 2] == [["restore", None], ["snapshot", 0]]
    back_to = -1 if calls[again][1] is None else calls[again][1]
    assert calls[again - 1][1] >= KILLED_AT > back_to
    after = [epoch for _, epoch in calls[again + 1 :]]
    assert after == list(range(back_to + 1, back_to + 1 + len(after)))
    assert len(after) > KILLED_AT - back_to


def test_a_snapshot_that_was_still_to_be_written_says_nothing_of_epochs_that_run_again(start: Start, tmp_path: Path) -> None:
    """Full snapshots, of every 20th to 23rd version, would be written an hour later. The query goes back to before it; changelogs that grow
    have it written at once: Spark takes it for one of what is loaded by then, and the next changelogs would name nothing before them."""
    conf = {
        "spark.ckpt.interval": "2s",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "20",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
        "spark.sql.shuffle.partitions": "4",
    }
    query = GoingBack(start, tmp_path, f"file://{tmp_path}/storage", conf)
    app, committed = query.app, query.committed

    def stored() -> int:
        return max((int(p.parent.name.removeprefix("chk-")) for p in completed(tmp_path / "storage", query.location)), default=-1)

    def behind() -> int:
        """Partitions with a full snapshot that no checkpoint has: partition p takes its own every 20 + p versions (`SnapshotSpread`)."""
        durable, newest = stored() + 1, committed() + 1
        return sum(newest // (20 + p) > durable // (20 + p) for p in range(4))

    for _ in range(6):  # an executor may hold no state that no other has
        app.until(lambda: behind() > 1 and committed() - stored() > 3, "full snapshots behind a checkpoint", WAIT_S)
        app.kill_one("CoarseGrainedExecutorBackend")
        with suppress(AssertionError):
            app.until(lambda: query.went_back() > 0, "going back", 15)
            break
    assert query.went_back()
    (query.folder / "heavy").touch()
    before = committed()
    app.until(lambda: stored() > before + 10, "checkpoints after it", WAIT_S)
    query.end()
