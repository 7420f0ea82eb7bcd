"""What an agent remembers of files, in bytes of its memory: docs/operations.md has these bounds."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt import __version__
from spark_ckpt.model import CheckpointId
from spark_ckpt.storage import Storage
from tests.drivers.agent_stores import Client, FakeStore, LocalAgent, complete

STORES = 10
EPOCHS = 40
OF_A_FILE = 1024
"""Bytes, with its share of the commits that name it."""


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def remembered(agent: Client, spool: Path) -> int:
    """By what this package has made; all that was said before has been taken in."""
    agent.ask({"type": "hello", "jar": __version__, "conf": {}, "executor": "1", "spool": str(spool)})
    gc.collect()
    own = tracemalloc.Filter(True, f"{Path(str(spark_ckpt.__file__)).parent}/*")
    return sum(found.size for found in tracemalloc.take_snapshot().filter_traces([own]).statistics("filename"))


def commit(agent: Client, stores: list[FakeStore], url: str, epoch: int, checkpoint: bool) -> None:
    for store in stores:
        store.commit()
        store.files.clear()
        agent.send(store.message(url, epoch, None, checkpoint=checkpoint))


def test_a_file_takes_less_than_a_kilobyte_until_it_is_stored_and_after(spool: Path, url: str, storage: Storage, tmp_path: Path) -> None:
    agent = LocalAgent(spool)
    stores = [FakeStore(spool / f"0-{n}", partition=n) for n in range(STORES)]
    commit(agent, stores, url, 0, checkpoint=True)
    agent.send({"type": "flush"})
    for store in stores:
        agent.ack(store.uid)
    before = remembered(agent, spool)
    for epoch in range(1, EPOCHS):
        commit(agent, stores, url, epoch, checkpoint=False)
    assert (remembered(agent, spool) - before) / (STORES * EPOCHS) < OF_A_FILE
    commit(agent, stores, url, EPOCHS, checkpoint=True)
    agent.send({"type": "flush"})
    snapshots = [agent.ack(store.uid).snapshot for store in stores]
    assert sum(len(snapshot.handles) for snapshot in snapshots) == STORES * (EPOCHS + 1)
    assert (remembered(agent, spool) - before) / (STORES * EPOCHS) < OF_A_FILE
    agent.close()

    base = complete(storage, CheckpointId(1, EPOCHS), snapshots)
    reader, folder = LocalAgent(tmp_path / "reader"), tmp_path / "reader" / "orders" / "run-00000002" / "0" / "0" / "default"
    before = remembered(reader, tmp_path / "reader")
    assert reader.ask({**stores[0].fetch_message(url, base, folder), "run": 2})["files"] == EPOCHS + 1
    assert (remembered(reader, tmp_path / "reader") - before) / (STORES * EPOCHS) < OF_A_FILE
    reader.close()
