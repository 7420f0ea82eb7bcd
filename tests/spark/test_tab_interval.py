"""The interval mode as a person sees it while it runs: what is in progress and waits, what failed and why, how far it is behind."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.browser import Browser
from tests.drivers.spark.harness import Application
from tests.drivers.spark.history_server import history_server, until_listed
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.sightings import conf, lines, logged, metrics_in, told
from tests.drivers.spark.tab import checked, picture

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(400)]

AWAY = WireFault(Wire.STATUS, r"^PUT \S*/(seg|sst)/", times=None, status=503)
INTERVAL = {"spark.ckpt.interval": "3s", "spark.ckpt.timeout": "30s", "spark.ckpt.tolerableFailures": "20", "spark.ckpt.retained": "50"}
SECRET = "test-secret"


class Watched:
    """The application, and what it has told."""

    def __init__(self, app: Application) -> None:
        self.app = app
        app.until(lambda: bool(lines(app, "UI")), "a UI")
        self.base, self.name = lines(app, "UI")[0].split()

    def overview(self) -> Any:
        return checked(self.base, "/", "overview")

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in told(self.app, "HEARD") if event["kind"] == kind]

    def until(self, condition: Callable[[Any], bool], what: str) -> Any:
        """The overview that is so."""
        deadline = time.monotonic() + 120
        while not condition(found := self.overview()):
            assert self.app.running, self.app.tail()
            assert time.monotonic() < deadline, f"{what}: not within two minutes\n{found['counts']} {found['lag']}\n{self.app.tail()}"
            time.sleep(0.2)
        return found


def prometheus(base: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{base}/metrics/prometheus", timeout=60) as answer:
        return metrics_in(answer.read().decode().splitlines())


def durable(watched: Watched) -> Any:
    return watched.until(lambda o: o["counts"]["completed"] >= 1 and o["lag"]["epochs"] == 0, "all that came is durable")


def beyond(checkpoints: int, overview: Any) -> bool:
    return bool(overview["lag"]["epochs"] > 0 or overview["counts"]["total"] > checkpoints)


def named(window: Browser, table: str) -> dict[str, str]:
    """A table of a word and what it means, or of a head and one line."""
    words = [*window.texts(f"{table} thead th"), *window.texts(f"{table} tbody th")]
    return dict(zip(words, window.texts(f"{table} tbody td"), strict=True))


def test_what_a_checkpoint_waits_for_what_failed_and_how_far_it_is_behind(
    start: Callable[..., Application], s3: Server, tmp_path: Path, window: Browser
) -> None:
    source = tmp_path / "input"
    write_events(source, 0, 4)
    settings = {**conf(tmp_path / "events"), **INTERVAL, **s3.conf}
    job = ("watched.py", str(source), str(tmp_path / "location"), str(tmp_path))
    watched = Watched(start(*job, storage=f"s3://{s3.bucket}/ckpt", conf=settings, env=s3.env))
    files = 4
    while (overview := durable(watched)) and not any(c["is_late"] for c in overview["history"]):
        # Soon after a checkpoint none is due: the epoch of this file becomes one when it has ended and the query is idle.
        assert files < 40, "no checkpoint is ever late"
        write_events(source, files, 1)
        files += 1
        watched.until(partial(beyond, overview["counts"]["total"]), "an epoch for the file")

    # The storage takes no state any more; epochs go on.
    s3.proxy.inject(AWAY)
    write_events(source, files, 8)
    watched.until(
        lambda o: o["counts"]["in_progress"] == 1 and o["lag"]["epochs"] >= 5 and o["lag"]["bytes"] > 0,
        "a checkpoint that waits, with epochs behind it",
    )
    # Agents tell every second what waits to be uploaded.
    watched.until(lambda _: prometheus(watched.base)["uploadQueueSnapshots"] >= 6, "the queue to be told")
    metrics = prometheus(watched.base)
    assert metrics["uploadQueueBytes"] > 0
    assert metrics["storageRetries"] > 0
    assert metrics["durabilityLagEpochs"] >= 5
    assert metrics["durabilityLagMs"] > 0
    assert metrics["numberOfInProgressCheckpoints"] == 1

    def waits(_: Any) -> bool:
        """A checkpoint may be begun in the middle of an epoch: it waits for that epoch's tasks first."""
        window.open(f"{watched.base}/checkpoints/")
        return [row[5] for row in window.table("#checkpoint-in-progress")] == ["6 more snapshots to be stored"]

    watched.until(waits, "a checkpoint whose epoch has ended")
    assert "every 3s, in the background, EXACTLY_ONCE" in " ".join(window.texts("div"))
    (row,) = window.table("#checkpoint-in-progress")
    assert row[1].startswith("in progress")
    assert row[4].split("/")[0] == "0"
    behind = named(window, "#checkpoint-lag")
    assert int(behind["Epochs behind"]) >= 5
    assert behind["Time behind"] != "0 ms"
    assert behind["Waiting to be stored"] != "0.0 B"
    assert "Durability Lag" in window.texts("figure.checkpoint-chart figcaption")
    picture(window, "live-in-progress", tmp_path)
    window.click("#checkpoint-in-progress a", row[0])
    assert "in progress" in named(window, "#checkpoint-about")["Status"]
    newest = watched.overview()["history"][0]
    assert (newest["status"], newest["num_acknowledged_subtasks"], newest["num_subtasks"]) == ("IN_PROGRESS", 0, 6)

    # What a coordinator had in the making dies with it; the one that takes over begins another.
    watched.app.kill_one("spark_ckpt.coordinator")
    given_up = watched.until(lambda o: o["counts"]["failed"] == 1, "the end of what the dead coordinator had begun")["latest"]["failed"]
    assert (given_up["id"], given_up["failure_reason"]) == (int(row[0]), "STOPPED")
    assert given_up["failure_message"] == "the coordinator process died and was replaced"

    # A checkpoint that is tried again keeps its epoch, and its line: one that is to be seen as failed needs a newer epoch to come after it.
    pending = watched.until(lambda o: o["counts"]["in_progress"] == 1, "the new coordinator's own checkpoint")
    write_events(source, files + 8, 1)
    watched.until(lambda o: o["lag"]["epochs"] > pending["lag"]["epochs"], "an epoch after it")
    failed = watched.until(lambda o: o["latest"]["failed"]["failure_reason"] == "EXPIRED", "a checkpoint that expires")["latest"]["failed"]
    s3.proxy.heal()
    assert failed["failure_timestamp"] >= failed["trigger_timestamp"] + 30_000
    watched.until(lambda o: o["latest"]["completed"]["id"] > failed["id"] and o["lag"]["epochs"] == 0, "the backlog is durable")

    (tmp_path / "savepoint").touch()
    overview = watched.until(lambda o: o["latest"]["savepoint"] is not None, "a savepoint")
    savepoint = overview["latest"]["savepoint"]
    watched.app.until(lambda: bool(lines(watched.app, "SAVEPOINT")), "the savepoint's URL")
    assert lines(watched.app, "SAVEPOINT") == [savepoint["external_path"]]
    assert savepoint["external_path"].endswith("/savepoints/noon")
    window.open(f"{watched.base}/checkpoints/history/")
    rows = window.table("#checkpoints-table")
    assert any("savepoint" in row[2] and row[-1].endswith("/savepoints/noon") for row in rows)
    assert any("late" in row[2] for row in rows)
    assert any(row[2].startswith("failed") and "EXPIRED" in row[-1] for row in rows)
    assert any(row[2].startswith("stopped") and row[0] == str(given_up["id"]) for row in rows)
    picture(window, "live-history", tmp_path)
    window.open(f"{watched.base}/checkpoints/")
    picture(window, "live-interval", tmp_path)
    assert window.errors() == []
    watched.until(lambda _: prometheus(watched.base)["uploadQueueSnapshots"] == 0, "an empty queue")
    (tmp_path / "end").touch()
    watched.app.expect_success()

    check_what_python_heard(watched)
    check_log(watched.app)
    counts = [e["counts"] for e in logged(tmp_path / "events") if "counts" in e][-1]
    assert counts["triggered"] == counts["completed"] + counts["failed"]
    with history_server(tmp_path / "events", tmp_path / "server.log") as address:
        base = until_listed(address, watched.name)
        after = checked(base, "/", "overview")
        assert after["latest"]["savepoint"] == {**savepoint, "is_savepoint": True}
        assert after["counts"]["completed"] == counts["completed"]
        late = {c["id"] for c in after["history"] if c["is_late"] and c["status"] == "COMPLETED"}
        assert late == {e["epoch"] for e in watched.heard("completed") if e["late"]}
        window.open(f"{base}/checkpoints/")
        assert "Durability Lag" in window.texts("figure.checkpoint-chart figcaption")
        assert window.errors() == []


