"""What Spark's own listeners, its event log, the query's progress and the UI show of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FILES
from harness import Application

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

EPOCHS = FILES + 2


def lines(app: Application, kind: str) -> list[str]:
    return [line.split(" ", 1)[1] for line in app.log.read_text().splitlines() if line.startswith(kind + " ")]


def test_events_metrics_and_tab(start: Callable[..., Application], events: Path, tmp_path: Path) -> None:
    logs = tmp_path / "events"
    logs.mkdir()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{logs}",
    }
    for _ in range(2):  # the second application finds nothing to do, but restores
        app = start("seen.py", str(events), str(tmp_path / "location"), storage=f"file://{tmp_path}/storage", conf=conf)
        app.expect_success()
        if _ == 0:
            first = app

    progress = [json.loads(line) for line in lines(first, "PROGRESS")]
    stateful = [p for p in progress if p["metrics"] and p["metrics"][0].get("checkpointSnapshots")]
    assert len(stateful) == EPOCHS
    for p in stateful:
        assert p["metrics"][0]["checkpointSnapshots"] == 3
        assert p["metrics"][0]["checkpointNewBytes"] > 0
        assert p["metrics"][0]["checkpointFullBytes"] >= p["metrics"][0]["checkpointNewBytes"]

    shown = json.loads(lines(first, "JSON")[0])
    assert [r["epoch"] for r in shown] == list(reversed(range(EPOCHS)))
    assert {(r["status"], r["acked"], r["required"]) for r in shown} == {("COMPLETED", 3, 3)}
    page = lines(first, "PAGE")[0]
    assert "Checkpoints" in page
    assert "chk-3" in page

    seen: list[tuple[str, int]] = []
    for log in logs.rglob("*"):
        if log.is_file() and log.suffix != ".crc":
            for line in log.read_text().splitlines():
                event = json.loads(line)
                name = event.get("Event", "")
                if name.startswith("org.apache.spark.ckpt."):
                    seen.append((name.rsplit(".", 1)[1], event["epoch"]))
    for kind in ("CheckpointTriggered", "CheckpointCompleted"):
        assert sorted(e for k, e in seen if k == kind) == list(range(EPOCHS)), kind
    assert [e for k, e in seen if k == "CheckpointRestored"] == [EPOCHS - 1]
