"""What Spark's own listeners, its event log, the query's progress, its metrics and Python listeners show of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.sightings import conf, lines, logged, metrics_in, told
from tests.drivers.spark.tab import checked

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCHS = FILES + 3
"""One for each file, and one without data, in which the watermark closes windows."""
PARTITION_BYTES = 64
STATE_REFUSED = WireFault(Wire.STATUS, r"^PUT \S*/(seg|sst)/", times=None, status=503)


def test_events_progress_metrics_and_log(start: Callable[..., Application], events: Path, tmp_path: Path) -> None:
    args = ("seen.py", str(events), str(tmp_path / "location"))
    storage = f"file://{tmp_path}/storage"
    app = start(*args, storage=storage, conf=conf(tmp_path / "first"))
    app.expect_success()
    again = start(*args, storage=storage, conf=conf(tmp_path / "second"))  # finds nothing to do, but restores
    again.expect_success()

    progress = told(app, "PROGRESS")
    stateful = [p for p in progress if p["metrics"] and p["metrics"][0].get("checkpointSnapshots")]
    assert [p["epoch"] for p in stateful] == list(range(EPOCHS))
    for p in stateful:
        for operator in p["metrics"]:
            assert operator["checkpointId"] == p["epoch"]
            assert operator["checkpointSnapshots"] == 3
            assert operator["checkpointFullBytes"] >= operator["checkpointNewBytes"] > 0

    heard = told(app, "HEARD")
    for kind in ("triggered", "completed"):
        assert [h["epoch"] for h in heard if h["kind"] == kind] == list(range(EPOCHS)), kind
    assert "a CheckpointListener failed at CheckpointTriggered of epoch 1" in app.log.read_text()
    assert [o["name"] for o in heard[-1]["operators"]] == ["aggregate(window, key)", "deduplicate(id, ts)"]
    assert [(h["kind"], h["epoch"]) for h in told(again, "HEARD")] == [("restored", EPOCHS - 1)]

    others = [line.split() for line in lines(app, "OTHER")]
    for kind in ("CheckpointTriggered", "CheckpointCompleted"):
        assert [int(epoch) for name, epoch in others if name == kind] == list(range(EPOCHS)), kind
    assert others[0][0] == "CheckpointRunStarted"

    events_of = logged(tmp_path / "first")
    assert [e["epoch"] for e in events_of if e["Event"] == "CheckpointCompleted"] == list(range(EPOCHS))
    assert [e["Event"] for e in events_of if e["Event"] != "CheckpointCompleted"] == ["CheckpointRunStarted"]
    for event in (e for e in events_of if e["Event"] == "CheckpointCompleted"):
        assert event["counts"]["completed"] == event["epoch"] + 1
        assert event["sinkMs"] >= max(o["commitMsMax"] for o in event["operators"]) > 0
        for operator in event["operators"]:
            assert sorted(row[0] for row in operator["subtasks"]) == [0, 1, 2]
            assert all(len(json.dumps(row, separators=(",", ":"))) < PARTITION_BYTES for row in operator["subtasks"])
    assert sorted(e["Event"] for e in logged(tmp_path / "second")) == ["CheckpointRestored", "CheckpointRunStarted"]

    metrics = metrics_in(lines(app, "METRIC"))
    assert metrics["numberOfCompletedCheckpoints"] == metrics["totalNumberOfCheckpoints"] == EPOCHS
    assert metrics["numberOfFailedCheckpoints"] == metrics["numberOfInProgressCheckpoints"] == metrics["durabilityLagEpochs"] == 0
    assert metrics["lastCompletedCheckpointId"] == EPOCHS - 1
    for name in ("lastCheckpointDuration", "lastCheckpointSize", "lastCheckpointFullSize", "lastCheckpointMetadataSize"):
        assert metrics[name] > 0, name
    # A plan and a _metadata for each epoch by the coordinator, a segment by the agent, which reports every second.
    assert metrics["storageRequests"] >= 3 * EPOCHS
    assert metrics["storageBytesWritten"] > metrics["lastCheckpointFullSize"]
    assert metrics["sinkLatency_Count"] == metrics["operatorLatency_0_Count"] == metrics["operatorLatency_1_Count"] == EPOCHS
    for operator in (0, 1):
        assert 0 < metrics[f"operatorLatency_{operator}_50thPercentile"] <= metrics["sinkLatency_Max"]
    assert metrics["sinkLatency_Min"] <= metrics["sinkLatency_last"] <= metrics["sinkLatency_999thPercentile"]
    assert metrics["lastCheckpointCompletedTimestamp"] > 0
    assert metrics["uploadQueueSnapshots"] == metrics["uploadQueueBytes"] == 0

    log = [line for line in app.log.read_text().splitlines() if " completed: acks " in line]
    assert len(log) == EPOCHS
    assert all("INFO CheckpointFeed: checkpoint " in line for line in log)


def heard(app: Application, kind: str) -> list[int]:
    return [event["epoch"] for event in told(app, "HEARD") if event["kind"] == kind]


@pytest.mark.campaign
def test_the_checkpoint_of_an_epoch_that_runs_again_after_a_kill_has_not_failed(
    start: Callable[..., Application], s3: Server, tmp_path: Path
) -> None:
    source, files = tmp_path / "input", 3
    write_events(source, 0, files - 1)
    job = ("watched.py", str(source), str(tmp_path / "location"), str(tmp_path))
    where = {"storage": f"s3://{s3.bucket}/ckpt", "env": s3.env}
    killed = start(*job, **where, conf={**conf(tmp_path / "first"), **s3.conf})
    killed.until(lambda: files - 2 in heard(killed, "completed"), "a checkpoint of the last file that there is")
    s3.proxy.inject(STATE_REFUSED)
    write_events(source, files - 1, 1)
    killed.until(lambda: len(heard(killed, "triggered")) > len(heard(killed, "completed")), "an epoch that waits for its state")
    runs_again = heard(killed, "triggered")[-1]
    killed.kill()
    s3.proxy.heal()

    again = start(*job, **where, conf={**conf(tmp_path / "second"), **s3.conf})
    again.until(lambda: runs_again in heard(again, "completed") and bool(lines(again, "UI")), "the epoch's checkpoint")
    overview = checked(lines(again, "UI")[0].split()[0], "/", "overview")
    assert heard(again, "aborted") == []
    (tmp_path / "end").touch()
    again.expect_success()
    assert heard(again, "triggered")[0] == heard(again, "completed")[0] == runs_again
    shown = overview["counts"]
    assert shown["failed"] == 0
    assert shown["completed"] + shown["failed"] + shown["in_progress"] == shown["total"]
    for counts in (e["counts"] for e in logged(tmp_path / "second") if e["Event"] == "CheckpointCompleted"):
        assert counts["triggered"] == counts["completed"], "each completes before the next one is triggered"
