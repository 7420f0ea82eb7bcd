"""spark_ckpt.run on real Spark: what is started again, what is not, and who ends it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import write_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FILES = 5


def sums(folder: Path) -> dict[str, tuple[int, int]]:
    """What the job's query is to hold in the end: key -> (sum of the doubled values, rows)."""
    events = [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]
    total, rows = Counter[str](), Counter[str]()
    for event in events:
        total[event["key"]] += 2 * event["value"]
        rows[event["key"]] += 1
    return {key: (total[key], rows[key]) for key in rows}


def test_failures_are_retried_and_fatal_ones_are_not(start: Callable[..., Application], tmp_path: Path) -> None:
    events, out = tmp_path / "events", tmp_path / "out"
    write_events(events, 0, FILES)
    app = start("restarts.py", str(events), str(tmp_path / "locations"), str(out), storage=f"file://{tmp_path}/storage")
    app.expect_success(270)
    facts = json.loads((out / "facts.json").read_text())

    assert facts["stuck"] == []
    assert facts["fails_twice"] == {"starts": 3, "active": False}
    assert (out / "task-failed").exists()
    assert (out / "batch-failed").exists()
    held: dict[str, tuple[int, int]] = {}
    batches = sorted(out.glob("batch-*.json"))
    assert len(batches) == FILES
    for batch in batches:
        for row in map(json.loads, batch.read_text().splitlines()):
            held[row["key"]] = (row["total"], row["n"])
    assert held == sums(events)

    given_up = {name: (fact["starts"], fact["reason"], fact["cause"]) for name, fact in facts.items() if "reason" in fact}
    assert given_up == {
        "other_job": (1, "FATAL", "CONFLICT"),
        "other_schema": (2, "FATAL", "STATE_SCHEMA"),
        "undefined": (1, "FATAL", "DEFINITION"),
        "refused": (1, "FATAL", "CONFIG"),
        "fenced": (1, "FATAL", "FENCED"),
        "always_fails": (5, "ATTEMPTS_EXHAUSTED", "PASSING"),
        "session": (1, "FATAL", "SESSION"),
    }
    for name, kind in (("other_job", "CONFLICT"), ("refused", "CONFIG"), ("fenced", "FENCED")):
        assert facts[name]["kinds"] == [kind], "the text of a trace does not carry the kind, and from an executor there may be nothing else"
    assert "took over the stream" in facts["fenced"]["message"]
    assert "value" in facts["other_schema"]["message"]

    assert facts["stopped"] == {"starts": 1, "active": False}
    assert facts["interrupted"] == {"starts": 1, "interrupted": "KeyboardInterrupt", "active": 0}
    assert facts["terminated"] == {"starts": 1, "interrupted": "SystemExit", "active": 0}
