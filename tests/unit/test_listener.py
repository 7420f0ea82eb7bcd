"""What a `CheckpointListener` is told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ckpt import CheckpointListener, ConfigError
from spark_ckpt.api.listener import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointRestored,
    CheckpointSavepoint,
    CheckpointTriggered,
    OperatorShare,
    dispatch,
)

COMMON = {"root": "file:/c", "run": 2, "epoch": 7, "timeMs": 1000}
COMPLETED = {
    **COMMON,
    "Event": "org.apache.spark.ckpt.CheckpointCompleted",
    "path": "s3://b/c/run-00000002/chk-7",
    "acked": 3,
    "required": 3,
    "newBytes": 10,
    "fullBytes": 30,
    "metadataBytes": 5,
    "durationMs": 90,
    "lag": {"epochs": 2, "ms": 3, "bytes": 4},
    "late": False,
    "operators": [
        {
            "id": 1,
            "name": "aggregate(key)",
            "partitions": 3,
            "snapshots": 3,
            "newBytes": 10,
            "fullBytes": 30,
            "syncMsMax": 1.5,
            "asyncMsMax": 40.0,
            "startDelayMsMax": 5.0,
            "commitMsMax": 20.0,
            "ackedMsMax": 60.0,
            "subtasks": [[0, 0, 5, 0, 1500, 40, 10, 30]],
            "distributions": [],
        }
    ],
}


class Noting(CheckpointListener):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_triggered(self, event: CheckpointTriggered) -> None:
        self.heard.append(event)

    def on_completed(self, event: CheckpointCompleted) -> None:
        self.heard.append(event)

    def on_aborted(self, event: CheckpointAborted) -> None:
        self.heard.append(event)

    def on_restored(self, event: CheckpointRestored) -> None:
        self.heard.append(event)

    def on_savepoint(self, event: CheckpointSavepoint) -> None:
        self.heard.append(event)


def hear(doc: dict[str, Any]) -> object:
    listener = Noting()
    dispatch(listener, json.dumps(doc))
    (event,) = listener.heard
    return event


def test_each_event_has_its_method() -> None:
    package = "org.apache.spark.ckpt."
    triggered = {**COMMON, "Event": package + "CheckpointTriggered", "late": True}
    assert hear(triggered) == CheckpointTriggered("file:/c", 2, 7, 1000, late=True)
    expired = {"reason": "EXPIRED", "message": "too slow", "acked": 1, "required": 3, "late": False}
    aborted = {**COMMON, "Event": package + "CheckpointAborted", **expired}
    assert hear(aborted) == CheckpointAborted("file:/c", 2, 7, 1000, "EXPIRED", "too slow", 1, 3, late=False)
    copied = {"path": "s3://b/c/run-00000002/chk-7", "fullBytes": 30, "from": "s3://b/sp", "fromSavepoint": True}
    restored = {**COMMON, "Event": package + "CheckpointRestored", **copied}
    assert hear(restored) == CheckpointRestored("file:/c", 2, 7, 1000, "s3://b/c/run-00000002/chk-7", 30, "s3://b/sp", from_savepoint=True)


def test_a_savepoint_has_its_own() -> None:
    doc = {**COMMON, "Event": "org.apache.spark.ckpt.CheckpointSavepoint", "path": "s3://b/sp", "fullBytes": 30}
    assert hear(doc) == CheckpointSavepoint("file:/c", 2, 7, 1000, "s3://b/sp", 30)


def test_a_completed_checkpoint_tells_its_operators() -> None:
    event = hear(COMPLETED)
    assert isinstance(event, CheckpointCompleted)
    assert (event.path, event.acked, event.new_bytes, event.lag_epochs) == ("s3://b/c/run-00000002/chk-7", 3, 10, 2)
    assert event.operators == (OperatorShare(1, "aggregate(key)", 3, 10, 30, 1.5, 40.0, 5.0, 20.0, 60.0),)


@pytest.mark.parametrize("name", ["org.apache.spark.ckpt.CheckpointRunStarted", "SparkListenerJobStart"])
def test_other_events_are_left_alone(name: str) -> None:
    listener = Noting()
    dispatch(listener, json.dumps({**COMMON, "Event": name}))
    assert listener.heard == []


def test_what_is_not_overridden_does_nothing() -> None:
    dispatch(CheckpointListener(), json.dumps(COMPLETED))


def test_a_session_of_spark_connect_is_refused() -> None:
    with pytest.raises(ConfigError, match="Spark Connect"):
        CheckpointListener().attach(object())  # type: ignore[arg-type]


class Bridge:
    """Of a session that goes on, has stopped, or whose JVM has died."""

    def __init__(self, answer: bool | None) -> None:
        self._answer = answer

    def isOpen(self) -> bool:
        if self._answer is None:
            raise ConnectionRefusedError
        return self._answer


@pytest.mark.parametrize(
    ("answer", "message"), [(True, "attached already"), (False, "no checkpoints to listen to"), (None, "no checkpoints to listen to")]
)
def test_a_listener_of_a_session_that_is_over_can_be_attached_again(answer: bool | None, message: str) -> None:
    """Here to a session without the plugin: what is told of that one counts."""
    listener = Noting()
    listener._bridge = Bridge(answer)
    packages = SimpleNamespace(**{"org.apache.spark.ckpt": SimpleNamespace(ListenerBridge=None)})
    session: Any = SimpleNamespace(_sc=SimpleNamespace(_jvm=packages))
    with pytest.raises(ConfigError, match=message):
        listener.attach(session)
