"""What a driver and an executor keep of processes and queries that are over: they may live for years."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.drivers.spark.driver_streams import Started
from tests.drivers.spark.event_logs import BEGIN_MS, PACKAGE
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


class Giving:
    class Java:
        implements = ("scala.Function0",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def apply(self) -> Any:
        return self._value


def counting(java: Any) -> Callable[..., tuple[int, int]]:
    """Takes a report, and gives what is counted of that stream: requests, and snapshots that wait."""
    counters = java.org.apache.spark.ckpt.StorageCounters
    counters.clear()

    def told(root: str, process: str, requests: int, queued: int = 0) -> tuple[int, int]:
        said = {"process": process, "requests": requests, "queued_snapshots": queued}
        counters.take(root, java.org.apache.spark.ckpt.Json.parse(json.dumps({"storage": said})))
        return counters.of(root).requests(), counters.of(root).queuedSnapshots()

    return told


def test_of_processes_that_are_over_a_sum_is_kept(java: Any) -> None:
    """Executors come and go, and a stream is started again and again."""
    told = counting(java)
    for n in range(1500):
        told("a", f"coordinator {n}", 1)
        last = told("a", f"agent {n} x", 2, queued=1)
        if n < 1499:
            java.org.apache.spark.ckpt.StorageCounters.executorLost(str(n))
    assert last == (4500, 1)
    kept = field(java, "org.apache.spark.ckpt.StorageCounters$", "streams").get("a")
    assert field(java, kept, "live").size() == 2
    assert field(java, kept, "over").size() <= 1000
    told("a", "agent 1498 x", 5, queued=7)
    assert told("a", "coordinator 1498", 3) == (4505, 1), "what it says on its way out counts once"
    assert field(java, kept, "live").size() == 2


def test_a_late_word_of_a_replaced_agent_ends_no_other_one(java: Any) -> None:
    """It may be the first that is heard of it in that stream."""
    told = counting(java)
    told("a", "agent 1 x", 1, queued=1)
    assert told("a", "agent 1 y", 1, queued=2) == (2, 2)
    assert told("b", "agent 1 x", 1, queued=3) == (1, 0)
    assert told("a", "agent 1 y", 4, queued=5) == (5, 5)


def test_the_metrics_of_a_query_do_not_go_with_those_of_one_whose_name_is_shorter(java: Any) -> None:
    """Spark removes all that begin with the name."""
    spark = java.org.apache.spark
    system = spark.metrics.MetricsSystem.createMetricsSystem("driver", spark.SparkConf())
    registry = field(java, system, "registry")
    model = spark.ckpt.ui.CheckpointModel(java.scala.Option.empty())
    metrics = spark.ckpt.ui.CheckpointMetrics(Giving(system), model)

    def started(root: str, name: str) -> None:
        told = {"Event": PACKAGE + "CheckpointRunStarted", "root": root, "run": 1, "epoch": 0, "timeMs": BEGIN_MS, "background": True}
        query = {"queryId": "q", "runId": "r", "name": name, "options": {}}
        event = spark.util.JsonProtocol.sparkEventFromJson(json.dumps({**told, **query}))
        model.add(event)
        metrics.noticed(event)

    def named() -> list[str]:
        return sorted(name.split(".")[-2] for name in registry.getNames() if name.endswith(".durabilityLagMs"))

    def registered(root: str) -> Any:
        return field(java, metrics, "registered").apply(root).metricRegistry().getMetrics().get("durabilityLagMs")

    def shown(name: str) -> Any:
        (full,) = (full for full in registry.getNames() if full.endswith(f"checkpoints.{name}.durabilityLagMs"))
        return registry.getMetrics().get(full)

    started("/orders", "orders")
    started("/orders_eu", "orders_eu")
    for _ in range(2):
        started("/orders", "orders")
        assert named() == ["orders", "orders_eu"]
    started("/elsewhere", "orders")
    assert shown("orders").equals(registered("/elsewhere"))
    started("/orders", "orders")
    assert shown("orders").equals(registered("/orders")), "the last that was started has the name"
    feed = java.org.apache.spark.ckpt.CheckpointFeed
    feed.announced(None, java.org.apache.spark.ckpt.Json.parse(json.dumps({"root": "/orders", "event": "STANDS", "run": 1, "epoch": 0})))
    stream = field(java, "org.apache.spark.ckpt.CheckpointFeed$", "streams").get("/orders")
    runs = stream.getClass().getDeclaredField("runs")
    runs.setAccessible(True)
    runs.setBoolean(stream, True)
    for n in range(150):
        started(f"/hourly-{n}", f"hourly_{n}")
    assert len(named()) <= 102, "nothing is known any more of those that began first"
    assert "orders" in named(), "it still runs"
    assert "orders_eu" not in named()
    feed.ended("/orders")
    started("/last", "last")
    assert "orders" not in named()


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
