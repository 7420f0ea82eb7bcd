"""A run that starts: a checkpoint of many partitions, agents that fetch it, and what they ask the storage for."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from spark_ckpt.model import CheckpointId
from spark_ckpt.storage import Storage, open_storage
from testbed.faulty import Fault, FaultyStorage
from tests.drivers.agent_stores import FakeStore, LocalAgent, check_loads, complete

BASE = CheckpointId(1, 20)
PARTITIONS = 100
EPOCHS = 20
ALONE = "driver"
ONE_OF_TWO = "1"


class Counting(FaultyStorage):
    """Knows which bytes of which object were asked for."""

    def __init__(self, inner: Storage, faults: list[Fault] | None = None) -> None:
        super().__init__(inner, faults or [])
        self.ranges: list[tuple[str, int, int]] = []

    def get_to_file(self, key: str, offset: int, length: int, path: Path, at: int | None = None) -> int:
        self.ranges.append((key, offset, length))
        return super().get_to_file(key, offset, length, path, at)

    @property
    def twice(self) -> int:
        """Bytes that were asked for more than once."""
        most = 0
        for key in {key for key, _, _ in self.ranges}:
            ranges = [(offset, length) for name, offset, length in self.ranges if name == key]
            counts: Counter[int] = Counter(at for offset, length in ranges for at in range(offset, offset + length))
            most += sum(n - 1 for n in counts.values())
        return most


class World:
    """A checkpoint of many partitions, each with a chain of changelogs; every epoch is one segment. Executor `driver` has uploaded it."""

    def __init__(
        self, tmp_path: Path, partitions: int = PARTITIONS, epochs: int = EPOCHS, payload: int = 40, name: str = "orders"
    ) -> None:
        """`name`: of the stream; several may be in one folder."""
        self.spools = tmp_path
        self.name = name
        self.root = f"file:/data/ckpt/{name}"
        self.url = f"memory://{uuid.uuid4()}/{name}"
        self.storage = open_storage(self.url)
        self.stores = [FakeStore(tmp_path / "first" / name / "0" / str(p) / "default", partition=p) for p in range(partitions)]
        agent = LocalAgent(tmp_path / "first", executor=ALONE)
        for epoch in range(epochs):
            for store in self.stores:
                store.commit(payload)
                agent.send(store.message(self.url, epoch, None))
            agent.send({"type": "flush"})
            acks = [agent.ack(store.uid) for store in self.stores]
        agent.close()
        self.snapshots = [ack.snapshot for ack in acks]
        complete(self.storage, BASE, self.snapshots)
        self.segments = {handle.object for handle in self.handles}

    @property
    def handles(self) -> list[Any]:
        return [handle for snapshot in self.snapshots for handle in snapshot.handles]

    def agent(self, storage: Storage, executor: str, spool: str = "second", **conf: str) -> LocalAgent:
        return LocalAgent(self.spools / spool, lambda *_: storage, {f"spark.ckpt.{k}": v for k, v in conf.items()}, executor=executor)

    def folder(self, partition: int, spool: str = "second", run: int = 2) -> Path:
        return self.spools / spool / self.name / f"run-{run:08d}" / "0" / str(partition) / "default"

    def message(self, partition: int, spool: str = "second", run: int = 2) -> dict[str, Any]:
        message = self.stores[partition].fetch_message(self.url, BASE, self.folder(partition, spool, run))
        return {**message, "root": self.root, "run": run}

    def check(self, partition: int, spool: str = "second") -> None:
        check_loads(self.folder(partition, spool), self.stores[partition], self.snapshots[partition])


def kept(world: World, spool: str = "second") -> int:
    """Bytes in the agent's own folder."""
    return sum(p.stat().st_size for p in (world.spools / spool).glob(".agent-*/*"))


def ahead(world: World, spool: str = "second", run: int = 2) -> dict[str, Any]:
    message = world.message(0, spool, run)
    folder = world.folder(0, spool, run).parents[2]
    return {**{key: message[key] for key in ("root", "stream", "run", "base")}, "type": "ahead", "dir": str(folder)}


def settled(storage: Counting, count: int) -> None:
    """Until so many reads have been begun, and a moment longer: no more are."""
    deadline = time.monotonic() + 30
    while len(storage.ranges) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(storage.ranges) == count
