"""Small SSTs: packed together, and stored once more where their pack has become empty."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_ckpt import paths
from spark_ckpt.agent.staging import StateFile
from spark_ckpt.agent.uploads import PACK_BYTES, into_packs
from spark_ckpt.model import CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol.retention.sparse_packs import AT_ONCE, sparse_packs
from spark_ckpt.storage import Storage, open_storage
from tests.drivers.agent_stores import FakeStore, LocalAgent, check_loads, complete, staged


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}/orders"


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with open_storage(url) as storage:
        yield storage


def sst(key: str, length: int) -> Handle:
    return Handle(HandleKind.SST, f"SSTs/{uuid.uuid4()}.sst", key, 0, length, 0)


def snapshot(partition: int, *handles: Handle) -> Snapshot:
    return Snapshot(StoreId(0, partition, "default"), 1, str(uuid.uuid4()), handles)


def test_a_pack_is_sparse_when_less_than_half_of_it_is_needed() -> None:
    half, less, copied = paths.pack_key(1, "a", 100), paths.pack_key(1, "b", 100), paths.copied_key(paths.pack_key(1, "c", 100), 7)
    alone, segment = paths.sst_key(1, "d"), paths.segment_key(1, 1, "e")
    one, two = snapshot(0, sst(half, 30), sst(less, 30), sst(alone, 1)), snapshot(1, sst(half, 20), sst(less, 19), sst(copied, 1))
    assert sparse_packs([one, two]) == (less,)
    assert sparse_packs([snapshot(0, Handle(HandleKind.CHANGELOG, "1_u.changelog", segment, 0, 1, 0))]) == ()


def test_a_checkpoint_empties_only_so_many_packs_and_the_emptiest_first() -> None:
    keys = [paths.pack_key(1, f"{n:x}", 100) for n in range(AT_ONCE + 5)]
    assert sparse_packs([snapshot(0, *(sst(key, 30 - n) for n, key in enumerate(keys)))]) == tuple(reversed(keys))[:AT_ONCE]


def test_packs_are_not_much_too_large() -> None:
    files = [StateFile(HandleKind.SST, f"{n}", PACK_BYTES // 3) for n in range(7)]
    assert [len(pack) for pack in into_packs(files)] == [3, 3, 1]
    assert into_packs([]) == []


def test_what_is_left_in_a_sparse_pack_goes_on_in_another_one_and_the_old_one_can_go(url: str, storage: Storage, tmp_path: Path) -> None:
    """Random stores, snapshots and compactions; objects are deleted as soon as no retained checkpoint names them."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    agent = LocalAgent(tmp_path / "spool", lambda *_: storage)
    stores = [FakeStore(tmp_path / "spool" / f"0-{p}", partition=p) for p in range(6)]
    retained: list[list[Snapshot]] = []
    sparse: tuple[str, ...] = ()
    emptied = 0
    for epoch in range(40):
        base = complete(storage, CheckpointId(1, epoch - 1), retained[-1]) if retained else None
        for store in stores:
            store.commit()
            if rng.random() < 0.3:
                new = tuple(rng.choice((30, 300, 3000)) for _ in range(rng.randint(1, 3)))
                store.snapshot(store.version, new, keep=rng.choice((0, 1, 10)))
            agent.send(store.message(url, epoch, base, sparse=list(sparse)))
        agent.send({"type": "flush"})
        acks = [agent.ack(store.uid) for store in stores]
        retained = [*retained, [ack.snapshot for ack in acks]][-3:]
        named = {h.object for s in retained[-1] for h in s.handles}
        assert not named & set(sparse), "what was needed of a sparse pack was not stored anew"
        emptied += len(sparse)
        sparse = sparse_packs(retained[-1])
        kept = {h.object for snapshots in retained for s in snapshots for h in s.handles}
        storage.delete([o.key for o in storage.list("run-00000001/s") if o.key not in kept])
    assert emptied > 0
    newest = complete(storage, CheckpointId(9, 40), retained[-1])
    fresh = LocalAgent(tmp_path / "fresh", lambda *_: storage)
    for store, found in zip(stores, retained[-1], strict=True):
        folder = tmp_path / "fresh" / f"0-{store.partition}"
        answer = fresh.ask(store.fetch_message(url, newest, folder))
        assert answer["ok"] is True, answer
        check_loads(folder, store, found)
    fresh.close()
    agent.close()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_an_sst_that_is_not_here_any_more_stays_where_it_is(url: str, storage: Storage, tmp_path: Path, damage: str) -> None:
    agent, store = LocalAgent(tmp_path / "spool", lambda *_: storage), FakeStore(tmp_path / "spool" / "0-0")
    store.commit()
    store.snapshot(1, (50, 60))
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})
    first = agent.ack(store.uid).snapshot
    pack = first.handles[0].object
    for handle in first.handles[:2]:
        file = store.folder / handle.name
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(bytes(handle.length))
    base = complete(storage, CheckpointId(1, 0), [first])
    store.commit()
    agent.send(store.message(url, 1, base, sparse=[pack]))
    agent.send({"type": "flush"})
    ack = agent.ack(store.uid)
    assert ack.snapshot.handles[:3] == first.handles
    assert ack.new_bytes == ack.snapshot.handles[-1].length
    agent.close()


def test_a_replacing_agent_goes_on_with_the_objects_that_were_acknowledged(url: str, storage: Storage, tmp_path: Path) -> None:
    """The coordinator knows no others of that commit: what it stored anew would go as soon as nothing else names it."""
    agent, store = LocalAgent(tmp_path / "spool", lambda *_: storage), FakeStore(tmp_path / "spool" / "0-0")
    store.commit()
    store.snapshot(1, (50, 60))
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})
    first = agent.ack(store.uid).snapshot
    base, pack = complete(storage, CheckpointId(1, 0), [first]), first.handles[0].object
    store.commit()
    told = store.message(url, 1, base, sparse=[pack])
    agent.send(told)
    agent.send({"type": "flush"})
    acknowledged = agent.ack(store.uid).snapshot
    assert pack not in {h.object for h in acknowledged.handles}
    agent.kill()
    stored = {o.key for o in storage.list("run-00000001/s")}
    again = LocalAgent(tmp_path / "spool", lambda *_: storage)
    again.send({**told, "handles": [h.to_json() for h in acknowledged.handles]})
    again.send({"type": "flush"})
    assert again.ack(store.uid).snapshot.handles == acknowledged.handles
    assert staged(tmp_path / "spool") == []
    assert {o.key for o in storage.list("run-00000001/s")} == stored, "it is stored already"
    store.commit()
    again.send(store.message(url, 2, base, sparse=[pack]))
    again.send({"type": "flush"})
    ack = again.ack(store.uid)
    assert ack.snapshot.handles[:-1] == acknowledged.handles
    assert ack.new_bytes == ack.snapshot.handles[-1].length
    again.close()
