"""What an agent remembers of a stream's stores: all that no completed checkpoint holds, however much that is, and a part of the rest."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.agent import history as history_module
from spark_ckpt.agent.chains import Chain
from spark_ckpt.agent.commits import Commit
from spark_ckpt.agent.history import History, UploadReason, Version
from spark_ckpt.agent.staging import FileState, StateFile
from spark_ckpt.model import CheckpointId, Handle, HandleKind, StoreId
from spark_ckpt.storage import open_storage
from testbed.faulty import FaultyStorage
from tests.drivers.agent_stores import ROOT, FakeStore, LocalAgent, complete

FEW = 3
MANY = 8


@pytest.fixture(autouse=True)
def _remembers_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_STORES", FEW)


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(open_storage(f"memory://{uuid.uuid4()}/orders"))


@pytest.fixture
def agent(spool: Path, storage: FaultyStorage) -> LocalAgent:
    return LocalAgent(spool, lambda *_: storage)


@pytest.fixture
def stores(spool: Path) -> list[FakeStore]:
    return [FakeStore(spool / f"0-{n}", partition=n) for n in range(MANY)]


def commit(agent: LocalAgent, store: FakeStore, epoch: int, checkpoint: bool, base: CheckpointId | None = None) -> None:
    store.commit()
    agent.send(store.message("memory://x", epoch, base, checkpoint=checkpoint))


def late(epoch: int) -> dict[str, object]:
    return {"type": "late", "root": ROOT, "run": 1, "epoch": epoch}


def test_a_late_checkpoint_has_the_stores_that_have_committed_first_too(agent: LocalAgent, stores: list[FakeStore]) -> None:
    for store in stores:
        commit(agent, store, 0, checkpoint=False)
    agent.send(late(0))
    acks = [agent.ack(store.uid) for store in stores]
    assert {(ack.epoch, ack.snapshot.version) for ack in acks} == {(0, 1)}
    agent.close()


def test_a_checkpoint_that_is_not_uploaded_yet_loses_no_store(agent: LocalAgent, stores: list[FakeStore]) -> None:
    for store in stores:
        commit(agent, store, 0, checkpoint=True)
    agent.send({"type": "flush"})
    assert {agent.ack(store.uid).epoch for store in stores} == {0}
    agent.close()


def test_what_is_stored_and_in_no_completed_checkpoint_is_acknowledged_again(agent: LocalAgent, stores: list[FakeStore]) -> None:
    for store in stores:
        commit(agent, store, 0, checkpoint=False)
    agent.send({"type": "evacuate"})
    stored = [agent.ack(store.uid).snapshot for store in stores]
    commit(agent, FakeStore(stores[0].folder.with_name("0-x"), partition=MANY), 0, checkpoint=False)
    agent.send(late(0))
    assert [agent.ack(store.uid, 2).snapshot for store in stores] == stored
    agent.close()


def test_what_a_completed_checkpoint_holds_is_read_from_there(
    agent: LocalAgent, stores: list[FakeStore], storage: FaultyStorage
) -> None:
    """Nothing of it is stored a second time."""
    base = None
    for epoch in range(3):
        for store in stores:
            commit(agent, store, epoch, checkpoint=True, base=base)
        agent.send({"type": "flush"})
        acks = [agent.ack(store.uid) for store in stores]
        assert [ack.new_bytes for ack in acks] == [ack.snapshot.handles[-1].length for ack in acks]
        base = complete(storage.inner, CheckpointId(1, epoch), [ack.snapshot for ack in acks])
    agent.close()


def file(state: FileState) -> StateFile:
    name = "1_a.changelog"
    if state is FileState.STORED:
        return StateFile.stored(Handle(HandleKind.CHANGELOG, name, "run-00000001/seg/0-a", 0, 1, 0))
    return StateFile(HandleKind.CHANGELOG, name, 1, state=state)


def version(store: int, epoch: int | None, state: FileState = FileState.STORED, run: int = 1, **fields: Any) -> Version:
    """`epoch` None: what was fetched."""
    of, uid = StoreId(0, store, "default"), str(store)
    commit = None if epoch is None else Commit(run, epoch, None, of, 1, uid, None, "", 0.0, 0.0, None, False, None, 0.0)
    return Version(of, Chain(1, uid, (file(state),)), commit, **fields)


def remembered(history: History) -> list[int]:
    return [store for store in range(100) if history.version(StoreId(0, store, "default"), str(store))]


def test_of_stores_that_a_completed_checkpoint_holds_the_last_few_are_remembered() -> None:
    history = History()
    for store in range(MANY):
        history.add(version(store, 0))
    assert remembered(history) == list(range(MANY))
    history.complete(CheckpointId(1, 0))
    for store in range(20, 26):
        history.add(version(store, None))
    assert remembered(history) == [23, 24, 25]


@pytest.mark.parametrize(
    "needed",
    [
        version(0, 1, FileState.STAGED),
        version(0, 0, FileState.UPLOADING, reason=UploadReason.CHECKPOINT),
        version(0, 0, reason=UploadReason.HANDOVER),
        version(0, 1),
        version(0, 0, run=2),
        version(0, None, borrowed=True),
    ],
    ids=["staged", "uploading", "asked for", "of a newer epoch", "of a newer run", "handed over by another executor"],
)
def test_a_store_that_has_more_than_the_completed_checkpoint_holds_is_remembered(needed: Version) -> None:
    history = History()
    history.add(needed)
    history.complete(CheckpointId(1, 0))
    for store in range(20, 28):
        history.add(version(store, None))
    assert 0 in remembered(history)
    assert len(remembered(history)) == FEW


def test_what_could_not_be_uploaded_goes_with_its_file_when_the_next_checkpoint_is_complete() -> None:
    history, losing = History(), version(0, 0, FileState.STAGED, reason=UploadReason.CHECKPOINT)
    history.add(losing)
    history.complete(CheckpointId(1, 0))
    losing.reason = None  # it was declined
    for store in range(20, 28):
        history.add(version(store, None))
    assert 0 in remembered(history)
    history.complete(CheckpointId(1, 1))
    assert 0 not in remembered(history)
    assert losing.chain.files[0].state is FileState.GONE
