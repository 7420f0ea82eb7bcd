"""The coordinator as a real process, for a query in real time: what a JVM says and sees."""

from __future__ import annotations

import json
from typing import Any

from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import metadata_key
from spark_ckpt.protocol.entries import Plan, decode
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.coordinator_process import WAIT_S, FakeJvm, Jvm, b64
from tests.drivers.protocol_driving import commit, offsets, uid_of


def completed(one: FakeJvm) -> dict[str, Any]:
    while (told := one.events.get(timeout=WAIT_S))["event"] != "COMPLETED":
        pass
    return told


def epoch(one: FakeJvm, number: int, run: int = 1) -> dict[str, Any]:
    """Its barrier, and what its seal is answered."""
    began = one.ask("trigger", root=one.root, epoch=number, offsets="", files={})
    assert began["ok"], began
    barrier: dict[str, Any] = json.loads(began["barrier"])
    one.acks(run, number)
    made = commit([uid_of(run, number, p) for p in range(2)])
    sealed = one.ask("seal", root=one.root, epoch=number, commit=b64(made), files={}, offsets=b64(offsets(number)))
    assert (sealed["ok"], sealed["checkpoint"]) == (True, None)
    return barrier


def test_the_barrier_comes_first_and_the_offsets_with_the_seal(jvm: Jvm) -> None:
    one = jvm()
    started = one.ask("start", **one.start_fields(), real_time=True)
    assert (started["gate"], started["real_time"]) == ("BACKGROUND", True)
    for number in range(3):
        assert epoch(one, number)["checkpoint"] is True
        assert completed(one)["epoch"] == number
    read = decode_metadata(one.storage.get(metadata_key(CheckpointId(1, 2))))
    assert read.files["offsets/2"] == offsets(2)
    entries = [decode(int(o.key.rpartition("/")[2]), one.storage.get(o.key)) for o in one.storage.list("log/")]
    assert [e.epoch for e in entries if isinstance(e, Plan) and e.real_time and e.offsets] == [0, 1, 2]
    assert one.ask("stop", root=one.root, failed=False)["ok"]
    again = one.ask("start", **one.start_fields(), real_time=True)
    assert (again["epoch"], again["origin"]) == (5, {"run": 1, "epoch": 2})


def test_a_query_with_micro_batches_is_no_run_in_real_time(jvm: Jvm) -> None:
    one = jvm()
    assert one.start()["real_time"] is False
