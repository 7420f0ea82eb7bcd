"""Hooks as the JVM calls them, and answers that are too long for a line, without an application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from spark_ckpt.coordinator.file_transfer import FileTransfer
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


class Calls:
    """A hook in Python, as the JVM calls it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def apply(self, message: str) -> str:
        self.told.append(json.loads(message)["call"])
        return "{}"

    class Java:
        implements = ["java.util.function.Function"]


class Running:
    def __init__(self, *roots: str) -> None:
        self.roots = set(roots)

    def apply(self, root: str) -> bool:
        return root in self.roots

    class Java:
        implements = ["scala.Function1"]


def test_a_query_keeps_the_hook_that_it_began_with_and_its_next_start_has_the_new_one(java: Any) -> None:
    ckpt, nobody = java.org.apache.spark.ckpt, java.scala.Option.apply(None)
    first, second, running = Calls(), Calls(), Running("/data/q")
    ckpt.CheckpointHooks.registerPython("h", first, None)
    begun = ckpt.CheckpointHooks.of("/data/q", nobody, ckpt.HookLimits(5000, True), running)
    ckpt.CheckpointHooks.registerPython("h", second, None)
    begun.completed(0)
    begun.restore("s3://b/q", 5, getattr(getattr(java.scala.collection.immutable, "Map$EmptyMap$"), "MODULE$"), nobody)
    begun.snapshot(1, False)
    begun.completed(1)
    begun.settle()
    assert (first.told, second.told) == (["begin", "restore", "snapshot", "completed"], []), "nothing comes before the restore"
    ckpt.CheckpointHooks.of("/data/q", nobody, ckpt.HookLimits(5000, True), running).snapshot(2, False)
    assert second.told == ["snapshot"]
    ckpt.CheckpointHooks.clear()


def test_a_hook_without_a_querys_name_belongs_to_the_one_query_that_runs(java: Any) -> None:
    ckpt, nobody = java.org.apache.spark.ckpt, java.scala.Option.apply(None)
    running = Running()
    ckpt.CheckpointHooks.registerPython("h", Calls(), None)
    ckpt.CheckpointHooks.of("/data/wrong", nobody, ckpt.HookLimits(5000, True), running)
    ckpt.CheckpointHooks.of("/data/right", nobody, ckpt.HookLimits(5000, True), running)
    running.roots.add("/data/right")
    with pytest.raises(Py4JJavaError, match="this application has two, at /data/right and /data/other"):
        ckpt.CheckpointHooks.of("/data/other", nobody, ckpt.HookLimits(5000, True), running)
    ckpt.CheckpointHooks.clear()


def test_an_answer_that_is_too_long_for_a_line_comes_by_file(java: Any, tmp_path: Path) -> None:
    """Whoever goes on from 100,000 planned epochs is given them."""
    transfer = java.org.apache.spark.ckpt.FileTransfer(java.java.io.File(str(tmp_path)))
    sender = FileTransfer()
    sender.begin(str(tmp_path))
    planned = [{"epoch": n, "offsets": "x" * 300} for n in range(100_000)]
    fields = {"run": 3, **sender.part({"files": {}, "planned": planned})}
    assert len(json.dumps(fields)) < 1000
    whole = transfer.whole(java.org.apache.spark.ckpt.Json.parse(json.dumps(fields)))
    assert (whole.get("run").asInt(), whole.get("planned").size(), whole.get("files").isEmpty()) == (3, 100_000, True)
    assert whole.get("planned").get(99_999).get("epoch").asInt() == 99_999
    assert list(tmp_path.iterdir()) == []
    small = sender.part({"planned": planned[:1]})
    assert small == {"planned": planned[:1]}
