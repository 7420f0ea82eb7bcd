"""The coordinator as a real process in the interval mode, with `file://` storage: what a JVM sees of it."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.api.checkpoints import checkpoint
from spark_ckpt.api.savepoints import savepoint
from spark_ckpt.coordinator.file_transfer import LARGEST
from spark_ckpt.errors import CheckpointError
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import log_key, metadata_key, run_prefix
from spark_ckpt.protocol.entries import Claim, Plan, decode
from spark_ckpt.protocol.large_files import DIGITS
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.coordinator_process import WAIT_S, FakeJvm, Jvm, b64, encoded
from tests.drivers.protocol_driving import commit, uid_of


def barrier(answer: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(answer["barrier"])
    return decoded


def until(one: FakeJvm, event: str) -> dict[str, Any]:
    while True:
        told = one.events.get(timeout=WAIT_S)
        if told["event"] == event:
            return told


def epoch(one: FakeJvm, number: int, run: int = 1) -> dict[str, Any]:
    """Uploads what its barrier asks for; returns the barrier."""
    asked = barrier(one.trigger(number))
    if asked["checkpoint"]:
        one.acks(run, number)
    if asked["late"] is not None:
        one.acks(run, asked["late"])
    sealed = one.seal(run, number)
    assert (sealed["ok"], sealed["checkpoint"]) == (True, None)
    return asked


def checkpoints(one: FakeJvm, run: int = 1) -> list[str]:
    return [stored.key for stored in one.storage.list(run_prefix(run) + "chk-")]


def test_epochs_go_on_without_checkpoints_until_the_interval_has_passed(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    started = one.start()
    assert started["gate"] == "BACKGROUND"
    for number in range(20):
        assert epoch(one, number)["checkpoint"] is False
    lag = one.seal(1, 19)["lag"]
    assert (lag["epochs"], lag["bytes"]) == (20, 0)
    assert checkpoints(one) == []
    assert one.ask("stop", root=one.root, failed=False)["ok"]


def test_the_longest_interval_and_timeout_are_waited_for(jvm: Jvm) -> None:
    one = jvm(interval="100000d", timeout="100000d")
    one.start()
    for number in range(2):
        assert epoch(one, number)["checkpoint"] is False
    assert one.ask("stop", root=one.root, failed=False)["ok"]


def test_checkpoints_complete_in_the_background_and_old_ones_go(jvm: Jvm) -> None:
    one = jvm(interval="100ms", retained="1")
    one.start()
    completed: list[int] = []
    number = 0
    while len(completed) < 4:
        epoch(one, number)
        number += 1
        while not one.events.empty():
            told = one.events.get()
            # On a busy machine an epoch may be longer than the interval: then the one before it was begun as well, and is given up.
            assert told["event"] in ("TRIGGERED", "COMPLETED") or told.get("reason") == "SUBSUMED", told
            if told["event"] == "COMPLETED":
                assert told["lag_epochs"] >= 0
                completed.append(told["epoch"])
    assert completed == sorted(completed)
    one.ask("stop", root=one.root, failed=False)
    assert one.close() == 0
    while not one.events.empty():
        told = one.events.get()
        if told["event"] == "COMPLETED":
            completed.append(told["epoch"])
    bridged = sum(later - earlier == 1 for earlier, later in pairwise(completed))
    most = "the newest, one that tasks may have loaded from, one whose deletion waits for a plan, and what was begun before a long epoch"
    assert len(checkpoints(one)) <= 3 + bridged, most
    stored = decode_metadata(one.storage.get(metadata_key(CheckpointId(1, completed[-1]))))
    assert {f"offsets/{completed[-1]}", f"commits/{completed[-1]}"} <= set(stored.files)
    present = {o.key for o in one.storage.list(run_prefix(1) + "seg/")}
    assert stored.objects <= present


def test_finish_makes_the_newest_epoch_a_checkpoint_and_tells_executors_to_upload_it(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    one.start()
    for number in range(3):
        epoch(one, number)
    request = one.send("finish", root=one.root, stopping=False)
    late = one.told.get(timeout=WAIT_S)
    assert (late["type"], late["root"], late["run"], late["epoch"]) == ("late", one.root, 1, 2)
    one.acks(1, 2)
    finished = one.answer(request)
    assert (finished["ok"], finished["savepoint"]) == (True, None)
    assert one.told.get(timeout=WAIT_S)["epoch"] is None
    assert checkpoints(one) == [metadata_key(CheckpointId(1, 2))]


def test_state_of_another_executor_is_handed_over_declined_or_lost(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    one.start()
    epoch(one, 0)
    one.trigger(1)

    def want(partition: int) -> str:
        uid = uid_of(1, 0, partition)
        one.say("want", root=one.root, uid=uid, version=1, executors=["1", "2"])
        assert one.told.get(timeout=WAIT_S) == {"type": "handover", "root": one.root, "uid": uid}
        return uid

    def answer() -> dict[str, Any]:
        told = one.told.get(timeout=WAIT_S)
        assert (told.pop("type"), told.pop("root")) == ("wanted", one.root)
        return told

    first = want(0)
    (made,) = one.acks(1, 0, [0])
    assert answer() == {"uid": first, "handles": made.to_json()["handles"], "lost": False, "declined": None}
    second = want(1)
    row = {"run": 1, "epoch": 0, "op": 0, "part": 1, "store": "default", "uid": second, "executor": "2", "decline": "disk full"}
    one.say("acks", root=one.root, acks=[row])
    assert answer() == {"uid": second, "handles": None, "lost": False, "declined": "disk full"}
    assert want(1) == second
    one.say("executors_lost", executors=["2"])
    for _ in range(2):
        one.say("holding", executor="1", held=[first], bytes=0)
    assert answer() == {"uid": second, "handles": None, "lost": True, "declined": None}
    assert one.ask("stop", root=one.root, failed=False)["ok"]


def test_a_crash_costs_no_plan_and_the_epochs_run_again_as_planned(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    one.start()
    for number in range(3):
        one.trigger(number, {f"sources/0/{number}": f"v1\n{number}".encode()})
        one.seal(1, number)
    one.kill()
    two = jvm(interval="1h")
    started = two.start()
    assert (started["origin"], started["epoch"], "offsets/0" in started["files"], started["gate"]) == (None, 0, True, "BACKGROUND")
    assert barrier(started)["checkpoint"] is False
    assert [p["epoch"] for p in started["planned"]] == [1, 2]
    assert two.seal(2, 0)["ok"]
    assert two.trigger(1, {"sources/0/1": b"v1\n1"})["ok"]
    assert two.seal(2, 1)["ok"]
    refused = two.ask("trigger", root=two.root, epoch=2, offsets=b64(b"v1\n{}\n{}"), files={})
    assert refused["error"]["kind"] == "CONFLICT"
    assert two.told.get(timeout=WAIT_S)["type"] == "failed"


def test_a_checkpoint_that_does_not_complete_fails_the_query_though_it_asks_for_nothing(jvm: Jvm) -> None:
    one = jvm(interval="50ms", timeout="1s")
    one.start()
    one.trigger(0)
    one.seal(1, 0)
    # It was due before the epoch was triggered, or became a late one.
    while (told := one.told.get(timeout=WAIT_S))["type"] == "late":
        pass
    assert told["type"] == "failed"
    assert told["kind"] == "TIMEOUT"
    assert "spark.ckpt.timeout" in told["message"]
    assert one.trigger(1)["error"]["kind"] == "TIMEOUT"


def test_a_source_that_forgets_keeps_the_gate_per_epoch(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    started = one.ask("start", **one.start_fields(), forgetful=["socket"])
    assert started["gate"] == "EPOCH"
    assert barrier(started)["checkpoint"] is True
    assert one.epoch(1, 0)["checkpoint"]["epoch"] == 0
    assert any("socket" in line for line in one.logs)


def test_at_least_once_stores_plans_behind_the_epochs(jvm: Jvm) -> None:
    one = jvm(interval="1h", mode="AT_LEAST_ONCE")
    one.start()
    for number in range(100):
        epoch(one, number)
    request = one.send("finish", root=one.root, stopping=False)
    assert one.told.get(timeout=WAIT_S)["epoch"] == 99
    one.acks(1, 99)
    assert one.answer(request)["ok"]
    assert checkpoints(one) == [metadata_key(CheckpointId(1, 99))]
    entries = [decode(n, one.storage.get(log_key(n))) for n in range(1, 102)]
    assert isinstance(entries[0], Claim)
    assert entries[0].ahead == 64
    assert [e.epoch for e in entries[1:] if isinstance(e, Plan)] == list(range(100))


@pytest.mark.parametrize("idle", [True, False])
def test_a_killed_coordinator_is_replaced_in_the_interval_mode(jvm: Jvm, idle: bool) -> None:
    one = jvm(interval="1h")
    started = one.start()
    for number in range(3):
        epoch(one, number)
    if not idle:
        one.trigger(3)
    one.kill()
    two = jvm(interval="1h")
    commits = {f"commits/{n}": commit([uid_of(1, n, p) for p in range(2)]) for n in (1, 2)}
    fields = {**two.start_fields(), "run": started["run"], "claim": started["claim"], "epoch": 3, "sealed": 2, "files": encoded(commits)}
    two.say("resume", **fields)
    if not idle:
        assert barrier(two.trigger(3))["epoch"] == 3
        assert two.seal(1, 3)["lag"]["epochs"] == 4
        assert barrier(two.trigger(4))["checkpoint"] is True
        two.acks(1, 4)
        assert two.seal(1, 4)["ok"]
        assert until(two, "COMPLETED")["epoch"] == 4
    else:
        assert two.told.get(timeout=WAIT_S)["epoch"] == 2
        two.acks(1, 2)
        assert until(two, "COMPLETED")["epoch"] == 2
        assert barrier(two.trigger(3))["base"] == {"run": 1, "epoch": 2}


def test_a_coordinator_that_takes_over_is_handed_files_of_any_size(jvm: Jvm, tmp_path: Path) -> None:
    """A file source's compact file goes with the seal: no plan has it when the coordinator dies."""
    one = jvm(interval="1h")
    started = one.start()
    epoch(one, 0)
    one.kill()
    content = bytes(LARGEST + 1)
    large = tmp_path / "handed-over"
    large.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()[:DIGITS]
    told = {"file": str(large), "length": len(content), "checksum": zlib.crc32(content), "digest": digest}
    two = jvm(interval="1h")
    files = {**encoded({"commits/0": commit([uid_of(1, 0, p) for p in range(2)])}), "sources/0/9.compact": told}
    fields = {**two.start_fields(), "run": started["run"], "claim": started["claim"], "epoch": 0, "sealed": 0, "files": files}
    two.say("resume", **fields)
    assert barrier(two.trigger(1))["epoch"] == 1
    plan = decode(3, two.storage.get(log_key(3)))
    assert isinstance(plan, Plan)
    (stored,) = plan.objects
    assert two.storage.size(stored) == len(content)


