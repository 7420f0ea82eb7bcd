"""The restart strategies of spark_ckpt.run where source, task and sink of a real query fail; the results are those without a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drivers.spark.harness import Application

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(300)]


def test_every_strategy_where_source_task_and_sink_fail(start: Callable[..., Application], tmp_path: Path) -> None:
    out = tmp_path / "out"
    app = start("strategies.py", str(tmp_path / "locations"), str(out), storage=f"file://{tmp_path}/storage")
    app.expect_success(270)
    facts = json.loads((out / "facts.json").read_text())
    (refused,) = facts.pop("refused")
    assert (refused["starts"], refused["reason"], refused["cause"]) == (1, "FATAL", "CONFIG")
    assert "is CONFIG: file:" in refused["message"], "its cause, and not which call to the JVM has failed"
    assert "holds no query id" in refused["message"]
    assert {name: [(run["starts"], run["slept"], run.get("reason")) for run in runs] for name, runs in facts.items()} == {
        "none": [(1, [], "NO_RESTART")] * 3 + [(1, [], None)],
        "fixed": [(4, [0.3] * 3, None)],
        "fixed_too_few": [(3, [0.01] * 2, "ATTEMPTS_EXHAUSTED"), (1, [], None)],
        "exponential": [(4, [0.2, 0.6, 1.0], None)],
        "rate": [(4, [0.1] * 3, None)],
        "rate_too_high": [(3, [0.01] * 2, "FAILURE_RATE_EXCEEDED"), (1, [], None)],
    }
    for runs in facts.values():
        assert {run["cause"] for run in runs if "reason" in run} <= {"PASSING"}
    for failed, why in zip(facts["none"], ("the source was away", "that the task could not take", "the sink was away"), strict=False):
        assert why in failed["message"], "what the user's own code has raised"
    for name in facts:
        assert {flag.name for flag in (out / f"{name}-failed").iterdir()} == {"source", "task", "sink"}
        held = {row["odd"]: row["total"] for path in sorted(out.glob(f"{name}-0*.json")) for row in json.loads(path.read_text())}
        assert held == {0: 0 + 2 + 4 + 6 + 8 + 10, 1: 1 + 3 + 5 + 7 + 9 + 11}
