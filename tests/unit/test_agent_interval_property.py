"""Any order of epochs (checkpoints or not), losing attempts, maintenance, moves, late checkpoints, outages, a full spool, dead agents and
new runs: what an ack names loads byte for byte, nothing is uploaded twice, and in the end nothing is left in the staging folder."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_ckpt.model import Ack, CheckpointId, Handle, Snapshot
from spark_ckpt.storage import open_storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import ROOT, WAIT_S, FakeStore, LocalAgent, complete, needed, staged

STORES = 3
RETAINED_VERSIONS = 5
CONF = {"spark.ckpt.timeout": "200ms", "spark.ckpt.localRecovery": "false"}

INDEX = st.integers(0, STORES - 1)
STEPS = st.one_of(
    st.tuples(st.just("epoch"), st.integers(0, 7), st.booleans()),
    st.tuples(st.just("epoch"), st.integers(0, 7), st.just(False)),
    st.tuples(st.just("maintenance"), INDEX, st.integers(0, 3)),
    st.tuples(st.just("move"), INDEX, st.just(0)),
    st.tuples(st.just("handover"), INDEX, st.just(0)),
    st.tuples(st.just("late"), st.just(0), st.just(0)),
    st.tuples(st.just("outage"), st.just(0), st.just(0)),
    st.tuples(st.just("heal"), st.just(0), st.just(0)),
    st.tuples(st.just("lose_answer"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("new_run"), st.just(0), st.just(0)),
)


class Executor:
    """An agent with its life's memory: what it holds, as the JVM side would tell its replacement, and what it has been seen to upload."""

    def __init__(self, spool: Path, storage: FaultyStorage, max_bytes: int) -> None:
        self.spool = spool
        self._storage = storage
        self._conf = {**CONF, "spark.ckpt.spool.maxSize": str(max_bytes)}
        self.held: dict[str, dict[str, Any]] = {}
        self.start()

    def start(self) -> None:
        # An abandoned agent is a thread that may still stage what it had been told: its folder is nobody's any more.
        self.abandoned = set(self.spool.glob(".agent-*"))
        self.agent = LocalAgent(self.spool, lambda *_: self._storage, self._conf)
        self.checked = 0
        self.seen: dict[tuple[int, str], Handle] = {}

    def left(self) -> list[Path]:
        """What the living agent still has to upload."""
        return [path for path in staged(self.spool) if path.parent not in self.abandoned]

    def commit(self, message: dict[str, Any]) -> None:
        of_store = [m for m in self.held.values() if m["part"] == message["part"]]
        for old in of_store:
            newer = (old["run"], old["epoch"]) < (message["run"], message["epoch"])
            if old["run"] < message["run"] or (newer and (not old["checkpoint"] or self.settled(old["uid"]))):
                del self.held[old["uid"]]
        self.held[message["uid"]] = message
        self.agent.send(message)

    def settled(self, uid: str) -> bool:
        return any(a["uid"] == uid for a in self.agent.acks)

    def kill(self) -> None:
        self.agent.kill()
        again = [{**m, "checkpoint": m["checkpoint"] and not self.settled(m["uid"])} for m in self.held.values()]
        self.start()
        for message in sorted(again, key=lambda m: (m["epoch"], not m["checkpoint"])):
            self.agent.send(message)


