"""Commits that are no checkpoint's: staged and kept until something needs them, and not a file longer."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from spark_ckpt import __version__
from spark_ckpt.agent.stream import Pauses
from spark_ckpt.model import CheckpointId, Snapshot
from spark_ckpt.paths import left_acks_prefix
from spark_ckpt.storage import open_storage
from spark_ckpt.storage.base import Storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import ROOT, AgentProcess, Client, FakeStore, LocalAgent, check_loads, staged

MAX_BYTES = 32_000
SMALL_SPOOL = {"spark.ckpt.spool.maxSize": str(MAX_BYTES)}


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}/orders"


@pytest.fixture
def storage(url: str) -> FaultyStorage:
    return FaultyStorage(open_storage(url))


@pytest.fixture
def agent(spool: Path, storage: FaultyStorage) -> LocalAgent:
    return LocalAgent(spool, lambda *_: storage, {"spark.ckpt.timeout": "300ms"})


def keep(agent: Client, store: FakeStore, epoch: int, url: str = "memory://x", run: int = 1, late: int | None = None) -> str:
    """Commit a version that is no checkpoint's."""
    store.commit()
    agent.send(store.message(url, epoch, None, run, checkpoint=False, late=late))
    return str(store.uid)


def ordered(agent: Client, spool: Path) -> None:
    """Everything sent so far has been taken in."""
    agent.ask({"type": "hello", "jar": __version__, "conf": {}, "executor": "1", "spool": str(spool)})


def read_back(storage: Storage, store: FakeStore, snapshot: Snapshot, tmp_path: Path) -> None:
    """By the handles alone, into an empty folder, by an agent that knows nothing."""
    spool = tmp_path / f"reader-{uuid.uuid4()}"
    reader = LocalAgent(spool, lambda *_: storage)
    message = store.fetch_message("memory://x", None, spool / "0")
    handles = [h.to_json() for h in snapshot.handles]
    assert reader.ask({**message, "version": snapshot.version, "uid": snapshot.uid, "handles": handles})["ok"] is True
    check_loads(spool / "0", store, snapshot)
    reader.close()


def late(epoch: int, run: int = 1) -> dict[str, object]:
    return {"type": "late", "root": ROOT, "run": run, "epoch": epoch}


def handover(store: FakeStore, uid: str) -> dict[str, object]:
    return {"type": "handover", "root": ROOT, "op": store.operator, "part": store.partition, "store": store.name, "uid": uid}


def test_kept_commits_go_with_the_next_checkpoint_in_one_object(agent: LocalAgent, spool: Path, storage: Storage, tmp_path: Path) -> None:
    store = FakeStore(spool / "0-0")
    for epoch in range(5):
        keep(agent, store, epoch)
        agent.send({"type": "flush"})
    store.commit()
    agent.send(store.message("memory://x", 5, None))
    agent.send({"type": "flush"})
    ack = agent.ack(store.uid)
    assert [a["uid"] for a in agent.acks] == [store.uid]
    assert {h.object.split("-")[-2].split("/")[-1] for h in ack.snapshot.handles} == {"5"}
    assert len({h.object for h in ack.snapshot.handles}) == 1
    assert ack.new_bytes == sum(h.length for h in ack.snapshot.handles)
    assert staged(spool) == []
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_a_full_snapshot_frees_what_it_replaces(agent: LocalAgent, spool: Path, storage: Storage, tmp_path: Path) -> None:
    store = FakeStore(spool / "0-0")
    for epoch in range(12):
        keep(agent, store, epoch)
        if epoch == 6:
            store.snapshot(7, (30, 40))
    store.commit()
    for path in [p for v in range(1, 8) for p in store.folder.glob(f"{v}_*.changelog")]:
        path.unlink()  # as Spark's maintenance does
    agent.send(store.message("memory://x", 12, None))
    agent.send({"type": "flush"})
    ack = agent.ack(store.uid)
    assert [h.kind.value for h in ack.snapshot.handles] == ["SST", "SST", "SNAPSHOT", *["CHANGELOG"] * 6]
    assert staged(spool) == []
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_a_full_snapshot_of_a_kept_version_itself_is_what_loads_it(
    agent: LocalAgent, spool: Path, storage: Storage, tmp_path: Path
) -> None:
    """Spark makes one with the commit where a changelog does not say all of it (new column families)."""
    store = FakeStore(spool / "0-0")
    keep(agent, store, 0)
    store.commit()
    store.snapshot(store.version)
    agent.send(store.message("memory://x", 1, None, checkpoint=False))
    agent.send({"type": "late", "root": ROOT, "run": 1, "epoch": 1})
    ack = agent.ack(store.uid)
    assert [h.kind.value for h in ack.snapshot.handles] == ["SST", "SNAPSHOT"]
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_a_late_epoch_is_made_durable_by_name_and_by_the_next_commit(agent: LocalAgent, spool: Path, storage: FaultyStorage) -> None:
    stores = [FakeStore(spool / f"0-{p}", partition=p) for p in range(3)]
    for epoch in range(3):
        uids = [keep(agent, s, epoch) for s in stores]
    keep(agent, stores[0], 3, late=2)
    agent.send({"type": "flush"})
    assert agent.ack(uids[0]).epoch == 2
    agent.send(late(2))
    acks = [agent.ack(uid, 2 if uid == uids[0] else 1) for uid in uids]
    assert {(a.run, a.epoch, a.snapshot.version) for a in acks} == {(1, 2, 3)}
    assert storage.requests["put"] == 2
    keep(agent, stores[1], 3, late=2)
    agent.send(late(7))
    agent.send(late(2, run=2))
    agent.send(handover(stores[1], str(stores[1].uid)))
    agent.ack(stores[1].uid)
    assert len([a for a in agent.acks if a["epoch"] == 2]) == 4
    agent.close()


