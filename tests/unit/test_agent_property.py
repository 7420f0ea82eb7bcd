"""Any order of commits, full snapshots, completions, restarts, moves and failing uploads: what an ack names loads, byte for byte."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_ckpt.model import CheckpointId, Snapshot
from spark_ckpt.storage import open_storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import FakeStore, LocalAgent, check_loads, complete

STEPS = st.one_of(
    st.just(("commit", 0)),
    st.just(("commit", 0)),
    st.just(("commit_and_snapshot", 0)),
    st.tuples(st.just("snapshot"), st.integers(0, 3)),
    st.just(("restart", 0)),
    st.just(("kill_after_commit", 0)),
    st.just(("move", 0)),
    st.just(("lose_answer", 0)),
    st.just(("other_attempt", 0)),
)


class World:
    """Every epoch's checkpoint completes before the next one begins, as with the default interval."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"memory://{uuid.uuid4()}/orders"
        self.storage = FaultyStorage(open_storage(self.url))
        self.spools = 0
        self.base: CheckpointId | None = None
        self.last: Snapshot | None = None
        self.epoch = 0
        self.agent = self.start()
        self.store = FakeStore(self.spool / "0-0")

    @property
    def spool(self) -> Path:
        return self.folder / f"spool-{self.spools}"

    def start(self) -> LocalAgent:
        return LocalAgent(self.spool, lambda *_: self.storage)

    def step(self, kind: str, back: int) -> None:
        store = self.store
        if kind == "snapshot":
            version = store.version - back
            # Spark never uploads one older than it has; and a moved store no longer knows older versions.
            newer = version > max(store.snapshots, default=0)
            if newer and (store.folder / f"{version}_{store.lineage[version]}.changelog").exists():
                store.snapshot(version, (30, 1 << 20) if version % 5 == 0 else (30,), keep=3)
        elif kind == "restart":
            self.agent.close()
            self.agent = self.start()
        elif kind == "move":
            self.move()
        elif kind == "lose_answer":
            self.storage.inject(Fault(Moment.LOSE_ANSWER, operations=frozenset({"put"})))
        elif kind == "other_attempt":
            self.losing_attempt()
        else:
            self.commit(kind)

    def commit(self, kind: str) -> None:
        store = self.store
        store.commit()
        if kind == "commit_and_snapshot":
            store.snapshot(store.version)
        message = store.message(self.url, self.epoch, self.base)
        self.agent.send(message)
        if kind == "kill_after_commit":
            self.agent.kill()
            self.agent = self.start()
            self.agent.send(message)
        self.agent.send({"type": "flush"})
        ack = self.agent.ack(store.uid)
        assert ack.epoch == self.epoch
        self.last = ack.snapshot
        self.base = complete(self.storage, CheckpointId(1, self.epoch), [ack.snapshot])
        self.epoch += 1
        self.check_elsewhere()

    def losing_attempt(self) -> None:
        """Another attempt of the next version: committed, acknowledged, never required."""
        store = self.store
        lineage, snapshots = dict(store.lineage), set(store.snapshots)
        store.commit()
        self.agent.send(store.message(self.url, self.epoch, self.base))
        self.agent.send({"type": "flush"})
        self.agent.ack(store.uid)
        store.snapshot(store.version, keep=3)
        store.lineage, store.snapshots = lineage, snapshots

    def move(self) -> None:
        if self.last is None:
            return
        self.agent.close()
        self.spools += 1
        self.agent = self.start()
        self.store.folder = self.spool / "0-0"
        answer = self.agent.ask(self.store.fetch_message(self.url, self.base, self.store.folder))
        assert answer["ok"] is True, answer
        check_loads(self.store.folder, self.store, self.last)
        full = [int(h.name.split("_")[0]) for h in self.last.handles if h.name.endswith(".zip")]
        self.store.snapshots = set(full)
        names = {h.name[5:]: h.length for h in self.last.handles if h.name.startswith("SSTs/")}
        self.store.ssts = names

    def check_elsewhere(self) -> None:
        """By an agent that knows nothing, into an empty folder."""
        assert self.last is not None
        spool = self.folder / f"check-{self.epoch}"
        agent = LocalAgent(spool, lambda *_: self.storage)
        answer = agent.ask(self.store.fetch_message(self.url, self.base, spool / "0-0"))
        assert answer["ok"] is True, answer
        check_loads(spool / "0-0", self.store, self.last)
        agent.close()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_what_an_ack_names_loads(steps: list[tuple[str, int]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        world = World(folder)
        for kind, back in steps:
            world.step(kind, back)
        world.agent.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
