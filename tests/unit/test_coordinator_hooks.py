"""States of hooks through the pipe of a real coordinator process: into `_metadata`, back at the next start, over its own death."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import metadata_key
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.coordinator_process import FakeJvm, Jvm, b64


def start(one: FakeJvm, *names: str) -> dict[str, Any]:
    return one.ask("start", **one.start_fields(), hooks=list(names))


def seal(one: FakeJvm, run: int, epoch: int, declined: str | None = None, **states: bytes | None) -> dict[str, Any]:
    given = {name: None if state is None else b64(state) for name, state in states.items()}
    return one.ask("seal", **one.seal_fields(run, epoch), hooks={"states": given, "declined": declined})


def test_states_are_stored_and_come_back_and_the_hook_hears_of_it_before_the_answer(jvm: Jvm) -> None:
    one = jvm()
    assert start(one, "a", "b")["hooks"] == {}
    one.trigger(0)
    one.acks(1, 0)
    assert seal(one, 1, 0, a=b"\0state", b=None)["ok"]
    assert one.told.get_nowait() == {"type": "hooks", "root": one.root, "completed": 0}, "it came before the answer"
    assert decode_metadata(one.storage.get(metadata_key(CheckpointId(1, 0)))).hooks == {"a": b"\0state"}
    one.kill()
    two = jvm()
    assert start(two, "a", "b")["hooks"] == {"a": b64(b"\0state")}


def test_a_hook_that_declines_ends_the_query_where_every_epoch_is_a_checkpoint(jvm: Jvm) -> None:
    one = jvm()
    start(one, "a")
    one.trigger(0)
    one.acks(1, 0)
    refused = seal(one, 1, 0, declined="the hook 'a' failed in snapshot(0): ValueError: no")
    assert (refused["ok"], refused["error"]["kind"]) == (False, "DECLINED")
    assert refused["error"]["message"] == "the hook 'a' failed in snapshot(0): ValueError: no"
    assert one.told.get(timeout=5)["aborted"] == 0


def test_a_coordinator_that_takes_over_tells_the_hooks_again(jvm: Jvm) -> None:
    one = jvm()
    started = start(one, "a")
    one.trigger(0)
    one.acks(1, 0)
    seal(one, 1, 0, a=b"s")
    one.kill()
    two = jvm()
    resumed = {**two.start_fields(), "hooks": ["a"], "run": 1, "claim": started["claim"], "epoch": 1, "sealed": 0, "sealed_hooks": None}
    assert two.ask("resume", **{**resumed, "files": {}})["ok"]
    assert two.told.get(timeout=5) == {"type": "hooks", "root": two.root, "completed": 0}


@pytest.mark.parametrize(("failure", "fails"), [("FAIL", True), ("DECLINE", False)])
def test_what_the_jvm_keeps_to_is_read_by_python_alone(jvm: Jvm, failure: str, fails: bool) -> None:
    options = {"interval": "1s", "hooks.timeout": "2 min", "hooks.onFailure": failure}
    assert jvm(**options).hello["hooks"] == {"timeout_ms": 120_000, "fails": fails}


def test_without_an_interval_no_epoch_can_be_declined(jvm: Jvm) -> None:
    refused = jvm(**{"hooks.onFailure": "DECLINE"}).hello
    assert (refused["ok"], refused["error"]["kind"]) == (False, "CONFIG")
    assert "spark.ckpt.hooks.onFailure=DECLINE contradicts spark.ckpt.interval=0" in refused["error"]["message"]
