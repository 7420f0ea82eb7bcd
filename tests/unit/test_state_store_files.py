"""State stores that are written: from any order, in bounded memory, with few open files."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from spark_ckpt.errors import ConflictError
from spark_ckpt.model import Checkpoint, CheckpointId, HandleKind, Job, Snapshot, StoreId
from spark_ckpt.state.contents import opened
from spark_ckpt.state.store_files import Held, StoreWriter
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.segments import Place, Segments, local_handle

TOLD = {"numInternalKeys": 0, "columnFamilyMapping": {}, "columnFamilyTypeMap": {}, "maxColumnFamilyId": 0}


def like(partition: int) -> Snapshot:
    return Snapshot(StoreId(0, partition, "default"), 7, f"old-{partition}", ())


def read(folder: Path, snapshot: Snapshot, scratch: Path) -> dict[bytes, bytes]:
    checkpoint = Checkpoint(CheckpointId(1, 6), 0, 0, "q", 0, Job((), (), ""), {}, (snapshot,), {})
    with opened(open_storage(f"file://{folder}"), checkpoint, snapshot, scratch, "lz4", b"") as contents:
        return dict(contents.entries())


def test_many_stores_are_written_in_any_order_with_few_open_files(tmp_path: Path) -> None:
    held = Held(limit=200_000)
    writers = [StoreWriter(tmp_path / f"new-{n}", held) for n in range(12)]
    rng, expected, most = random.Random(3), [dict[bytes, bytes]() for _ in writers], 0
    before = len(os.listdir("/proc/self/fd"))
    for number in range(30):
        for writer, entries in zip(writers, expected, strict=True):
            new = {rng.randbytes(12): rng.randbytes(30) + b"%d" % number for _ in range(10)}
            entries.update(new)
            writer.put(list(new), list(new.values()))
        most = max(most, len(os.listdir("/proc/self/fd")) - before)
    assert most < 20
    assert len(list(tmp_path.glob("new-*/spilled"))) == len(writers), "nothing was put on the disk meanwhile"
    place = Place(open_storage(f"file://{tmp_path}/out"), 1, 6, "here")
    segments = Segments(place)
    for number, writer in enumerate(writers):
        segments.take(writer.finish(place, like(number), TOLD, writer.entries))
    segments.flush()
    assert [s.num_keys for s in segments.snapshots] == [300] * len(writers)
    for number, snapshot in enumerate(segments.snapshots):
        assert read(tmp_path / "out", snapshot, tmp_path / f"read-{number}") == expected[number]


def test_a_key_that_was_put_twice_is_found_wherever_it_was(tmp_path: Path) -> None:
    place = Place(open_storage(f"file://{tmp_path}/out"), 1, 6, "here")
    for number, order in enumerate(([b"a", b"b", b"a"], [b"b", b"a", b"b"], [b"a", b"a"])):
        writer = StoreWriter(tmp_path / f"twice-{number}", Held())
        for key in order:
            writer.put([key], [b"value"])
        with pytest.raises(ConflictError, match="1 keys of one partition are given more than once"):
            writer.finish(place, like(0), TOLD, None)


def test_an_empty_store_is_one_too(tmp_path: Path) -> None:
    place = Place(open_storage(f"file://{tmp_path}/out"), 1, 6, "here")
    segments = Segments(place)
    segments.take(StoreWriter(tmp_path / "new", Held()).finish(place, like(0), TOLD, 0))
    segments.flush()
    assert read(tmp_path / "out", segments.snapshots[0], tmp_path / "read") == {}


def test_what_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "new", Held(limit=1))
    writer.put([b"a"], [b"b"])
    assert (tmp_path / "new").exists()
    writer.close()
    assert not (tmp_path / "new").exists()


def test_a_name_tells_what_an_object_holds(tmp_path: Path) -> None:
    """What is stored again with another content under the same file's name touches nothing that is there."""
    storage = open_storage(f"file://{tmp_path}/out")
    objects = set()
    for content in (b"one", b"two", b"one"):
        path = tmp_path / "4.sst"
        path.write_bytes(content)
        handle = local_handle(HandleKind.SST, "SSTs/4.sst", path)
        objects.add(Place(storage, 1, 6, "here").store_sst(path, handle, "4.sst").object)
    assert len(objects) == 2
    assert {storage.get(key) for key in objects} == {b"one", b"two"}
    assert Place(None, 1, 6, "here").store_sst(path, handle, "4.sst").object in objects