def test_another_executor_gets_what_it_needs(agent: LocalAgent, spool: Path, storage: FaultyStorage, tmp_path: Path) -> None:
    store = FakeStore(spool / "0-0")
    for epoch in range(4):
        uid = keep(agent, store, epoch)
    agent.send(handover(store, uid))
    ack = agent.ack(uid)
    assert (ack.epoch, ack.snapshot.version) == (3, 4)
    assert staged(spool) == []
    agent.send(handover(store, uid))
    assert agent.ack(uid, 2).snapshot == ack.snapshot
    assert storage.requests["put"] == 1
    agent.send(handover(store, "unknown"))
    assert "does not hold" in agent.decline("unknown")
    other = LocalAgent(tmp_path / "other", lambda *_: storage)
    message = store.fetch_message("memory://x", None, tmp_path / "other" / "0")
    assert other.ask({**message, "handles": [h.to_json() for h in ack.snapshot.handles]})["ok"] is True
    store.folder = tmp_path / "other" / "0"
    store.commit()
    other.send(store.message("memory://x", 4, None))
    other.send({"type": "flush"})
    assert other.ack(store.uid).snapshot.handles[:-1] == ack.snapshot.handles
    other.close()
    agent.close()


def test_a_failed_upload_goes_with_the_next_checkpoint(agent: LocalAgent, spool: Path, storage: FaultyStorage, tmp_path: Path) -> None:
    storage.inject(Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=None))
    store = FakeStore(spool / "0-0")
    keep(agent, store, 0)
    store.commit()
    agent.send(store.message("memory://x", 1, None))
    agent.send({"type": "flush"})
    agent.decline(store.uid)
    assert len(staged(spool)) == 2
    storage.heal()
    store.commit()
    agent.send(store.message("memory://x", 2, None))
    agent.send({"type": "flush"})
    ack = agent.ack(store.uid)
    assert ack.new_bytes == ack.snapshot.size
    assert len({h.object for h in ack.snapshot.handles}) == 1
    assert staged(spool) == []
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_who_only_waited_for_a_failed_upload_takes_it_over(spool: Path, storage: FaultyStorage, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool, lambda *_: storage, {"spark.ckpt.timeout": "1s"}), FakeStore(spool / "0-0")
    storage.inject(Fault(Moment.FAIL_BEFORE, "*/seg/0-*", frozenset({"put"}), times=None))
    uids = []
    for epoch in (0, 1):
        store.commit()
        agent.send(store.message("memory://x", epoch, None))
        agent.send({"type": "flush"})
        uids.append(store.uid)
    agent.decline(uids[0])
    ack = agent.ack(uids[1])
    assert ack.new_bytes == ack.snapshot.size
    assert all("/seg/1-" in h.object for h in ack.snapshot.handles)
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_attempts_of_an_epoch_displace_no_commit_of_the_one_before(agent: LocalAgent, spool: Path) -> None:
    """The executor says that it holds it: what has committed in the newest two epochs may be wanted, whichever attempt has won."""
    store = FakeStore(spool / "0-0")
    before = keep(agent, store, 0)
    lineage = dict(store.lineage)
    for _ in range(6):
        store.lineage = dict(lineage)
        keep(agent, store, 1)
    agent.send(late(0))
    assert agent.ack(before).epoch == 0
    agent.send(handover(store, before))
    assert agent.ack(before, 2).epoch == 0
    agent.close()