def check_what_python_heard(watched: Watched) -> None:
    triggered, completed, aborted = (watched.heard(kind) for kind in ("triggered", "completed", "aborted"))
    assert {e["epoch"] for e in completed} <= {e["epoch"] for e in triggered}
    assert any(e["reason"] == "EXPIRED" and "spark.ckpt.timeout" in e["message"] for e in aborted)
    assert max(e["lag_epochs"] for e in completed) >= 0
    (savepoint,) = watched.heard("savepoint")
    assert savepoint["path"].endswith("/savepoints/noon")
    assert savepoint["epoch"] in {e["epoch"] for e in completed}
    assert savepoint["full_bytes"] > 0


def check_log(app: Application) -> None:
    """One line at INFO for each completed checkpoint, the reason of each failure at WARN, in Spark's format, from all processes."""
    said = app.log.read_text().splitlines()
    completed = [line for line in said if " completed: acks " in line]
    heard = [event for event in told(app, "HEARD") if event["kind"] == "completed"]
    assert len(completed) == len(heard)
    assert all(" INFO CheckpointFeed: checkpoint " in line for line in completed)
    aborted = [line for line in said if "was aborted (EXPIRED)" in line]
    assert aborted
    assert all(" WARN CheckpointFeed: checkpoint " in line for line in aborted)
    uploads = [line for line in said if " WARN PythonChild: attempt 1 at http://127.0.0.1:" in line and "/seg/" in line]
    assert uploads, "the agent tells why its uploads fail, long before it gives up"
    assert all("it is tried again" in line for line in uploads)
    assert any(" INFO CheckpointFeed: a savepoint of checkpoint " in line for line in said)
    assert not any(SECRET in line for line in said)
