"""Fetching a version's files: complete and intact, or an error that names what is wrong."""

from __future__ import annotations

import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.agent.fetches import Fetcher
from spark_ckpt.agent.restore_room import RestoreRoom
from spark_ckpt.agent.staging import Staging
from spark_ckpt.errors import FormatError
from spark_ckpt.model import CheckpointId, Handle, HandleKind
from spark_ckpt.paths import metadata_key
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.ranges import PIECE_BYTES
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import FakeStore, LocalAgent, check_loads, complete

BASE = CheckpointId(1, 3)
PIECES = 3
LARGE = (PIECES - 1) * PIECE_BYTES + 1
"""Bytes of an SST that takes so many reads."""


class World:
    """A store of four versions, uploaded; `base` holds it."""

    def __init__(self, tmp_path: Path) -> None:
        self.url = f"memory://{uuid.uuid4()}/orders"
        self.storage = open_storage(self.url)
        self.store = FakeStore(tmp_path / "first" / "0-0")
        self.folder = tmp_path / "second" / "0-0"
        self.spool = tmp_path / "second"
        agent = LocalAgent(tmp_path / "first")
        for epoch in range(4):
            self.store.commit()
            agent.send(self.store.message(self.url, epoch, None))
            agent.send({"type": "flush"})
            ack = agent.ack(self.store.uid)
            if epoch == 1:
                self.store.snapshot(2, (30, LARGE))
        agent.close()
        self.snapshot = ack.snapshot
        complete(self.storage, BASE, [ack.snapshot])

    def agent(self, storage: Storage | None = None) -> LocalAgent:
        return LocalAgent(self.spool, lambda *_: storage or self.storage)

    def fetch(self, agent: LocalAgent, base: CheckpointId | None = BASE) -> dict[str, Any]:
        return agent.ask(self.store.fetch_message(self.url, base, self.folder))

    def replace(self, handle: Handle, change: bytes) -> None:
        data = self.storage.get(handle.object)
        self.storage.put(handle.object, data[: handle.offset] + change + data[handle.offset + len(change) :])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_moved_partition_finds_its_state_and_goes_on(world: World, tmp_path: Path) -> None:
    agent = world.agent()
    answer = world.fetch(agent)
    assert answer["ok"] is True
    assert answer["files"] == len(world.snapshot.handles)
    check_loads(world.folder, world.store, world.snapshot)
    world.store.folder = world.folder
    world.store.commit()
    agent.send(world.store.message(world.url, 4, BASE))
    agent.send({"type": "flush"})
    ack = agent.ack(world.store.uid)
    assert ack.snapshot.handles[:-1] == world.snapshot.handles
    agent.close()


def test_what_is_there_is_kept_and_what_is_wrong_is_replaced(world: World) -> None:
    agent = world.agent()
    world.fetch(agent)
    name = world.snapshot.handles[-1].name
    (world.folder / name).write_bytes(b"\0" * world.snapshot.handles[-1].length)
    answer = world.fetch(agent)
    assert answer["files"] == 1
    check_loads(world.folder, world.store, world.snapshot)
    assert world.fetch(agent)["files"] == 0
    agent.close()


def test_many_fetches_at_once_read_the_metadata_once(world: World) -> None:
    storage = FaultyStorage(world.storage, [Fault(Moment.DELAY, "*/_metadata", times=None, delay_s=0.2)])
    agent = world.agent(storage)
    folders = [world.spool / f"p{n}" for n in range(10)]
    for answer in [agent.begin(world.store.fetch_message(world.url, BASE, f)) for f in folders]:
        assert answer.result(30)["ok"] is True
    for folder in folders:
        check_loads(folder, world.store, world.snapshot)
    assert [h.key for h in storage.hits] == [metadata_key(BASE)]
    agent.close()


def test_handles_of_one_segment_that_lie_together_are_one_read(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4()}/orders"
    storage = open_storage(url)
    store, agent = FakeStore(tmp_path / "a" / "0"), LocalAgent(tmp_path / "a")
    for _ in range(5):
        store.commit()
    agent.send(store.message(url, 4, None))
    agent.send({"type": "flush"})
    base = complete(storage, BASE, [agent.ack(store.uid).snapshot])
    agent.close()
    other = LocalAgent(tmp_path / "b", lambda *_: storage)
    before = storage.requests["get"]
    assert other.ask(store.fetch_message(url, base, tmp_path / "b" / "0"))["files"] == 5
    assert storage.requests["get"] - before == 2  # _metadata, and the range
    other.close()


@pytest.mark.parametrize("kind", [kind for kind in HandleKind if kind.is_state])
def test_a_damaged_object_is_named_with_its_checkpoint(world: World, kind: HandleKind) -> None:
    handle = next(h for h in world.snapshot.handles if h.kind is kind)
    world.replace(handle, b"\xde\xad\xbe\xef")
    agent = world.agent()
    answer = world.fetch(agent)
    assert answer["error"]["kind"] == "DAMAGED"
    assert handle.object in answer["error"]["message"]
    assert "checkpoint 1/3" in answer["error"]["message"]
    assert not (world.folder / world.snapshot.handles[-1].name).exists()
    agent.close()


def test_a_cut_object_is_damaged(world: World) -> None:
    handle = world.snapshot.handles[-1]
    data = world.storage.get(handle.object)
    world.storage.put(handle.object, data[:-3])
    agent = world.agent()
    assert world.fetch(agent)["error"]["kind"] == "DAMAGED"
    agent.close()


