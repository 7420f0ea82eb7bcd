"""What is damaged on its way only is read once more, whoever reads it."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.agent.bases import Bases
from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.model import Checkpoint, Handle, HandleKind
from spark_ckpt.paths import metadata_key
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.stored.copies import RestorePath, store_savepoint
from spark_ckpt.stored.gc import Collector
from spark_ckpt.stored.ranges import IN_MEMORY
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.state import assemble
from spark_ckpt.stored.verify import Verifier
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.stored_stream import StreamWriter, make_store

KEY = "run-00000001/seg/1-a"
ON_THEIR_WAY = [Moment.TRUNCATE, Moment.FLIP]


@pytest.fixture
def storage() -> Iterator[Storage]:
    with open_storage(f"memory://{uuid.uuid4()}/stream") as opened:
        yield opened


def once(storage: Storage, moment: Moment, key: str) -> FaultyStorage:
    return FaultyStorage(storage, [Fault(moment, key, frozenset({"get"}))])


def stored(storage: Storage, tmp_path: Path) -> Checkpoint:
    writer = StreamWriter(storage)
    writer.begin(1)
    return writer.complete(1, 0, [make_store(tmp_path, 20)])


@pytest.mark.parametrize("moment", ON_THEIR_WAY)
def test_whoever_reads_a_checkpoint_reads_once_more(storage: Storage, moment: Moment, tmp_path: Path) -> None:
    checkpoint = stored(storage, tmp_path)
    sst = checkpoint.snapshots[0].handles[0].object

    def faulty() -> FaultyStorage:
        return once(storage, moment, sst)

    assert Verifier(faulty()).verify(checkpoint).problems == []
    assert assemble(faulty(), checkpoint, checkpoint.snapshots[0], tmp_path / "store") is not None
    with open_storage(f"{storage.url}-savepoint") as target:
        copied = store_savepoint(faulty(), checkpoint, target)
        assert Verifier(target).verify(copied).problems == []


@pytest.mark.parametrize("moment", ON_THEIR_WAY)
def test_whoever_reads_a_metadata_reads_once_more(storage: Storage, moment: Moment, tmp_path: Path) -> None:
    checkpoint = stored(storage, tmp_path)
    key = metadata_key(checkpoint.id)

    def faulty() -> FaultyStorage:
        return once(storage, moment, key)

    assert StreamReader(faulty()).read(checkpoint.id) == checkpoint
    assert RestorePath.at(f"{storage.url}/run-00000001/chk-0").read(faulty()) == checkpoint
    assert Bases(faulty()).find(checkpoint.id, checkpoint.snapshots[0].store) == checkpoint.snapshots[0]
    assert Collector(faulty(), 0, 0).look().checkpoints == ()
    answer = StorageActions(storage.url, lambda _: faulty()).perform(do.ReadMetadata(1, checkpoint.id))
    assert answer == ev.MetadataRead(1, checkpoint.id, checkpoint)


def test_a_metadata_that_is_damaged_for_good_is_an_answer(storage: Storage, tmp_path: Path) -> None:
    checkpoint = stored(storage, tmp_path)
    key = metadata_key(checkpoint.id)
    data = storage.get(key)
    storage.put(key, data[:-20])
    answer = StorageActions(storage.url, lambda _: storage).perform(do.ReadMetadata(1, checkpoint.id))
    assert isinstance(answer, ev.MetadataRead)
    assert (answer.checkpoint, key in (answer.damage or "")) == (None, True)


@pytest.mark.parametrize("moment", ON_THEIR_WAY)
def test_a_long_range_is_verified_with_a_second_read(storage: Storage, moment: Moment, tmp_path: Path) -> None:
    checkpoint = stored(storage, tmp_path)
    data = b"x" * (IN_MEMORY + 1)
    storage.put(KEY, data)
    whole = Handle(HandleKind.CHANGELOG, "1_u.changelog", KEY, 0, len(data), zlib.crc32(data))
    snapshot = replace(checkpoint.snapshots[0], handles=(whole,))
    assert Verifier(once(storage, moment, KEY)).verify(replace(checkpoint, snapshots=(snapshot,))).problems == []
    wrong = replace(whole, checksum=7)
    problems = Verifier(storage).verify(replace(checkpoint, snapshots=(replace(snapshot, handles=(wrong,)),))).problems
    assert [problem.message.split(" has ")[0] for problem in problems] == [f"1_u.changelog in {KEY}"]
