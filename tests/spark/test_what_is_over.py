"""What a driver and an executor keep of processes and queries that are over: they may live for years."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.drivers.spark.driver_streams import Started
from tests.drivers.spark.jvm import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm(callbacks=True) as started:
        yield started


def field(java: Any, of: Any, name: str) -> Any:
    found = (java.java.lang.Class.forName(of) if isinstance(of, str) else of.getClass()).getDeclaredField(name)
    found.setAccessible(True)
    return found.get(None if isinstance(of, str) else of)


def test_of_processes_that_are_over_a_sum_is_kept(java: Any) -> None:
    """Executors come and go, and a stream is started again and again."""
    counters = java.org.apache.spark.ckpt.StorageCounters

    def told(process: str, requests: int, queued: int = 0) -> None:
        said = {"process": process, "requests": requests, "queued_snapshots": queued}
        counters.take("a", java.org.apache.spark.ckpt.Json.parse(json.dumps({"storage": said})))

    counters.clear()
    for n in range(300):
        told(f"coordinator {n}", 1)
        told(f"agent {n} x", 2, queued=1)
        if n < 299:
            counters.executorLost(str(n))
    assert (counters.of("a").requests(), counters.of("a").queuedSnapshots()) == (900, 1)
    kept = field(java, "org.apache.spark.ckpt.StorageCounters$", "streams").get("a")
    assert field(java, kept, "live").size() == 2
    assert field(java, kept, "over").size() <= 64
    told("agent 298 x", 5, queued=7)
    told("coordinator 298", 3)
    assert (counters.of("a").requests(), counters.of("a").queuedSnapshots()) == (905, 1), "what it says on its way out counts once"
    assert field(java, kept, "live").size() == 2
    counters.clear()


class Raising:
    class Java:
        implements = ("scala.Function0",)

    def apply(self) -> Any:
        raise OSError("injected")


def test_a_start_that_is_over_lets_go_of_its_query(java: Any, tmp_path: Path) -> None:
    stream = Started(java, tmp_path / "files").stream
    getattr(stream, "background_$eq")(False)
    interrupt = Raising()
    getattr(stream, "interrupt_$eq")(interrupt)
    for n in range(10):
        stream.acknowledged(json.dumps({"type": "acks", "n": n}))
    assert field(java, stream, "acks").size() == 10
    stream.stop(False, False)
    assert field(java, stream, "acks").size() == 0
    stream.interrupt().apply()


def test_a_store_that_cannot_be_opened_is_not_taken_for_open(java: Any, tmp_path: Path) -> None:
    """Else its run's folder stays until the executor ends; and the disk may be full."""
    side = java.org.apache.spark.ckpt.ExecutorSide
    opened, full = field(java, "org.apache.spark.ckpt.ExecutorSide$", "open"), tmp_path / "full"
    where = java.java.lang.Class.forName("org.apache.spark.ckpt.ExecutorSide$").getDeclaredField("spool")
    where.setAccessible(True)
    barrier = java.org.apache.spark.ckpt.Barrier(json.dumps({"root": "r", "stream": "s", "run": 1, "epoch": 0, "time_ms": 0}))
    full.write_text("no folder can be made below a file")
    where.set(None, java.java.io.File(str(full)))
    with pytest.raises(Py4JJavaError, match="the state cannot be written to the spool"):
        side.folder(barrier, "q", 0, 1, "default")
    assert opened.size() == 0
    where.set(None, java.java.io.File(str(tmp_path / "spool")))
    folder = side.folder(barrier, "q", 0, 1, "default")
    assert (opened.size(), Path(folder.getPath()).is_dir()) == (1, True)
    with pytest.raises(Py4JJavaError, match="injected"):
        side.opening(folder, Raising())
    assert opened.size() == 0
    where.set(None, None)