def test_bytes_damaged_on_their_way_are_read_again(world: World) -> None:
    storage = FaultyStorage(world.storage, [Fault(Moment.TRUNCATE, "*/sst/*", operations=frozenset({"get"}))])
    agent = world.agent(storage)
    assert world.fetch(agent)["ok"] is True
    assert len(storage.hits) == 1
    check_loads(world.folder, world.store, world.snapshot)
    agent.close()


def test_a_long_file_is_read_in_pieces(world: World) -> None:
    agent = world.agent()
    before = world.storage.requests["get"]
    assert world.fetch(agent)["ok"] is True
    assert world.storage.requests["get"] - before > PIECES
    check_loads(world.folder, world.store, world.snapshot)
    agent.close()


@pytest.mark.parametrize("moment", [Moment.TRUNCATE, Moment.FAIL_BEFORE])
def test_a_piece_that_does_not_come(world: World, moment: Moment) -> None:
    large = next(h.object for h in world.snapshot.handles if h.length == LARGE)
    once = FaultyStorage(world.storage, [Fault(moment, large, frozenset({"get"}), times=1)])
    agent = world.agent(once)
    answer = world.fetch(agent)
    assert len(once.hits) == 1
    if moment is Moment.TRUNCATE:
        check_loads(world.folder, world.store, world.snapshot)
    else:
        assert answer["error"]["kind"] == "STORAGE"
        assert not (world.folder / world.snapshot.handles[-1].name).exists()
        assert world.fetch(agent)["ok"] is True
        check_loads(world.folder, world.store, world.snapshot)
    agent.close()


def test_a_long_file_that_is_damaged_is_named(world: World) -> None:
    large = next(h for h in world.snapshot.handles if h.length == LARGE)
    world.replace(large, b"\xde\xad\xbe\xef")
    agent = world.agent()
    error = world.fetch(agent)["error"]
    assert error["kind"] == "DAMAGED"
    assert large.object in error["message"]
    assert (error["object"], error["checkpoint"]) == (large.object, BASE.to_json())
    assert not (world.folder / large.name).exists()
    agent.close()


def test_a_missing_object_is_named(world: World) -> None:
    handle = world.snapshot.handles[-1]
    world.storage.delete([handle.object])
    agent = world.agent()
    error = world.fetch(agent)["error"]
    assert error["kind"] == "MISSING"
    assert handle.object in error["message"]
    assert "restart the query" in error["message"]
    assert (error["object"], error["checkpoint"]) == (handle.object, BASE.to_json())
    agent.close()


def test_a_handed_over_snapshot_that_is_gone_is_no_checkpoints_damage(world: World) -> None:
    handle = world.snapshot.handles[-1]
    world.storage.delete([handle.object])
    agent = world.agent()
    handles = [h.to_json() for h in world.snapshot.handles]
    error = agent.ask({**world.store.fetch_message(world.url, BASE, world.folder), "handles": handles})["error"]
    assert (error["kind"], error["object"]) == ("MISSING", handle.object)
    assert "checkpoint" not in error
    agent.close()


def test_a_missing_checkpoint_is_named(world: World) -> None:
    agent = world.agent()
    error = world.fetch(agent, CheckpointId(1, 2))["error"]
    assert error["checkpoint"] == CheckpointId(1, 2).to_json()
    assert error["kind"] == "MISSING"
    assert "run-00000001/chk-2/_metadata" in error["message"]
    agent.close()


@pytest.mark.parametrize("base", [None, BASE])
def test_a_version_that_no_checkpoint_holds_is_missing(world: World, base: CheckpointId | None) -> None:
    agent = world.agent()
    message = world.store.fetch_message(world.url, base, world.folder)
    error = agent.ask({**message, "version": 77})["error"]
    assert error["kind"] == "MISSING"
    assert "version 77" in error["message"]
    agent.close()


def test_a_damaged_metadata_is_refused(world: World) -> None:
    world.storage.put(metadata_key(BASE), b"PAR1 nothing PAR1")
    agent = world.agent()
    assert world.fetch(agent)["error"]["kind"] == "DAMAGED"
    agent.close()


def test_a_metadata_that_is_of_another_checkpoint_is_refused(world: World) -> None:
    other = complete(world.storage, CheckpointId(1, 2), [world.snapshot])
    world.storage.put(metadata_key(BASE), world.storage.get(metadata_key(other)))
    agent = world.agent()
    error = world.fetch(agent)["error"]
    assert (error["kind"], error["checkpoint"]) == ("DAMAGED", BASE.to_json())
    assert "holds run-1/chk-2 instead" in error["message"]
    agent.close()


def test_a_storage_that_fails_once_is_asked_again_by_the_next_fetch(world: World) -> None:
    storage = FaultyStorage(world.storage, [Fault(Moment.FAIL_BEFORE, "*/_metadata")])
    agent = world.agent(storage)
    assert world.fetch(agent)["error"]["kind"] == "STORAGE"
    assert world.fetch(agent)["ok"] is True
    agent.close()


@pytest.mark.parametrize(
    ("name", "key"), [("../evil", "run-00000001/seg/0-x"), ("/etc/evil", "run-00000001/seg/0-x"), ("1_a.zip", "../other/x")]
)
def test_handles_that_point_elsewhere_are_refused(world: World, name: str, key: str) -> None:
    staging, pool = Staging(world.spool), ThreadPoolExecutor(1)
    world.storage.put("run-00000001/seg/0-x", b"evil")
    handle = Handle(HandleKind.SNAPSHOT, name, key, 0, 4, zlib.crc32(b"evil"))
    with pool, pytest.raises(FormatError, match=r"leave its folder|does not belong to a stream"):
        Fetcher(staging, pool, RestoreRoom(0)).fetch(world.storage, [handle], world.folder, "checkpoint 1/3")
    assert not world.folder.exists()
    staging.close()
