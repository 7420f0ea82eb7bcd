"""Acks that share files with the one before."""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.coordinator.intake import Intake
from spark_ckpt.model import Ack, Handle, HandleKind, Snapshot, StoreId


def changelog(version: int) -> Handle:
    uid = uuid.UUID(int=version)
    return Handle(HandleKind.CHANGELOG, f"{version}_{uid}.changelog", "run-00000001/seg/7-x", 50 * version, 50, zlib.crc32(uid.bytes))


def row(*handles: Handle, partition: int = 0, version: int = 7) -> dict[str, Any]:
    snapshot = Snapshot(StoreId(0, partition, "default"), version, f"u{version}", handles, 5)
    found: dict[str, Any] = json.loads(json.dumps(Ack(1, version, snapshot, "1", 50, 1.0, 2.0, 3.0).to_json()))
    return found


def test_a_file_of_the_snapshot_before_is_kept_once() -> None:
    intake = Intake()
    first = intake.take(row(changelog(1), changelog(2)))
    second = intake.take(row(changelog(2), changelog(3), version=8))
    assert second == Ack.from_json(row(changelog(2), changelog(3), version=8))
    assert second.snapshot.handles[0] is first.snapshot.handles[1]
    assert second.snapshot.store is first.snapshot.store


@pytest.mark.parametrize(
    "change", [{"kind": HandleKind.SST}, {"object": "run-00000001/seg/7-y"}, {"offset": 1}, {"length": 51}, {"checksum": 0}]
)
def test_a_file_that_was_stored_again_is_another_one(change: dict[str, Any]) -> None:
    intake = Intake()
    intake.take(row(changelog(1)))
    again = replace(changelog(1), **change)
    assert intake.take(row(again, changelog(2), version=8)).snapshot.handles == (again, changelog(2))


def test_stores_are_told_apart() -> None:
    intake = Intake()
    intake.take(row(changelog(1), partition=0))
    assert intake.take(row(changelog(1), partition=1)).snapshot.store == StoreId(0, 1, "default")
