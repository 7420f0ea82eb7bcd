"""When an agent, and a stream within it, ends."""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import __version__
from spark_ckpt.model import CheckpointId
from spark_ckpt.storage import Storage, open_storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import ROOT, WAIT_S, AgentProcess, Client, FakeStore, LocalAgent, complete, staged


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}/orders"


class ClosableStorage(FaultyStorage):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


class Opened:
    """Every opening of a storage."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        self.clients: list[ClosableStorage] = []

    def __call__(self, url: str, *_: Any) -> Storage:
        self.clients.append(ClosableStorage(open_storage(url), self.faults))
        return self.clients[-1]

    @property
    def traffic(self) -> int:
        return sum(client.requests.total() for client in self.clients)


def over(run: int) -> dict[str, Any]:
    return {"type": "over", "root": ROOT, "run": run}


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def workers() -> int:
    return sum(thread.name.startswith(("stream ", "upload")) for thread in threading.enumerate())


def commit(agent: Client, url: str, store: FakeStore, epoch: int, run: int = 1, base: CheckpointId | None = None, **more: Any) -> str:
    store.commit()
    agent.send(store.message(url, epoch, base, run, **more))
    agent.send({"type": "flush"})
    return str(store.uid)


def test_an_agent_with_a_broken_stream_says_so_and_ends(tmp_path: Path) -> None:
    agent, store = AgentProcess(tmp_path / "spool"), FakeStore(tmp_path / "spool" / "0-0")
    store.commit()
    agent.send({**store.message(f"file://{tmp_path}/storage", 0, None), "sync_ms": float("nan")})
    agent.send({"type": "flush"})
    assert agent.process.wait(WAIT_S) == 1
    agent.wait_for(lambda line: line.get("level") == "ERROR" and "cannot go on: internal error" in line["message"])


def test_the_end_of_a_run_frees_the_spool_and_ends_the_stream(url: str, spool: Path) -> None:
    before, opened = workers(), Opened()
    agent, store = LocalAgent(spool, opened, {"spark.ckpt.spool.maxSize": "4000"}), FakeStore(spool / "0-0")
    agent.ack(commit(agent, url, store, 0))
    for epoch in range(1, 4):
        commit(agent, url, store, epoch, checkpoint=False)
    until(lambda: len(staged(spool)) == 3, "three commits are kept")
    assert workers() > before
    agent.send(over(1))
    until(lambda: workers() == before, "the stream's threads end")
    assert staged(spool) == []
    assert opened.clients[0].closed
    agent.wait_for(lambda line: line.get("type") == "spool" and line["bytes"] == 0)
    agent.close()


def test_a_later_run_begins_anew_and_the_counts_go_on(url: str, spool: Path, tmp_path: Path) -> None:
    opened = Opened()
    agent, store = LocalAgent(spool, opened), FakeStore(spool / "run-1")
    ack = agent.ack(commit(agent, url, store, 0))
    base = complete(open_storage(url), CheckpointId(1, 0), [ack.snapshot])
    agent.send(over(1))
    until(lambda: opened.clients[0].closed, "the storage is closed")
    folder = spool / "run-2"
    assert agent.ask({**store.fetch_message(url, base, folder), "run": 2})["ok"] is True
    store.folder = folder
    agent.send(over(1))
    next_ack = agent.ack(commit(agent, url, store, 1, 2, base))
    assert next_ack.snapshot.handles[:-1] == ack.snapshot.handles
    assert len(opened.clients) == 2
    agent.wait_for(lambda line: line.get("type") == "storage" and line["storage"]["requests"] == opened.traffic)
    agent.close()


def test_a_newer_run_does_not_end_with_an_older_one(url: str, spool: Path) -> None:
    opened = Opened()
    agent, store, again = LocalAgent(spool, opened), FakeStore(spool / "run-1"), FakeStore(spool / "run-2")
    commit(agent, url, store, 0, checkpoint=False)
    uid = commit(agent, url, again, 0, 2, checkpoint=False)
    agent.send(over(1))
    agent.send({"type": "handover", "root": ROOT, "op": 0, "part": 0, "store": "default", "uid": uid})
    assert agent.ack(uid).run == 2
    assert len(opened.clients) == 1
    agent.close()


def test_uploads_of_a_run_that_is_over_are_not_tried_again(url: str, spool: Path) -> None:
    before = workers()
    opened = Opened(Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=None))
    agent = LocalAgent(spool, opened, {"spark.ckpt.timeout": "10min"})
    stores = [FakeStore(spool / f"0-{n}", partition=n) for n in range(8)]
    for epoch, store in enumerate(stores):
        commit(agent, url, store, epoch)
    until(lambda: len(opened.clients) > 0 and len(opened.clients[0].hits) > 0, "an upload fails")
    agent.send(over(1))
    until(lambda: workers() == before, "the stream's threads end")
    assert staged(spool) == []
    assert agent.acks == []
    agent.close()


def test_a_run_that_is_over_before_anything_came_of_it_is_nothing(spool: Path) -> None:
    agent = LocalAgent(spool)
    agent.send(over(3))
    assert agent.ask({"type": "hello", "jar": __version__, "conf": {}, "executor": "1", "spool": str(spool)})["ok"] is True
    assert [line for line in agent.lines if line.get("type") == "log"] == []
    agent.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_whole_group_does_not_end_an_agent_before_its_farewell(tmp_path: Path, number: signal.Signals) -> None:
    """YARN, systemd and Kubernetes signal the JVM and all that it has started; the JVM takes a while to end."""
    agent, store = AgentProcess(tmp_path / "spool"), FakeStore(tmp_path / "spool" / "0-0")
    store.commit()
    agent.send(store.message(f"file://{tmp_path}/storage/orders", 0, None))
    agent.process.send_signal(number)
    assert agent.ask({"type": "ping"})["ok"] is True
    assert agent.end() == 0
    left = list((tmp_path / "storage/orders").glob("run-00000001/ack/0-*"))
    assert [row["uid"] for path in left for row in json.loads(path.read_text())["acks"]] == [store.uid]
    assert list((tmp_path / "storage/orders").glob("run-00000001/seg/0-*"))
