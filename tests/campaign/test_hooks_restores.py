"""Hooks of two queries in one session, and of a fork: which bytes each gets back after a failure, a stop, a savepoint and a fork."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from two_phase_sink import read_state

from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Start
from tests.drivers.spark.hook_trials import EXAMPLES, expected, published
from tests.drivers.spark.inputs import write_events

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(900)]

FILES = 12


def states(metadata: Path) -> dict[str, bytes]:
    return dict(decode_metadata(metadata.read_bytes()).hooks)


def epochs_of_sinks(metadata: Path) -> dict[str, int]:
    return {name: read_state(state)[0] for name, state in states(metadata).items()}


def newest(stream: Path) -> Path:
    """Of the newest run that has a checkpoint."""
    run = max({path.parents[1] for path in stream.glob("run-*/chk-*/_metadata")})
    return max(run.glob("chk-*/_metadata"), key=lambda path: int(path.parent.name.removeprefix("chk-")))


@pytest.mark.parametrize("interval", ["0", "300ms"])
def test_each_hook_gets_the_bytes_of_its_own_query_back(start: Start, tmp_path: Path, interval: str) -> None:
    events, folder, storage = tmp_path / "events", tmp_path / "folder", tmp_path / "storage"
    folder.mkdir()
    write_events(events, 0, FILES)

    def run(step: str, **conf: str) -> dict[str, Any]:
        settings = {"spark.ckpt.interval": interval, "spark.ckpt.retained": "100"}
        settings |= {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in conf.items()}
        env = {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
        args = (step, str(events), str(folder))
        start("several_hooks.py", *args, storage=f"file://{storage}", conf=settings, env=env).expect_success(300)
        found: dict[str, Any] = json.loads((folder / f"{step}.json").read_text())
        return found

    def stream(name: str) -> Path:
        return Path(f"{storage}{folder}/{name}")

    def calls(name: str, hook: str = "sink") -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (folder / f"{name}-calls.jsonl").read_text().splitlines()]
        return [line for line in lines if line.get("hook", "sink") == hook and line["call"] != "stage"]

    def restored(name: str) -> list[int | None]:
        return [call["epoch"] for call in calls(name) if call["call"] == "restore"]

    def rows(name: str) -> Counter[str]:
        return published(folder / f"{name}.sqlite")

    first = run("first")
    assert first["starts"] == 2
    kept = Path(first["savepoint"].removeprefix("file://")) / "_metadata"
    at = decode_metadata(kept.read_bytes()).id.epoch
    origin = decode_metadata(newest(stream("left")).read_bytes())
    for name in ("left", "right"):
        assert rows(name) == expected(events)
        beginnings = restored(name)
        assert len(beginnings) == 2, "the start, and the one after the failure or the stop"
        again = beginnings[1]
        assert beginnings[0] is None
        assert again is not None
        told = [(call["call"], call["epoch"]) for call in calls(name)]
        assert told[told.index(("restore", again)) + 1] == ("completed", again)
        before = [epoch for call, epoch in told[: told.index(("restore", again))] if call == "completed" and epoch is not None]
        assert again >= max(before), "what was told as complete was not gone on from"
        assert epochs_of_sinks(stream(name) / f"run-00000001/chk-{again}/_metadata") == {"sink": again}
    assert origin.id.run == 2
    assert epochs_of_sinks(kept) == {"sink": at}
    assert at < origin.id.epoch

    right_ended = decode_metadata(newest(stream("right")).read_bytes()).id.epoch
    write_events(events, FILES, 3)
    run("back", restore_path=first["savepoint"])
    assert restored("left")[2:] == [at], "the savepoint's, and not that of the newest checkpoint"
    assert restored("right")[2:] == [right_ended], "whose stream the restore path does not name"
    for name in ("left", "right"):
        assert [call["state"] for call in calls(name, "second")] == [None]
        assert rows(name) == expected(events)
        left_with = decode_metadata(newest(stream(name)).read_bytes())
        second = left_with.id.epoch.to_bytes(8, "big") + b"\x00\xff\n"
        kept_by = dict(left_with.hooks)
        assert read_state(kept_by.pop("sink"))[0] == left_with.id.epoch
        assert kept_by == {"second": second}

    # A fork of what holds both: refused without the first, and with both each has its own.
    last = newest(stream("left"))
    held = rows("left")
    write_events(events, FILES + 3, 3)
    forked = run("fork", restore_path=f"file://{last.parent}")
    assert "sink" in forked["refused"]
    assert "register a hook of that name before the query starts" in forked["refused"]
    assert restored("fork") == [decode_metadata(last.read_bytes()).id.epoch]
    assert [call["state"] for call in calls("fork", "second")] == [states(last)["second"].hex()]
    assert held + rows("fork") == expected(events)