class World:
    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.url = f"memory://{uuid.uuid4()}/orders"
        self.storage = FaultyStorage(open_storage(self.url))
        self.executors = [Executor(folder / f"executor-{n}", self.storage, max_bytes) for n in range(2)]
        self.run, self.epoch = 1, 0
        self.base: CheckpointId | None = None
        self.completed: dict[CheckpointId, list[Snapshot]] = {}
        self.lineages: dict[CheckpointId, list[dict[int, str]]] = {}
        self.away = self.killed = False
        self.losers: set[str] = set()
        self.owner = [n % 2 for n in range(STORES)]
        self.stores = [FakeStore(self.store_folder(n), partition=n) for n in range(STORES)]

    def store_folder(self, part: int) -> Path:
        return self.executors[self.owner[part]].spool / f"run-{self.run}" / str(part)

    def of(self, part: int) -> Executor:
        return self.executors[self.owner[part]]

    # -- steps

    def step(self, kind: str, n: int, more: Any) -> None:
        if kind == "epoch":
            self.run_epoch(losing=n, checkpoint=bool(more))
        elif kind == "maintenance":
            self.maintain(self.stores[n], int(more))
        elif kind == "move":
            self.move(n)
        elif kind == "handover":
            self.hand_over(n)
        elif kind == "late":
            self.late()
        elif kind == "outage":
            self.storage.inject(Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=None))
            self.away = True
        elif kind == "heal":
            self.heal()
        elif kind == "lose_answer":
            self.storage.inject(Fault(Moment.LOSE_ANSWER, operations=frozenset({"put"})))
        elif kind == "kill":
            self.killed = True  # what a dead agent had uploaded, its replacement does not know
            self.executors[n].kill()
        else:
            self.begin_run()
        self.check()

    def heal(self) -> None:
        self.storage.heal()
        self.away = False

    def run_epoch(self, losing: int, checkpoint: bool) -> None:
        """`losing`: a bit for each store of which another attempt commits first."""
        for part, store in enumerate(self.stores):
            if losing >> part & 1:
                lineage, snapshots, ssts = dict(store.lineage), set(store.snapshots), dict(store.ssts)
                store.commit()
                self.losers.add(str(store.uid))
                self.of(part).commit(self.message(store, checkpoint))
                store.lineage, store.snapshots, store.ssts = lineage, snapshots, ssts
            store.commit()
            self.of(part).commit(self.message(store, checkpoint))
        for executor in self.executors:
            executor.agent.send({"type": "flush"})
        if checkpoint:
            self.finish()
        self.epoch += 1

    def message(self, store: FakeStore, checkpoint: bool) -> dict[str, Any]:
        return store.message(self.url, self.epoch, self.base, self.run, checkpoint=checkpoint)

    def finish(self) -> None:
        """All of the epoch's winners answer; with all acks in it is complete."""
        answers = [self.of(part).agent.settled(store.uid) for part, store in enumerate(self.stores)]
        if any("decline" in answer for answer in answers):
            assert self.away, answers
        else:
            self.complete_with([Ack.from_json(answer) for answer in answers])

    def complete_with(self, acks: list[Ack]) -> None:
        (epoch,) = {a.epoch for a in acks}
        self.base = CheckpointId(self.run, epoch)
        self.completed[self.base] = [a.snapshot for a in acks]
        self.lineages[self.base] = [dict(s.lineage) for s in self.stores]
        complete(self.storage.inner, self.base, self.completed[self.base])

    def late(self) -> None:
        if self.epoch == 0 or self.away or not self.stores[0].lineage or self.base == CheckpointId(self.run, self.epoch - 1):
            return
        if self.base and self.base.run == self.run and min(s.version for s in self.stores) == 0:
            return
        before = [len(self.answers(part)) for part in range(STORES)]
        for executor in self.executors:
            executor.agent.send({"type": "late", "root": ROOT, "run": self.run, "epoch": self.epoch - 1})
        if any(self.of(p).held.get(str(s.uid), {}).get("run") != self.run for p, s in enumerate(self.stores)):
            return  # a store that has moved or been restored: its commit is another executor's or another run's
        acks = [self.of(p).agent.ack(s.uid, before[p] + 1) for p, s in enumerate(self.stores)]
        assert {a.epoch for a in acks} == {self.epoch - 1}
        self.complete_with(acks)

    def answers(self, part: int) -> list[dict[str, Any]]:
        return [a for a in self.of(part).agent.acks if a["uid"] == self.stores[part].uid]

    def hand_over(self, part: int) -> Ack | None:
        """The store's newest version, from the one who has committed it."""
        store, executor = self.stores[part], self.of(part)
        if self.away or str(store.uid) not in executor.held:
            return None
        before = len(self.answers(part))
        message = {"type": "handover", "root": ROOT, "op": 0, "part": part, "store": store.name, "uid": store.uid}
        executor.agent.send(message)
        answer = executor.agent.settled(store.uid, before + 1)
        assert "decline" not in answer, answer
        return Ack.from_json(answer)

    def move(self, part: int) -> None:
        store = self.stores[part]
        ack = self.hand_over(part)
        if ack is None:
            return
        self.owner[part] = 1 - self.owner[part]
        self.fetch(part, ack.snapshot, {"handles": [h.to_json() for h in ack.snapshot.handles]})
        assert store.version == ack.snapshot.version

    def fetch(self, part: int, snapshot: Snapshot, more: dict[str, Any]) -> None:
        store, folder = self.stores[part], self.store_folder(part) / uuid.uuid4().hex
        message = {**store.fetch_message(self.url, self.base, folder), "version": snapshot.version, "uid": snapshot.uid, **more}
        answer = self.of(part).agent.ask(message)
        assert answer["ok"] is True, answer
        names = needed(folder, snapshot.version, snapshot.uid)
        assert names == [h.name for h in snapshot.handles]
        store.folder = folder
        store.snapshots = {int(name.split("_")[0]) for name in names if name.endswith(".zip")}
        store.ssts = {h.name[5:]: h.length for h in snapshot.handles if h.name.startswith("SSTs/")}

    def begin_run(self) -> None:
        """Back to the last completed checkpoint, in place."""
        self.run += 1
        self.heal()
        for part, store in enumerate(self.stores):
            if self.base is None:
                store.folder = self.store_folder(part)
                store.lineage, store.snapshots, store.ssts = {}, set(), {}
            else:
                store.lineage = dict(self.lineages[self.base][part])
                self.fetch(part, self.completed[self.base][part], {})
        self.epoch = self.base.epoch + 1 if self.base else 0
        for executor in self.executors:
            executor.held.clear()

    def maintain(self, store: FakeStore, back: int) -> None:
        """A full snapshot, if there is something to take it from; then what the last versions do not need is deleted."""
        version = store.version - back
        if version > max(store.snapshots, default=0) and (store.folder / f"{version}_{store.lineage[version]}.changelog").exists():
            store.snapshot(version, (30, 1 << 20) if version % 7 == 0 else (30, 60), keep=3)
        oldest = max((v for v in store.snapshots if v <= store.version - RETAINED_VERSIONS), default=0)
        for path in store.folder.glob("*_*.*"):
            if int(path.name.split("_")[0]) < oldest:
                path.unlink()

    # -- the oracle

    def check(self) -> None:
        for executor in self.executors:
            answers = executor.agent.acks[executor.checked :]
            executor.checked += len(answers)
            for answer in answers:
                if "decline" in answer:
                    continue
                ack = Ack.from_json(answer)
                self.check_ack(ack)
                if ack.snapshot.uid not in self.losers and not self.killed:
                    for handle in ack.snapshot.handles:
                        seen = executor.seen.setdefault((ack.snapshot.store.partition, handle.name), handle)
                        assert seen == handle, f"uploaded twice: {handle}"

    def check_ack(self, ack: Ack) -> None:
        store = self.stores[ack.snapshot.store.partition]
        folder = self.folder / "read" / uuid.uuid4().hex
        for handle in ack.snapshot.handles:
            data = self.storage.inner.get(handle.object, handle.offset, handle.length)
            assert data == store.files[handle.name], handle
            path = folder / handle.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        assert needed(folder, ack.snapshot.version, ack.snapshot.uid) == [h.name for h in ack.snapshot.handles]
        shutil.rmtree(folder)

    def end(self) -> None:
        """After two checkpoints, the second of which tells that the first is complete, nothing is left to upload."""
        self.heal()
        for _ in range(2):
            self.run_epoch(losing=0, checkpoint=True)
            self.check()
        for part in range(2):  # an executor may own no store: one more of its own tells it
            extra = FakeStore(self.executors[part].spool / "extra", partition=STORES + part)
            extra.commit()
            self.executors[part].agent.send(extra.message(self.url, self.epoch, self.base, self.run))
            self.executors[part].agent.send({"type": "flush"})
            self.executors[part].agent.ack(extra.uid)
        for executor in self.executors:
            self.wait_until_empty(executor)
            executor.agent.close()

    def wait_until_empty(self, executor: Executor) -> None:
        def told() -> list[int]:
            return [line["bytes"] for line in executor.agent.lines if line.get("type") == "spool"][-1:]

        deadline = time.monotonic() + WAIT_S
        while (executor.left() or told() not in ([], [0])) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (executor.left(), told() in ([], [0])) == ([], True)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(st.sampled_from([2_000, 6_000, 10 << 30]), st.lists(STEPS, min_size=1, max_size=25))
def test_what_an_ack_names_loads_and_nothing_else_stays(max_bytes: int, steps: list[tuple[str, int, Any]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        world = World(folder, max_bytes)
        for step in steps:
            world.step(*step)
        world.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