def test_a_full_spool_is_relieved_and_told(spool: Path, storage: FaultyStorage, tmp_path: Path) -> None:
    agent = LocalAgent(spool, lambda *_: storage, SMALL_SPOOL)
    store = FakeStore(spool / "0-0")
    store.commit(payload=MAX_BYTES // 3)
    agent.send(store.message("memory://x", 0, None, checkpoint=False))
    store.commit(payload=MAX_BYTES * 5 // 9)
    agent.send(store.message("memory://x", 1, None, checkpoint=False))
    ack = agent.ack(store.uid)
    assert (ack.epoch, ack.snapshot.version) == (1, 2)
    agent.wait_for(lambda line: line.get("type") == "spool" and line["bytes"] == 0)
    told = [line["bytes"] for line in agent.lines if line.get("type") == "spool"]
    assert max(told) > MAX_BYTES // 2
    assert staged(spool) == []
    read_back(storage, store, ack.snapshot, tmp_path)
    agent.close()


def test_room_that_cannot_be_made_is_tried_again_and_declines_nothing(spool: Path, storage: FaultyStorage) -> None:
    storage.inject(Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=4))
    agent = LocalAgent(spool, lambda *_: storage, {**SMALL_SPOOL, "spark.ckpt.timeout": "300ms"}, Pauses(relief_failed=0.2))
    store = FakeStore(spool / "0-0")
    store.commit(payload=20_000)
    agent.send(store.message("memory://x", 0, None, checkpoint=False))
    assert agent.ack(store.uid).epoch == 0
    assert any("room in the spool" in line["message"] for line in agent.lines if line.get("type") == "log")
    agent.close()


def test_what_a_checkpoint_covers_and_attempts_that_lost_go(agent: LocalAgent, spool: Path) -> None:
    store = FakeStore(spool / "0-0")
    keep(agent, store, 0)
    lineage = dict(store.lineage)
    keep(agent, store, 1)
    store.lineage = lineage
    keep(agent, store, 1)
    ordered(agent, spool)
    assert len(staged(spool)) == 3
    other = FakeStore(spool / "0-1", partition=1)
    other.commit()
    agent.send(other.message("memory://x", 2, CheckpointId(1, 1)))
    agent.send({"type": "flush"})
    agent.ack(other.uid)
    assert staged(spool) == []
    agent.close()


def test_a_new_run_drops_what_the_old_one_kept(agent: LocalAgent, spool: Path) -> None:
    store, again = FakeStore(spool / "run-1"), FakeStore(spool / "run-2")
    old = [keep(agent, store, epoch) for epoch in range(3)]
    keep(agent, again, 0, run=2)
    agent.send(late(2, run=1))
    agent.send(handover(store, old[2]))
    assert "does not hold" in agent.decline(old[2])
    assert len(staged(spool)) == 1
    agent.close()


def test_the_end_of_stdin_finishes_checkpoints_and_drops_the_rest(tmp_path: Path, spool: Path) -> None:
    url = f"file://{tmp_path}/storage/orders"
    agent, store = AgentProcess(spool), FakeStore(spool / "0-0")
    other = FakeStore(spool / "0-1", partition=1)
    for epoch in range(3):
        keep(agent, store, epoch, url)
        keep(agent, other, epoch, url)
    store.commit()
    agent.send(store.message(url, 3, None))
    assert agent.end() == 0
    assert [a["uid"] for a in agent.acks] == [store.uid]
    objects = [s.key for s in open_storage(url).list("")]
    assert len([k for k in objects if k.startswith(left_acks_prefix(1, 3))]) == 1
    assert len(objects) == 2


def test_a_replaced_agent_that_is_told_again_uploads_once(spool: Path, storage: FaultyStorage, tmp_path: Path) -> None:
    away = FaultyStorage(storage.inner, [Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=None)])
    agent, store = LocalAgent(spool, lambda *_: away, {"spark.ckpt.timeout": "1s"}), FakeStore(spool / "0-0")
    for epoch in range(3):
        keep(agent, store, epoch)
    store.commit()
    checkpoint = store.message("memory://x", 3, None)
    agent.send(checkpoint)
    first = store.uid
    keep(agent, store, 4)
    newest = store.message("memory://x", 4, None, checkpoint=False)
    ordered(agent, spool)
    agent.kill()
    left = staged(spool)
    again = LocalAgent(spool, lambda *_: storage)
    for message in (checkpoint, newest, checkpoint, newest):
        again.send(message)
    again.send({"type": "flush"})
    read_back(storage, store, again.ack(first).snapshot, tmp_path)
    again.send(handover(store, str(store.uid)))
    ack = again.ack(store.uid)
    assert ack.new_bytes == ack.snapshot.handles[-1].length
    assert storage.requests["put"] == 2
    assert sorted(staged(spool)) == sorted(left)
    again.close()


def test_an_executor_that_goes_makes_durable_what_its_stores_are_and_nothing_older(
    agent: LocalAgent, spool: Path, storage: FaultyStorage, tmp_path: Path
) -> None:
    stores = [FakeStore(spool / f"0-{n}", partition=n) for n in range(3)]
    older = [keep(agent, store, 0) for store in stores]
    newest = [keep(agent, store, 1) for store in stores]
    agent.send({"type": "evacuate"})
    acks = [agent.ack(uid) for uid in newest]
    assert len({handle.object for ack in acks for handle in ack.snapshot.handles}) == 1, "one upload for all of them"
    assert not any(row["uid"] in older for row in agent.acks)
    for store, ack in zip(stores, acks, strict=True):
        read_back(storage, store, ack.snapshot, tmp_path)
    agent.send({"type": "evacuate"})
    assert agent.ack(newest[0], 2).snapshot == acks[0].snapshot, "said again, and not stored again"
    agent.close()
