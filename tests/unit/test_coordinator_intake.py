"""Acks that share files with the one before."""

from __future__ import annotations

import gc
import io
import json
import sys
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.coordinator.intake import ACKS, SHARED_NAMES, Intake, acks_reader
from spark_ckpt.model import Ack, Decline, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.process.pipe import Pipe


def changelog(version: int) -> Handle:
    uid = uuid.UUID(int=version)
    return Handle(HandleKind.CHANGELOG, f"{version}_{uid}.changelog", "run-00000001/seg/7-x", 50 * version, 50, zlib.crc32(uid.bytes))


def row(*handles: Handle, partition: int = 0, version: int = 7) -> dict[str, Any]:
    snapshot = Snapshot(StoreId(0, partition, "default"), version, f"u{version}", handles, 5)
    found: dict[str, Any] = json.loads(json.dumps(Ack(1, version, snapshot, "1", 50, 1.0, 2.0, 3.0).to_json()))
    return found


def read_quickly(rows: Sequence[dict[str, Any]]) -> Sequence[Any]:
    reader = acks_reader()
    assert reader is not None
    line = json.dumps({"type": "acks", "root": "r", "acks": rows}, separators=(",", ":")).encode() + b"\n"
    assert line.startswith(ACKS)
    message = reader(line)
    assert (message["type"], message["root"]) == ("acks", "r")
    found: Sequence[Any] = message["acks"]
    return found


@pytest.fixture(params=["json", "msgspec"])
def taken(request: pytest.FixtureRequest) -> Callable[[Intake, dict[str, Any]], Ack]:
    """Of a row, however it was read."""

    def take(intake: Intake, row: dict[str, Any]) -> Ack:
        acks, declines = intake.take([row] if request.param == "json" else read_quickly([row]))
        assert len(acks) == 1
        assert not declines
        return acks[0]

    return take


Taken = Callable[[Intake, dict[str, Any]], Ack]


def test_a_file_of_the_snapshot_before_is_kept_once(taken: Taken) -> None:
    intake = Intake()
    first = taken(intake, row(changelog(1), changelog(2)))
    second = taken(intake, row(changelog(2), changelog(3), version=8))
    assert second == Ack.from_json(row(changelog(2), changelog(3), version=8))
    assert second.snapshot.handles[0] is first.snapshot.handles[1]
    assert second.snapshot.store is first.snapshot.store


@pytest.mark.parametrize(
    "change", [{"kind": HandleKind.SST}, {"object": "run-00000001/seg/7-y"}, {"offset": 1}, {"length": 51}, {"checksum": 0}]
)
def test_a_file_that_was_stored_again_is_another_one(taken: Taken, change: dict[str, Any]) -> None:
    intake = Intake()
    taken(intake, row(changelog(1)))
    again = replace(changelog(1), **change)
    assert taken(intake, row(again, changelog(2), version=8)).snapshot.handles == (again, changelog(2))


def test_stores_are_told_apart(taken: Taken) -> None:
    intake = Intake()
    taken(intake, row(changelog(1), partition=0))
    assert taken(intake, row(changelog(1), partition=1)).snapshot.store == StoreId(0, 1, "default")


def test_both_ways_of_reading_give_the_same() -> None:
    rows = [row(changelog(1), partition=p) for p in range(3)]
    rows[1] |= {"num_keys": None, "commit_delay_ms": 7, "start_delay_ms": -2}
    del rows[2]["commit_delay_ms"]
    assert Intake().take(read_quickly(rows)) == Intake().take(rows)


@pytest.mark.parametrize(
    "change",
    [
        {"sync_ms": 1e300},
        {"new_bytes": -(2**60)},
        {"version": "seven"},
        {"handles": [["OTHER", "x", "y", 0, 1, 2]]},
        {"handles": [["SST", "x", "y", 0, 1]]},
    ],
)
def test_what_is_no_ack_is_left_to_the_reader_that_says_why(change: dict[str, Any]) -> None:
    wrong = row(changelog(1)) | change
    with pytest.raises(ValueError):  # noqa: PT011 - whatever msgspec says, it is not shown
        read_quickly([wrong])
    with pytest.raises((ValueError, TypeError)):
        Intake().take([wrong])


def test_a_line_with_a_decline_is_read_as_json() -> None:
    decline = Decline(1, 7, StoreId(0, 1, "default"), "u7", "1", "no space")
    rows = [row(changelog(1)), decline.to_json()]
    reader = acks_reader()
    assert reader is not None
    pipe = Pipe(io.BytesIO(json.dumps({"type": "acks", "root": "r", "acks": rows}, separators=(",", ":")).encode() + b"\n"), io.BytesIO())
    pipe.readers[ACKS] = reader
    message = next(pipe.read())
    assert message["acks"] == rows
    acks, declines = Intake().take(message["acks"])
    assert (len(acks), declines) == (1, [decline])


def test_the_more_stores_the_rarer_a_look_for_cycles() -> None:
    """Each look goes through what an epoch has made, and finds nothing."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(100, *before[1:])
        Intake().take([row(changelog(1), partition=p) for p in range(5)])
        assert gc.get_threshold()[0] == 100, "few stores change nothing"
        Intake().take([row(changelog(1), partition=p) for p in range(50)])
        assert 100 < gc.get_threshold()[0] <= 1000
    finally:
        gc.set_threshold(*before)


def test_names_of_objects_are_shared_and_not_kept(taken: Taken) -> None:
    """Nor interned: some interpreters keep that for ever."""
    intake = Intake()
    one, other = (taken(intake, row(changelog(p), partition=p)).snapshot.handles[0] for p in (1, 2))
    assert one.object is other.object
    assert one.object is not sys.intern(str(json.loads(json.dumps(one.object))))
    for epoch in range(2 * SHARED_NAMES):
        taken(intake, row(replace(changelog(1), object=f"run-00000001/seg/{epoch}-x"), version=epoch))
    assert len(intake._objects) <= SHARED_NAMES + 1