def asked(one: FakeJvm, number: int, what: Callable[..., str] = savepoint, **more: bool) -> Future[str]:
    """A person asks, in a thread of their own; returns when the request is log entry `number`."""
    answer: Future[str] = Future()

    def ask() -> None:
        try:
            answer.set_result(what(one.url, timeout="30s", **more))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    until = time.monotonic() + WAIT_S
    while one.storage.size(log_key(number)) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    return answer


@pytest.mark.parametrize("interval", ["0", "1h"])
def test_a_person_asks_for_a_savepoint_and_then_for_the_end(jvm: Jvm, interval: str) -> None:
    one = jvm(interval=interval)
    one.start()
    for number in range(2):
        wanted = asked(one, 2) if number == 0 else asked(one, 4, stop=True)
        assert barrier(one.trigger(number))["checkpoint"] is (number == 0 or interval == "0")
        one.acks(1, number)
        assert one.seal(1, number)["ok"]
        if number == 0:
            assert decode_metadata(FileStorage(wanted.result(WAIT_S)).get("_metadata")).id == CheckpointId(1, 0)
    stopping = one.told.get(timeout=WAIT_S)
    assert stopping == {"type": "stopping", "root": one.root, "run": 1, "drain": False}
    finished = one.ask("finish", root=one.root, stopping=True)
    assert finished["savepoint"] == wanted.result(WAIT_S)
    assert decode_metadata(FileStorage(finished["savepoint"]).get("_metadata")).id == CheckpointId(1, 1)
    assert one.ask("stop", root=one.root, failed=False)["ok"]


def test_a_person_asks_for_checkpoints_where_there_are_no_others(jvm: Jvm) -> None:
    one = jvm(interval="never")
    one.start()
    for number in range(3):
        assert epoch(one, number)["checkpoint"] is False
    wanted = asked(one, 5, checkpoint)
    assert barrier(one.trigger(3))["checkpoint"]
    one.acks(1, 3)
    assert one.seal(1, 3)["ok"]
    url = wanted.result(WAIT_S)
    assert decode_metadata(FileStorage(url).get("_metadata")).id == CheckpointId(1, 3)
    assert epoch(one, 4)["checkpoint"] is False
    assert checkpoints(one) == [metadata_key(CheckpointId(1, 3))]
    assert one.ask("stop", root=one.root, failed=False)["ok"]


def test_a_query_that_ends_answers_who_still_waits(jvm: Jvm) -> None:
    one = jvm(interval="1h")
    one.start()
    wanted = asked(one, 2)
    assert barrier(one.trigger(0))["checkpoint"]
    one.ask("stop", root=one.root, failed=False)
    with pytest.raises(CheckpointError, match="the run ended before it met the request"):
        wanted.result(WAIT_S)
