"""The end of a query that is drained: results as those of a batch query over the same input, and what is left in the state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run as cli
from tests.drivers.spark.harness import Application
from tests.drivers.spark.inputs import FILES, write_events
from tests.drivers.spark.oracle import differences, read

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(600)]

EMPTIED = {
    "windows": "windows",
    "sliding": "sliding",
    "sessions": "sessions",
    "inner": "inner",
    "outer": "outer",
    "within": "within",
    "chained": "chained",
    "event_time_out": "update",
    "event_timers": "update",
}
"""Query -> the batch query that gives the same rows. These have an end in event time: nothing of them stays."""
KEPT = {"update": "update", "unique": "unique", "timers": "timers"}
"""Their rows are complete, but their state has no end: totals and ids without a watermark, and a processor that does not clear its own."""
WAITING = ("processing_time_out", "processing_timers")
"""An hour of the clock has not passed because a query ends: what waits for that waits on, in the savepoint."""


def keys_of(savepoint: str, capsys: pytest.CaptureFixture[str]) -> int:
    assert cli(["show", savepoint, "--json"]) == 0
    counted = [store["num_keys"] for store in json.loads(capsys.readouterr().out)["stores"]]
    assert None not in counted
    return sum(counted)


def test_what_a_drain_puts_out_and_what_it_leaves(
    start: Callable[..., Application], oracle: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, out = tmp_path / "events", tmp_path / "out"
    write_events(events, 0, FILES)
    names = [*EMPTIED, *KEPT, *WAITING]
    app = start("drains.py", ",".join(names), str(events), str(tmp_path / "locations"), str(out), storage=f"file://{tmp_path}/storage")
    app.expect_success(500)
    saved = json.loads((out / "facts.json").read_text())
    left = {name: keys_of(saved[name], capsys) for name in names}
    for name, batch in (EMPTIED | KEPT).items():
        assert (name, differences(out / name, oracle[batch])) == (name, [])
    for name in WAITING:
        assert not read(out / name)
    assert {name: left[name] for name in EMPTIED} == dict.fromkeys(EMPTIED, 0)
    assert all(left[name] > 0 for name in (*KEPT, *WAITING)), left
